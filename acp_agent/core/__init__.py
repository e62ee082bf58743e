"""Floor 0: the vocabulary every other package shares. Standard library only, no I/O."""
