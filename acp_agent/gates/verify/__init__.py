"""The verifiers of a call before it runs: one file each, the gate that runs them, and readers of commands."""
