"""The MCP client. It is loaded only for sessions that have MCP servers."""
