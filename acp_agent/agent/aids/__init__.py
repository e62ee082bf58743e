"""Parts of a turn that can be switched on. Each helps the model with its tool calls and is off by default."""
