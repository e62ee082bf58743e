"""What comes back: redact, filter, clip."""
