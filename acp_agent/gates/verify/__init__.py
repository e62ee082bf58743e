"""The verifiers that check a call before it runs, the gate that runs them, and readers of commands."""
