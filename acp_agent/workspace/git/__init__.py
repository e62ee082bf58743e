"""Repositories as git would see them: settings, hooks, the index, and the files that git commands change."""
