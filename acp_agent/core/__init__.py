"""The types, events, errors and ports that all other packages share. Standard library only, no I/O."""
