"""Sandbox for generated code: a process without access to the user's files or the network."""
