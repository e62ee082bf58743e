"""`acp-agent setup EDITOR`: the settings of each editor that starts this agent."""
