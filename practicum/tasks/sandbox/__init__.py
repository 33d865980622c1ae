"""Runs generated code in a process that can reach neither the user's files nor the network."""
