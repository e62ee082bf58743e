"""Parse shell text, prove which commands it runs, and list every command that it may run."""
