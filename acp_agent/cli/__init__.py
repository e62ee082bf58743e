"""The subcommands of the command line, one module for each, which is imported when it is used."""
