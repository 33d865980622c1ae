"""The command line. Each command is one file, which parses its arguments, calls the library and prints the result."""
