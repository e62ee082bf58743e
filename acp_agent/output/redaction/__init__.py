"""Redaction of secrets, which are found by their form, as known values, and by the user's patterns."""
