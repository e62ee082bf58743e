"""The MCP client: connections to servers. Loaded only when a session has any (E6, A25)."""
