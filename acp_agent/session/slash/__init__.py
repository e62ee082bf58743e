"""The slash commands: the table, the handler, and what the larger ones do."""
