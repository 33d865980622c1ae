"""What all adapters share: how the context is told, how an output is read, and whose fault a failure was."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from practicum.core.errors import ProviderError

Act = Callable[[str, str], Awaitable[Any]]
"""An agent as practicum calls it: input and context in, what `agents.outside.read_answer` reads out."""

Steps = Sequence[tuple[str, str]]
"""Kind ("thought", "action", "observation") and text of each step."""

_SHOWN = re.compile(r'^\[(e\d+)\] \(|^<entry id="(e\d+)"', re.MULTILINE)
_CITED = re.compile(r"\[(e\d+)\]")
_READ = ("answer", "reasoning", "used", "doubts", "missing", "note")


def instructions(context: str, own: str | None = None) -> str:
    """The agent's own instructions, then what was learned; empty where there is neither."""
    learned = f"{LEARNED}{CITE if _SHOWN.search(context) else ''}\n\n{context}" if context else ""
    return "\n\n".join(part for part in (own, learned) if part)


def answer(output: object, steps: Steps, context: str) -> dict[str, Any] | None:
    """An output of any kind as practicum reads it. Fields that practicum knows are taken from an output that has an
    `answer`; any other output is the answer, as JSON where it is no text. The entries used are those that the agent
    names itself, else those whose [id] stands in what it wrote."""
    from pydantic_core import to_jsonable_python

    value = to_jsonable_python(output, fallback=str)
    fields = value if isinstance(value, Mapping) and "answer" in value else {"answer": value}
    if fields["answer"] is None:
        return None
    told = {name: fields[name] for name in _READ if name in fields}
    told["answer"] = _text(told["answer"])
    shown = {id for pair in _SHOWN.findall(context) for id in pair}
    written = [*(text for kind, text in steps if kind != "observation"), str(told.get("reasoning", "")), told["answer"]]
    cited = [id for id in _CITED.findall("\n".join(written)) if id in shown]
    return {"used": cited, **told, "steps": [{"kind": kind, "text": text} for kind, text in steps]}


def called(name: str, arguments: object) -> tuple[str, str]:
    """A tool's call as a step."""
    return "action", f"{name} {_text(arguments)}"


@contextmanager
def providers(who: str, *own: type[Exception]) -> Iterator[None]:
    """A model's provider that fails in here loses the attempt: nothing was tried that could teach. `own` are what the
    framework raises then."""
    from openai import APIError
    from pydantic_ai.exceptions import ModelAPIError

    failures: tuple[type[Exception], ...] = (APIError, ModelAPIError, *own)
    try:
        yield
    except failures as error:
        raise ProviderError(f"the model of {who} failed: {type(error).__name__}: {error}") from error


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


LEARNED = "Below is what was learned from earlier tasks. Follow what applies to this one."
CITE = " Where you think aloud or call a tool, but not in the answer, name the entries you follow by their [id]."
