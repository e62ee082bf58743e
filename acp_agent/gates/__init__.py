"""The gates that every call passes, one file each."""
