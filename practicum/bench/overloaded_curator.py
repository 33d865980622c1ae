"""A simulated curator that many lessons overload: it keeps about half of the lessons in a call, at most eight, and
ignores the others (Combee, section 2.2).

Which ones it keeps looks random and is a function of the prompt. A level 2 that reads all that level 1 proposes is one
such call too, so this simulation cannot judge the paper's own join. `respond` answers a scripted model in process;
`python -m practicum.bench.overloaded_curator` serves the same, with the server's options.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from practicum.models.scripted import Call
from practicum.testing import Body, main

MODULE = "practicum.bench.overloaded_curator"
"""The module that `start_process` starts."""

LATENCIES: dict[str, Any] = {"latency": 0.2, "per_1k_prompt": 0.02, "per_output": 0.002}
"""Seconds of a call of the simulated server, much like those of a hosted model."""

MAX_KEPT = 8
"""Most lessons of one call that are kept."""


def respond(call: Call) -> str:
    """The answer to a call of a scripted model."""
    return _answer((call.schema or {}).get("title", ""), call.prompt.user)


def responder(body: Body) -> str:
    """The answer to a request to the server."""
    return _answer(body["response_format"]["json_schema"]["name"], str(body["messages"][-1]["content"]))


def _answer(schema: str, prompt: str) -> str:
    if schema == "Summary":  # repeat the reflections that it keeps
        return json.dumps(
            {"points": _remembered(re.findall(r"^# Reflection \d+\n- (.*)$", prompt, re.MULTILINE), prompt)}
        )
    insights = re.findall(r"^Insight (\d+)", prompt, re.MULTILINE)
    # An ADD without a text takes the insight's own words.
    changes = [
        {"op": "ADD", "insights": [int(number)], "ids": [], "section": "", "text": "", "reason": "no entry says this"}
        for number in _remembered(insights, prompt)
    ]
    return json.dumps({"changes": changes})


def _remembered(items: list[str], prompt: str) -> list[str]:
    kept = set(Random(prompt).sample(range(len(items)), min(-(-len(items) // 2), MAX_KEPT)))
    return [item for n, item in enumerate(items) if n in kept]


if __name__ == "__main__":
    main(responder=responder)
