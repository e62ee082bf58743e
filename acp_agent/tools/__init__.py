"""Tools the model sees; one a file."""
