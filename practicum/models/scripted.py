"""Model that answers from a script or a function, for tests and dry runs.

A script is a file of JSON lines, each a rule: {"role"?: "reflector", "match"?: REGEX, "answer": TEXT or OBJECT}. A rule
applies to a call if the rule has the role of the call or no role, and its pattern matches the messages of the call. The
first rule that applies gives the answer. In the answer, \\1 and \\g<name> are replaced by the groups of the match. If
the call asks for text, an answer that is an object is written as the labelled parts that the prompt asks for. If the
prompt asks for no parts, only the object's field "answer" is written. {"error": "429"} instead of an answer makes the
call fail with a provider error; 401, 402, 403 and 404 stop the run.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.core.errors import ModelError, ProviderError
from practicum.core.files import read_text
from practicum.core.types import Prompt, Usage
from practicum.core.views import count_tokens
from practicum.models.client import JSON, CallOptions, Reply


@dataclass(frozen=True, slots=True)
class Call:
    """Call received by a scripted model."""

    role: str
    prompt: Prompt
    schema: JSON | None
    options: CallOptions

    @property
    def text(self) -> str:
        """All messages, joined."""
        turns = [part for turn in self.prompt.turns for part in (turn.user, turn.assistant)]
        return "\n".join([self.prompt.head, *turns, self.prompt.user])


class ScriptRule(BaseModel):
    """Rule of a script, one line of its file."""

    model_config = ConfigDict(extra="forbid")

    role: str | None = None
    match: str = ""
    answer: Any = None
    error: str | None = None


@dataclass
class ScriptedClient:
    """Client that answers with `respond(call)`: a text, or an exception to raise.

    Runs are reproducible if `respond` has no state: equal prompts get equal answers. `calls` holds all calls in order.
    `window` and `slots` are the limits of the simulated model; all calls cost 0 USD.

        ScriptedClient(lambda call: '{"answer": "4", "used": []}' if call.role == "agent" else "{}")
    """

    respond: Callable[[Call], str | Exception]
    name: str = "scripted"
    window: int | None = None
    slots: int | None = None
    calls: list[Call] = field(default_factory=list)
    priced: bool = True
    enforces_grammars: bool = False

    @classmethod
    def from_file(cls, path: Path) -> ScriptedClient:
        """Load a script. Raises ModelError with the line number of a malformed line."""
        rules = _rules(path)
        return cls(lambda call: _answer(rules, call, path), name=f"scripted:{path}")

    @property
    def endpoint(self) -> str:
        return self.name

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        call = Call(role, prompt, schema, options)
        self.calls.append(call)
        answer = self.respond(call)
        # Yield to other tasks, as a real call would.
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer, Usage(1, count_tokens(call.text), 0, count_tokens(answer)))

    def cost(self, usage: Usage) -> float | None:
        return 0.0

    async def close(self) -> None:
        return None


_STOPPING = {
    "401": "model.key_refused", "402": "model.no_credit", "403": "model.not_allowed", "404": "model.not_found",
}  # fmt: skip
"""HTTP status that stops the run → error code."""


def _rules(path: Path) -> list[ScriptRule]:
    try:
        # splitlines() would also split at U+2028 and similar characters, which JSON strings may contain.
        lines = read_text(path).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError("file.unreadable", f"cannot read the script {path}: {error}") from error
    rules = [_rule(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rules:
        raise ModelError("script.invalid", f"the script {path} has no rules")
    return rules


def _rule(line: str, where: str) -> ScriptRule:
    try:
        rule = ScriptRule.model_validate_json(line)
        pattern = re.compile(rule.match)
    except ValidationError as error:
        raise ModelError("script.invalid", f"{where}: {error.errors()[0]['msg']}") from error
    except (re.error, OverflowError, RecursionError) as error:
        raise ModelError("script.invalid", f"{where}: 'match' is not a regular expression: {error}") from error
    try:
        # sub() validates the template's groups, even without a match.
        _map_texts(rule.answer, lambda text: pattern.sub(text, ""))
    except (re.error, IndexError) as error:
        raise ModelError(
            "script.invalid",
            f"{where}: 'answer' refers to a group that 'match' does not have: {error}; write a literal backslash as "
            "four backslashes in JSON",
        ) from error
    return rule


def _answer(rules: list[ScriptRule], call: Call, path: Path) -> str | Exception:
    text = call.text
    for rule in rules:
        match = re.search(rule.match, text) if rule.role in (None, call.role) else None
        if match is None:
            continue
        if rule.error is not None:
            text = f"{path} answers with error {rule.error}"
            code = _STOPPING.get(rule.error)
            return ModelError(code, text) if code else ProviderError("provider.failed", text)
        in_text = call.schema is None and isinstance(rule.answer, dict) and "answer" in rule.answer
        return _fill(in_parts(call.prompt, rule.answer) if in_text else rule.answer, match)
    return ModelError(
        "script.no_rule", f"no rule of {path} matches this call of the {call.role}: {call.prompt.user[:80]!r}"
    )


def parts_asked(prompt: Prompt) -> list[str]:
    """Return the labels of the parts that the prompt asks an agent to write; empty if the prompt asks only for the
    answer."""
    return re.findall(r"^(\w+): <", prompt.system, re.MULTILINE)


def in_parts(prompt: Prompt, fields: Mapping[str, Any]) -> str:
    """Format the fields of an answer as the labelled parts that a prompt asks for."""
    lines = (f"{label}: {_line(fields.get(label.lower())) or 'none'}" for label in parts_asked(prompt))
    return "\n".join(lines) or str(fields["answer"])


def _line(value: Any) -> str:
    if isinstance(value, Mapping):
        return ": ".join(map(_line, value.values()))
    return ", ".join(map(_line, value)) if isinstance(value, list) else str(value or "")


def _fill(answer: Any, match: re.Match[str]) -> str:
    filled = _map_texts(answer, lambda text: match.expand(text) if "\\" in text else text)
    return filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)


def _map_texts(value: Any, convert: Callable[[str], str]) -> Any:
    """Convert each string in a JSON value; field names are unchanged."""
    if isinstance(value, str):
        return convert(value)
    if isinstance(value, list):
        return [_map_texts(part, convert) for part in value]
    return {name: _map_texts(part, convert) for name, part in value.items()} if isinstance(value, dict) else value
