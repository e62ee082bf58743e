"""What a session works on: files, trees, search, and commands on this machine."""
