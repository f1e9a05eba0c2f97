"""The command `lvp`: its parser, its subcommands and their entry point `lvp.cli.main`."""
