"""Agents that can be trained: a chat model, any program, any callable, a network."""
