"""What outlives a process: files below the data folder."""
