"""Agents of other frameworks as callables `(input, context) -> answer`, which practicum can train as they are.

Each adapter puts what was learned where its framework has instructions, and tells the answer and the steps. It is
given to `Parts(agent=...)`, or named as `--agent module:name`. A plain function needs none, and a program is
`--agent command:PROGRAM`. Frameworks are imported when their agent is first run.
"""

from practicum.agents.frameworks.dspy_module import dspy
from practicum.agents.frameworks.endpoint import endpoint
from practicum.agents.frameworks.inspect_solver import inspect_ai
from practicum.agents.frameworks.openai_agent import openai_agents
from practicum.agents.frameworks.pydantic_agent import pydantic_ai
from practicum.agents.frameworks.runnable import langchain

__all__ = ["dspy", "endpoint", "inspect_ai", "langchain", "openai_agents", "pydantic_ai"]
