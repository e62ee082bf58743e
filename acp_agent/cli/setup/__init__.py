"""`acp-agent setup EDITOR`: the settings with which an editor starts this agent."""
