"""Sub-agents: their definitions, their runs, and what carries them out."""
