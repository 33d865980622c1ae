"""A model that plays all roles, each by a rule: the fields of an answer, which `fitted` brings into the requested form.

The agent answers a message right exactly if its prompt has the right word. So only learning raises a score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from python_tasks import lesson, number, word

import practicum
from practicum import ScriptedClient

Rule = Callable[[Any], Any]
"""Takes a call (`role`, `prompt`, `schema`, `options`, `text`); returns a text, fields by name, or an exception."""


def asks(call: Any, field: str) -> bool:
    """Whether a call asks for a form that has this field."""
    return call.schema is not None and field in json.dumps(call.schema)


def insights_offered(call: Any) -> list[tuple[int, str]]:
    """The insights that a curator is to decide about, by their numbers."""
    matches = re.findall(r"^Insight (\d+)(?: \([^)]*\))?: (.*)$", call.prompt.user, re.MULTILINE)
    return [(int(n), text) for n, text in matches]


def agent(call: Any) -> Any:
    """Right if the prompt has the word; cites the entry that has it."""
    n = number(call)
    cited = re.findall(rf"^\[(e\d+)\][^\n]*\b{word(n)}\b", call.prompt.head, re.MULTILINE)
    return {"answer": word(n) if re.search(rf"\b{word(n)}\b", call.text) else "unsure", "used": cited, **ALONE}


def knowing(call: Any) -> Any:
    """An agent that is always right."""
    return {"answer": word(number(call)), **ALONE}


def ignorant(call: Any) -> Any:
    """An agent that is always wrong."""
    return {"answer": "unsure", **ALONE}


def citing(*ids: str, answer: str = "unsure") -> Rule:
    """An agent that always cites these entries."""
    return lambda call: {"answer": answer, "used": list(ids), **ALONE}


def remembering(mark: str) -> Rule:
    """An agent that is right where its prompt has the mark."""
    return lambda call: (knowing if mark in call.text else ignorant)(call)


def varying(call: Any) -> Any:
    """An agent that is right in the further attempts at a task, which have a temperature."""
    return (knowing if call.options.temperature else agent)(call)


OTHER = "*"
"""Name of the value for every text, and list of texts, that a rule does not name."""

ALONE = {"alone": True, "reason": "it is short", "adequate": True}
"""Fields of the intermediate answers in a network."""


def reflector(call: Any) -> Any:
    """Learns the right answer if the feedback has it."""
    words = re.findall(r"\bword(\d+)\b", call.prompt.user)
    return reflecting(*[lesson(int(n)) for n in words[-1:]], instruction=lessons_in(call.text))


def reflecting(*insights: str, tags: Mapping[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """The answer of a reflector with these insights, in every form that may be requested."""
    return {
        "insights": [{"section": "", "text": text} for text in insights], "insight": "".join(insights[:1]),
        "items": [{"title": "A message", "description": "It asks for a word.", "content": text} for text in insights],
        "bullets": [*insights], "feedback": [*insights], "attribution": "actionable_gap", "best": 1,
        "tags": [{"id": id, "verdict": verdict} for id, verdict in (tags or {}).items()],
        OTHER: " ".join(insights) or "It was read.", **fields,
    }  # fmt: skip


def lessons_in(text: str) -> str:
    """The lessons of all right answers in a text, as one text."""
    return " ".join(lesson(int(n)) for n in sorted(set(re.findall(r"\bword(\d+)\b", text)))) or "Answer with a word."


def curator(call: Any) -> Any:
    """Makes an entry of each insight, word for word."""
    offered = [int(n) for n in re.findall(r"^Insight (\d+)", call.prompt.user, re.MULTILINE)]
    matches = re.findall(r"If it is message \d+, answer word\d+\.", call.prompt.user)
    return {"changes": [add(n) for n in offered], "points": [*dict.fromkeys(matches)], OTHER: lessons_in(call.text)}


def judge(call: Any) -> Any:
    return {"right": "unsure" not in call.prompt.user, "reason": "So it is.", "points": 8}


def add(*insights: int, text: str = "", section: str = "") -> dict[str, Any]:
    """A decision of the curator: an entry for these insights."""
    return {"op": "ADD", "insights": [*insights], "ids": [], "section": section, "text": text, "reason": "It is new."}


def change(
    op: str, *ids: str, insights: Sequence[int] = (1,), text: str = "", reason: str = "So it is."
) -> dict[str, Any]:
    """A decision of the curator about entries that there are."""
    return {"op": op, "insights": [*insights], "ids": [*ids], "section": "", "text": text, "reason": reason}


def deciding(*decisions: Mapping[str, Any]) -> Rule:
    """A curator that always decides the same."""
    return lambda call: {"changes": [*decisions]}


RULES: dict[str, Rule] = {
    "agent": agent, "reflector": reflector, "curator": curator, "state": lambda call: {}, "judge": judge,
}  # fmt: skip


def model(**rules: Rule) -> ScriptedClient:
    """A model that plays every role; `rules` override the rules of some roles. It records its `calls`."""
    roles = {**RULES, **rules}

    def respond(call: Any) -> str | Exception:
        answer = roles[call.role](call)
        return answer if isinstance(answer, str | Exception) else fitted(answer, call)

    return ScriptedClient(respond)


def fitted(answer: Mapping[str, Any], call: Any) -> str:
    """The fields in the form that a call asks for: JSON with every field of the schema, or labelled lines of text."""
    if call.schema is not None:
        return json.dumps(_filled(call.schema, call.schema.get("$defs", {}), answer))
    labels = re.findall(r"^(\w+): <", call.prompt.system, re.MULTILINE)
    lines = [f"{label}: {_text(answer.get(label.lower()))}" for label in labels]
    return "\n".join(lines) or str(answer["answer"])


def _filled(schema: Mapping[str, Any], definitions: Mapping[str, Any], answer: Any = None) -> Any:
    """A value of a schema: from the answer, or the simplest value."""
    if "$ref" in schema:
        return _filled(definitions[schema["$ref"].rpartition("/")[2]], definitions, answer)
    if "properties" in schema:
        named = answer if isinstance(answer, Mapping) else {}
        inner = schema["properties"].items()
        return {name: _filled(each, definitions, named.get(name, _other(each, named))) for name, each in inner}
    if answer is not None and schema.get("type") == "array":
        return [_filled(schema.get("items", {}), definitions, each) for each in answer]
    if answer is not None:
        return answer
    if "enum" in schema:
        return schema["enum"][0]
    plain = {"string": "", "array": [], "boolean": True, "integer": 1, "number": 1, "null": None}
    return plain[schema.get("type", "null")]


def _other(schema: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """The value of a field that no rule names: a text, or a list with it."""
    if schema.get("type") == "array":
        text = _other(schema.get("items", {}), fields)
        return None if text is None else [text]
    return fields.get(OTHER) if schema.get("type") == "string" and "enum" not in schema else None


def _text(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, list) else str(value or "none")


def down(call: Any = None) -> practicum.ProviderError:
    """The failure of a provider that does not answer; also the rule of a role without an answer."""
    return practicum.ProviderError("provider.failed", "no answer")
