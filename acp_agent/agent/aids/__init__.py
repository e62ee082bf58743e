"""What can be switched on beside the turn: each helps the model with its tool calls, and is off by default."""
