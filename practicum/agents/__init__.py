"""Agents under training: chat, tools, programs, functions, AppWorld, and networks of agents.

A package adds agents in the entry point group `practicum.agents`, as `NAME = "module:callable"`. `--agent NAME` then
calls `callable(input, context)` for each attempt, with the task's input and the context as text. See
`external.FunctionAgent` for further parameters and for the type of the result.
"""
