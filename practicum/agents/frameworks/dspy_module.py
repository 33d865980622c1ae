"""A DSPy module: a copy of it has the context after the instructions of each predictor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.agents.frameworks.common import (
    AgentFunction,
    Steps,
    agent_function,
    instructions,
    provider_error,
    tool_call,
)


def dspy(module: Any, input: str = "question", output: str = "answer") -> AgentFunction:
    """An agent from a DSPy module. `input` and `output` name its fields for the task and the answer; its model is the
    one DSPy is configured with."""
    name = f"dspy({type(module).__name__})"

    async def ask(text: str, context: str) -> tuple[object, Steps]:
        from dspy import LMError

        own = module.deepcopy()
        for copy, original in zip(own.predictors(), module.predictors(), strict=True):
            signature = original.signature
            copy.signature = signature.with_instructions(instructions(context, signature.instructions))
            copy.lm = original.lm  # a copied model would count and cache by itself
        try:
            prediction = await own.acall(**{input: text})
        except LMError as error:
            raise provider_error(name, error) from error
        fields = {"answer": prediction[output], "reasoning": prediction.get("reasoning") or ""}
        return fields, _steps(prediction.get("trajectory") or {})

    return agent_function(ask, name, "dspy_module")


def _steps(trajectory: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The steps of a ReAct trajectory: thought_0, tool_name_0, tool_args_0, observation_0, thought_1, ..."""
    steps: list[tuple[str, str]] = []
    for key, value in trajectory.items():
        kind, _, turn = key.rpartition("_")
        if kind == "tool_name":
            steps.append(tool_call(value, trajectory[f"tool_args_{turn}"]))
        elif kind in ("thought", "observation"):
            steps.append((kind, str(value)))
    return steps
