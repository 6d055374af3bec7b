"""The command line, one command a file. Each module has HELP, `add_arguments(parser)` and
`run(args) -> dict`; with --json the dict is printed, and nothing else goes to standard output."""
