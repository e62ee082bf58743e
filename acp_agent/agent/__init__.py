"""The loop between the model and the tools. It imports nothing but core."""
