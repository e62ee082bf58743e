"""From ToolCall to ToolResult."""
