"""What users bring: definitions in files beside their configuration and in folders that they trust."""
