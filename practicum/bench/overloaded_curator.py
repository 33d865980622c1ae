"""A simulated curator that many lessons overload: it keeps about half of the lessons of a call, at most eight, and
ignores the others (Combee, section 2.2).

The choice of kept lessons looks random but is a function of the prompt. In the paper's form, Combee joins the proposals
of level 1 in a call of level 2. The call of level 2 is overloaded too, so the simulation cannot evaluate the paper's
join. `respond` answers calls of a scripted model in this process; `python -m practicum.bench.overloaded_curator` starts
a server with the same answers."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from practicum.models.scripted import Call
from practicum.testing import Body, main

MODULE = "practicum.bench.overloaded_curator"
"""Module that `start_process` starts."""

LATENCIES: dict[str, Any] = {"latency": 0.2, "per_1k_prompt": 0.02, "per_output": 0.002}
"""Latency (s) of a call of the simulated server: per call, per 1,000 prompt tokens and per output token, similar to a
hosted model."""

MAX_KEPT = 8
"""Maximum number of lessons that a call keeps."""


def respond(call: Call) -> str:
    """Answer a call of a scripted model."""
    return _answer((call.schema or {}).get("title", ""), call.prompt.user)


def responder(body: Body) -> str:
    """Answer a request to the server."""
    return _answer(body["response_format"]["json_schema"]["name"], str(body["messages"][-1]["content"]))


def _answer(schema: str, prompt: str) -> str:
    if schema == "Summary":  # repeat the kept reflections
        return json.dumps(
            {"points": _remembered(re.findall(r"^# Reflection \d+\n- (.*)$", prompt, re.MULTILINE), prompt)}
        )
    insights = re.findall(r"^Insight (\d+)", prompt, re.MULTILINE)
    # An ADD without a text uses the text of the insight.
    changes = [
        {"op": "ADD", "insights": [int(number)], "ids": [], "section": "", "text": "", "reason": "no entry says this"}
        for number in _remembered(insights, prompt)
    ]
    return json.dumps({"changes": changes})


def _remembered(items: list[str], prompt: str) -> list[str]:
    remembered = set(Random(prompt).sample(range(len(items)), min(-(-len(items) // 2), MAX_KEPT)))
    return [item for n, item in enumerate(items) if n in remembered]


if __name__ == "__main__":
    main(responder=responder)
