"""The Agent Client Protocol over stdio."""
