"""Redaction of secrets: by their form, by their known value, and by patterns of the user."""
