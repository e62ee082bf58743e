"""The gates that every call passes, the user's stored answers, and the question to the user."""
