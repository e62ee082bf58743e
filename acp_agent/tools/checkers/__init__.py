"""Programs that find problems in a project, one a file, and which of them a project wants."""
