"""What tools return, on its way to the model and the user: cleaned, redacted, filtered and cut."""
