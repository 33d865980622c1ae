"""What the adapters share: the context as instructions, reading an output, steps, and a provider's failures."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from practicum.core.errors import ProviderError

AgentFunction = Callable[[str, str], Awaitable[Any]]
"""An agent as a function of the input and the context; `agents.external.read_answer` reads what it returns."""

Steps = Sequence[tuple[str, str]]
"""Kind ("thought", "action", "observation") and text of each step."""

AskFunction = Callable[[str, str], Awaitable[tuple[object, Steps]]]
"""Runs an agent of a framework on an input and a context. Returns its output and its steps, without the answer."""

_SHOWN_ID = re.compile(r'^\[(e\d+)\] \(|^<entry id="(e\d+)"', re.MULTILINE)
_CITED_ID = re.compile(r"\[(e\d+)\]")
_FIELDS = ("answer", "reasoning", "used", "doubts", "missing", "note")


def agent_function(ask: AskFunction, name: str, module: str) -> AgentFunction:
    """An agent that answers through `ask`, named `name` in messages and in the journal. A failure of its model's
    provider becomes a ProviderError, so that nothing is learned from it."""

    async def act(input: str, context: str) -> Any:
        from openai import APIError
        from pydantic_ai.exceptions import ModelAPIError

        try:
            output, steps = await ask(input, context)
        except (APIError, ModelAPIError) as error:
            raise provider_error(name, error) from error
        return answer(output, steps, context)

    # The package was `practicum.adapters` when old runs wrote these names into their journals: a resume needs the same.
    act.__module__, act.__qualname__ = f"practicum.adapters.{module}", name
    return act


def provider_error(agent: str, error: Exception) -> ProviderError:
    """The error of practicum for a failure of the model that this agent uses."""
    return ProviderError(f"the model of {agent} failed: {type(error).__name__}: {error}")


def instructions(context: str, own: str | None = None) -> str:
    """The agent's own instructions, then the context; empty if there is neither."""
    learned = f"{LEARNED}{CITE if _SHOWN_ID.search(context) else ''}\n\n{context}" if context else ""
    return "\n\n".join(part for part in (own, learned) if part)


def answer(output: object, steps: Steps, context: str) -> dict[str, Any] | None:
    """Any output as the mapping that practicum reads; None if it has no answer.

    If the output has an `answer`, the fields that practicum knows are taken from it. Any other output is the answer
    itself, as JSON if it is not a text. The entries used are those that the agent lists, else those whose [id] is in
    the text it wrote.
    """
    from pydantic_core import to_jsonable_python

    value = to_jsonable_python(output, fallback=str)
    fields = value if isinstance(value, Mapping) and "answer" in value else {"answer": value}
    if fields["answer"] is None:
        return None
    known = {name: fields[name] for name in _FIELDS if name in fields}
    known["answer"] = _text(known["answer"])
    shown = {id for pair in _SHOWN_ID.findall(context) for id in pair}
    thoughts = [text for kind, text in steps if kind != "observation"]
    written = "\n".join([*thoughts, str(known.get("reasoning", "")), known["answer"]])
    cited = [id for id in _CITED_ID.findall(written) if id in shown]
    return {"used": cited, **known, "steps": [{"kind": kind, "text": text} for kind, text in steps]}


def tool_call(name: str, arguments: object) -> tuple[str, str]:
    """A call of a tool as a step."""
    return "action", f"{name} {_text(arguments)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


LEARNED = "Below is what was learned from earlier tasks. Follow what applies to this one."
CITE = " Where you think aloud or call a tool, but not in the answer, name the entries you follow by their [id]."
