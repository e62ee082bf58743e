"""The command line beside the server: one module a subcommand, loaded when it is used."""
