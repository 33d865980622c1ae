"""Agents of other frameworks as functions `(input, context) -> answer`, which practicum can train as they are.

Each adapter puts the context where its framework has instructions, and returns the answer and the steps. Give it to
`Parts(agent=...)`, or name it as `--agent module:name`. A plain function needs no adapter, and a program is
`--agent command:PROGRAM`. A framework is imported when its agent first runs.
"""

from practicum.agents.frameworks.dspy_module import dspy
from practicum.agents.frameworks.endpoint import endpoint
from practicum.agents.frameworks.inspect_solver import inspect_ai
from practicum.agents.frameworks.openai_agent import openai_agents
from practicum.agents.frameworks.pydantic_agent import pydantic_ai
from practicum.agents.frameworks.runnable import langchain

__all__ = ["dspy", "endpoint", "inspect_ai", "langchain", "openai_agents", "pydantic_ai"]
