"""Prepare the results of tools for the model and the user: clean, redact, filter and cut them."""
