"""A model that answers from a script: for tests and dry runs. It has no state, so equal prompts get equal answers.

A script file is JSON lines, each a rule: {"role"?: "reflector", "match"?: REGEX, "answer": TEXT or OBJECT}. The first
rule whose role and pattern (searched in the system and user messages) fit gives the answer; \\1 or \\g<name> in it
stand for what the pattern caught. Where plain text is asked for, an object gives its "answer". {"error": "429"} instead
of an answer makes the provider fail.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.core.errors import ModelError, ProviderError
from practicum.core.types import Prompt, Usage
from practicum.core.views import count_tokens
from practicum.models.client import JSON, CallOptions, Reply


@dataclass(frozen=True, slots=True)
class Call:
    """What a scripted model was asked."""

    role: str
    prompt: Prompt
    schema: JSON | None
    options: CallOptions

    @property
    def text(self) -> str:
        """All messages, one after the other."""
        turns = [part for turn in self.prompt.turns for part in (turn.user, turn.assistant)]
        return "\n".join([self.prompt.head, *turns, self.prompt.user])


class ScriptRule(BaseModel):
    """One line of a script."""

    model_config = ConfigDict(extra="forbid")

    role: str | None = None
    match: str = ""
    answer: Any = None
    error: str | None = None


@dataclass
class ScriptedClient:
    """Answers with `respond(call)`: text, or an exception to raise. `calls` keeps what was asked, in order."""

    respond: Callable[[Call], str | Exception]
    name: str = "scripted"
    window: int | None = None
    slots: int | None = None
    calls: list[Call] = field(default_factory=list)
    priced: bool = True

    @classmethod
    def from_file(cls, path: Path) -> ScriptedClient:
        """Read a script. Raises ModelError naming the line that is wrong."""
        rules = _rules(path)
        return cls(lambda call: _answer(rules, call, path), name=f"scripted:{path}")

    @property
    def endpoint(self) -> str:
        return self.name

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        call = Call(role, prompt, schema, options)
        self.calls.append(call)
        answer = self.respond(call)
        # A real model answers later, so that callers meet the interleavings they would meet in earnest.
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        usage = Usage(1, count_tokens(call.text), 0, count_tokens(answer))
        return Reply(answer, usage)

    def cost(self, usage: Usage) -> float | None:
        return 0.0

    async def close(self) -> None:
        return None


def _rules(path: Path) -> list[ScriptRule]:
    try:
        # Not splitlines(): a JSON string may hold U+2028 and its like unescaped.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read the script {path}: {error}") from error
    rules = [_rule(line, f"{path} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rules:
        raise ModelError(f"the script {path} has no rules")
    return rules


def _rule(line: str, where: str) -> ScriptRule:
    try:
        rule = ScriptRule.model_validate_json(line)
        pattern = re.compile(rule.match)
    except ValidationError as error:
        raise ModelError(f"{where}: {error.errors()[0]['msg']}") from error
    except (re.error, OverflowError, RecursionError) as error:
        raise ModelError(f"{where}: 'match' is not a regular expression: {error}") from error
    try:
        _each_text(rule.answer, lambda text: pattern.sub(text, ""))
    except (re.error, IndexError) as error:
        raise ModelError(
            f"{where}: 'answer' cannot be filled from 'match': {error}; a backslash that stands for itself is written "
            "as four in JSON"
        ) from error
    return rule


def _answer(rules: list[ScriptRule], call: Call, path: Path) -> str | Exception:
    text = call.text
    for rule in rules:
        found = re.search(rule.match, text) if rule.role in (None, call.role) else None
        if found is None:
            continue
        if rule.error is not None:
            return ProviderError(f"{path} answers with error {rule.error}")
        plain = call.schema is None and isinstance(rule.answer, dict) and "answer" in rule.answer
        return _filled(rule.answer["answer"] if plain else rule.answer, found)
    return ModelError(f"no rule of {path} fits this call of the {call.role}: {call.prompt.user[:80]!r}")


def _filled(answer: Any, found: re.Match[str]) -> str:
    """The answer with what the pattern caught."""
    filled = _each_text(answer, lambda text: found.expand(text) if "\\" in text else text)
    return filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)


def _each_text(value: Any, fill: Callable[[str], str]) -> Any:
    """The value with each of its strings filled; names of fields stay."""
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, list):
        return [_each_text(part, fill) for part in value]
    return {name: _each_text(part, fill) for name, part in value.items()} if isinstance(value, dict) else value
