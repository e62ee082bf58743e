"""Calls of git: what they ask, what they bring, and what the repository makes of them."""
