"""Gates a call passes; one a file."""
