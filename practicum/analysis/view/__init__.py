"""A run as pages in a browser: made on demand by a server on this machine, or written as files."""
