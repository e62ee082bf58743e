"""Filters that remove from the output of a command what no reader needs."""
