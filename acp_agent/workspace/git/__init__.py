"""Repositories as git would see them: settings, hooks, the index, and what commands of git bring."""
