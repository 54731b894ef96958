"""One module per group of commands: their words and options; what they do is told elsewhere in `cli/`."""
