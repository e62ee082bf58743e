"""The loop between the model and the tools. It imports only `core` and `text`."""
