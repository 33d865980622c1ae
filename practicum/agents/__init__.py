"""Agents under training: chat, tools, programs, functions, AppWorld, and networks of agents.

A package adds agents under the entry point group `practicum.agents`, as `NAME = "module:callable"`. `--agent NAME` then
calls it as any other function is called: `callable(input, context)`, with the task's input and the context as text.
See `external.FunctionAgent` for further parameters it may have, and for what it may return.
"""
