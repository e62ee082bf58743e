"""Models; one wire format a file."""
