"""A DSPy module: in a copy of it, what was learned stands after the instructions of each predictor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.agents.frameworks.common import Act, answer, called, instructions, providers


def dspy(module: Any, input: str = "question", output: str = "answer") -> Act:
    """`input` and `output` name the fields of the task and of the answer. The model is what DSPy is configured with."""
    name = f"dspy({type(module).__name__})"

    async def act(text: str, context: str) -> Any:
        from dspy import LMError

        own = module.deepcopy()
        for mine, theirs in zip(own.predictors(), module.predictors(), strict=True):
            signature = theirs.signature
            mine.signature = signature.with_instructions(instructions(context, signature.instructions))
            mine.lm = theirs.lm  # a copy would count and cache for itself
        with providers(name, LMError):
            said = await own.acall(**{input: text})
        told = {"answer": said[output], "reasoning": said.get("reasoning") or ""}
        return answer(told, _steps(said.get("trajectory") or {}), context)

    act.__qualname__ = name
    return act


def _steps(trajectory: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The trajectory of ReAct: thought_0, tool_name_0, tool_args_0, observation_0, thought_1, ..."""
    steps: list[tuple[str, str]] = []
    for key, value in trajectory.items():
        kind, _, turn = key.rpartition("_")
        if kind == "tool_name":
            steps.append(called(value, trajectory[f"tool_args_{turn}"]))
        elif kind in ("thought", "observation"):
            steps.append((kind, str(value)))
    return steps
