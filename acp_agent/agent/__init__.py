"""The loop: prompts to turns. Knows only core."""
