"""The configuration: what can be set, where it is read from, and what a project may change."""
