"""The slash commands: their table, their handler, and modules for the larger ones."""
