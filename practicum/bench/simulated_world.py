"""The simulated world of the speed benchmarks: tasks, and a model that plays all roles of the methods in it.

The agent is wrong at first where a task says that it is hard, and right once it has read a reflection. Each reflection
has a rule of its own, with a case number of its own, so that no two are taken for the same; the curator adds each one.
A failure is always the playbook's fault. All of it is a function of the prompt, but that an agent that is asked to
reason does so at another length each time, and then gets a hard task right about every second time.
`python -m practicum.bench.simulated_world` serves it; it takes the server's options.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from practicum.core.types import Task
from practicum.testing.fill import fill
from practicum.testing.server import Body, main

MODULE = "practicum.bench.simulated_world"
"""What `start_process` starts."""

LABELS = ("north", "south", "east", "west", "harbour")
VOCABULARY = """card transfer refund cash salary mortgage passport travel insurance fraud password phone branch letter
statement currency pension tax cheque child student business garden hotel airline taxi grocery fuel medicine hospital
school library theatre museum football bicycle bridge river mountain forest winter summer island village engine ladder
window kitchen carpet mirror candle bottle basket hammer thread needle copper silver marble granite cotton leather
paper pencil canvas violin trumpet drum piano opera novel poem lantern compass anchor sail rope barrel saddle wagon
orchard vineyard meadow glacier volcano desert canyon harvest bakery butcher tailor carpenter plumber surgeon
dentist lawyer judge soldier sailor pilot farmer miner weaver potter"""
TOPICS = VOCABULARY.split()

PLACES = ("the front", "the back", "the left", "the right", "the top")
"""The parts that every task has for a network of agents; none needs another."""

MOST_DECISIONS = 48
"""As many as a curator's schema allows."""


def words(seed: str, count: int) -> str:
    """Different words of the vocabulary, always the same for the same seed."""
    return " ".join(Random(seed).sample(TOPICS, count))


def filled(text: str, tokens: int) -> str:
    """The text brought to a number of tokens of four characters."""
    return text[: 4 * tokens].ljust(4 * tokens, ".")


INSTRUCTIONS = filled("You route the messages of customers to one of five teams. " + f"{words('told', 90)}. " * 3, 300)
"""300 tokens."""


def tasks(count: int, easy: int = 6) -> list[Task]:
    """Distinct tasks of 100 tokens, `easy` of each ten solved at once; the teams are told by the choices."""
    return [Task(f"t{n}", _message(n, n % 10 < easy), LABELS[n % len(LABELS)]) for n in range(count)]


def _message(number: int, easy: bool) -> str:
    return filled(f"{'M' if easy else 'Hard m'}essage {number}: it is about {words(f'task {number}', 75)}", 100)


def respond(name: str, schema: dict[str, Any], text: str, last: str, before: int = 0) -> str:
    """What the simulated models say; `name` is the schema's, `text` all that was sent, `last` the last message. It was
    asked that often `before`.

    A value made up for the schema, with what matters put right, so that other fields may come and go.
    """
    reasons = "reasoning" in schema.get("properties", ())
    seed = int(sha256(f"{text}{before if reasons else ''}".encode()).hexdigest()[:12], 16)
    made = fill(schema, seed)
    match name:
        case "Attribution":
            made["attribution"] = "actionable_gap"
        case "RootCause":
            made["tags"] = []
        case "State":
            made["assessment"] = []
        case "Reflection" | "Review" | "CoverageGap":
            about = f"{words(str(seed), 11)} and names case {seed % 10**8}"
            made["insight"] = f"If the message speaks of {about}, answer {LABELS[seed % len(LABELS)]}."
            if "tags" in made:
                made["tags"] = []
        case "Decisions" | "Mutations":
            first = {**made["decisions"][0], "op": "ADD", "ids": [], "text": ""}
            told = re.findall(r"^Lesson (\d+)", last, re.MULTILINE)[:MOST_DECISIONS]
            made["decisions"] = [{**first, "lesson": int(number)} for number in told]
        case "Ability":
            made["alone"] = False
        case "Plan":
            made["parts"] = [{"text": f"{part} of {words(f'{seed} {part}', 9)}", "needs": []} for part in PLACES]
        case "Verdict" | "Contrast" | "Memories" | "Answered" | "Critique" | "Quality":
            pass
        case _:
            number = int(last.split(":")[0].split()[-1])
            # The words after the task of a second try make it longer than 100 tokens.
            wrong = last.startswith("Hard") and len(last) <= 400 and not (reasons and seed % 2)
            made["used"], made["answer"] = [], LABELS[(number + wrong) % len(LABELS)]
            if "doubts" in made:
                made["doubts"] = []
    return json.dumps(made)


@dataclass
class Responder:
    """The same for a server."""

    asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: Body) -> str:
        said = [str(message["content"]) for message in body["messages"]]
        text, shape = "\n".join(said), body["response_format"]["json_schema"]
        self.asked[text] += 1
        return respond(shape["name"], shape["schema"], text, said[-1], self.asked[text] - 1)


if __name__ == "__main__":
    main(responder=Responder())
