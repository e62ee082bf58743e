"""The tools of a session by the configuration of the moment: gates, roots, backends, output."""
