"""Rules: patterns, what they say about commands and other calls, the policy, named groups of commands."""
