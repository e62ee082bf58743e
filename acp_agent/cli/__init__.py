"""The subcommands of the command line. A module of one is imported when the subcommand is used."""
