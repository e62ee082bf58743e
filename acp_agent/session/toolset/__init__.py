"""The tools of a session as the current configuration sets them: gates, roots, backends, output."""
