"""A simulated model that can do the tasks of the manual: it follows the rules in its prompt, and learns them as ACE's
reflector and curator would. It answers K7 where no rule applies."""

from __future__ import annotations

import json
import re
from typing import Any

from practicum.testing import main

KINDS = {"water": "K2", "battery": "K5", "screen": "K7", "files": "K9"}


def texts(body: dict[str, Any]) -> list[str]:
    """The texts of a request of either protocol, in order."""
    parts = [body.get("instructions") or "", *(body.get("messages") or body.get("input") or ())]
    return [
        part if isinstance(part, str) else json.dumps(part.get("content", ""), ensure_ascii=False) for part in parts
    ]


def schema_of(body: dict[str, Any]) -> str:
    """The schema of the answer, as text; empty for plain text."""
    form = body.get("response_format") or (body.get("text") or {}).get("format") or {}
    return json.dumps(form) if form.get("type") == "json_schema" else ""


def respond(body: dict[str, Any]) -> str | None:
    """Answer by the rules in the prompt. None leaves a form to the server, which fills it."""
    *before, last = texts(body) or [""]
    schema = schema_of(body)
    if "insights" in schema and "diagnosis" in schema:
        asked = next((kind for kind in KINDS if kind in last), "water")
        right = re.search(r"right answer is: (K\d)", last)
        insight = [{"section": "strategies", "text": f"If it is about {asked}, answer {right[1]}."}] if right else []
        return json.dumps({
            "reasoning": "It guessed.", "diagnosis": "The bench was wrong.", "cause": "No entry says it.",
            "correction": right[1] if right else "", "tags": [], "insights": insight,
        })  # fmt: skip
    if '"changes"' in schema:
        numbers = re.findall(r"Insight (\d+)", last) or re.findall(r"^(\d+)\.", last, re.M)
        return json.dumps({"changes": [{"op": "ADD", "insights": [int(n)], "reason": "new"} for n in numbers]})
    if schema:
        return None
    rules = re.findall(r"If it is about (\w+), answer (K\d)", "\n".join([*before, last]))
    return next((answer for word, answer in rules if word in last.rpartition("]")[2]), "K7")


if __name__ == "__main__":
    main(responder=respond)
