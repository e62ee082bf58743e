"""Rules on calls: permission rules, the rules of the policy, and named groups of commands."""
