"""Filters that shorten the output of commands for the model and the user."""
