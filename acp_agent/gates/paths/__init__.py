"""What a command touches: the words that name paths, and the links it follows or makes."""
