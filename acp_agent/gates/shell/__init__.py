"""Shell text, read: the syntax tree, what is plain in it, and every command it may run. Loaded at the first command."""
