"""What is stored in the user's data folder: the database, the audit, keys, and the user's answers."""
