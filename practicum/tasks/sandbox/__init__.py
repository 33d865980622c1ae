"""Runs generated code in a process that can reach neither files nor the network."""
