"""A simulated curator that is overloaded by many lessons: it keeps about every second one it reads in a call, and never
more than eight; of the others it says nothing (Combee, section 2.2).

Which ones it keeps looks like chance and is a function of the prompt. A level 2 that reads all that level 1 proposes is
one such call too, so the simulation is no judge of the paper's own way. `respond` answers in process, for a scripted
model; `python -m practicum.bench.overloaded_curator` serves the same and takes the server's options.
"""

from __future__ import annotations

import json
import re
from random import Random

from practicum.models.scripted import Call
from practicum.testing.server import Body, main

MODULE = "practicum.bench.overloaded_curator"
"""What `start_process` starts."""

HOLDS = 8
"""Lessons of one call that are kept at most."""


def curate(asked: str) -> str:
    """What the curator answers to its last message: it adds what it keeps, in the lessons' own words."""
    lessons = re.findall(r"^Lesson (\d+)", asked, re.MULTILINE)
    added = [
        {"lesson": int(number), "op": "ADD", "ids": [], "text": "", "reason": "no rule says this"}
        for number in _remembered(lessons, asked)
    ]
    return json.dumps({"decisions": added})


def summarize(asked: str) -> str:
    """What the curator answers when it is to sum lessons up: it repeats what it keeps of the numbered list."""
    lessons = re.findall(r"^\d+\. (.*)$", asked, re.MULTILINE)
    return json.dumps({"points": _remembered(lessons, asked)})


def _remembered(items: list[str], asked: str) -> list[str]:
    some = set(Random(asked).sample(range(len(items)), min(-(-len(items) // 2), HOLDS)))
    return [item for n, item in enumerate(items) if n in some]


def respond(call: Call) -> str:
    """The answer to a call of a scripted model."""
    return _answer((call.schema or {}).get("title", ""), call.prompt.user)


def responder(body: Body) -> str:
    """The same for a server."""
    return _answer(body["response_format"]["json_schema"]["name"], str(body["messages"][-1]["content"]))


def _answer(name: str, asked: str) -> str:
    return summarize(asked) if name == "Summary" else curate(asked)


if __name__ == "__main__":
    main(responder=responder)
