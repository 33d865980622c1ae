"""The simulated world of the speed benches: tasks, and a model that plays all roles of the methods.

The agent fails a hard task at first, and solves it after it read a reflection. Each reflection has a rule with a new
case number, so that no rule is a duplicate, and the curator adds each rule. A failure is always the playbook's fault.
Answers are a function of the prompt, with one exception: an agent that is asked to reason does so at a different length
each time, and then solves a hard task about every second time.
`python bench/simulated_world.py` serves this world, with the server's options.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from practicum.core.types import Task
from practicum.testing import Body, fill, main, pseudo_words

SCRIPT = str(Path(__file__).resolve())
"""Path of this script, which `start_process` starts."""

LATENCIES: dict[str, Any] = {"latency": 0.2, "per_1k_prompt": 0.02, "per_output": 0.002}
"""Latencies of the simulated server (s), similar to the latencies of a hosted model."""

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
"""Parts of every task for a network of agents. No part needs another part."""

MAX_CHANGES = 48
"""Maximum number of insights of one call that the simulated curator adds."""

FIXED: Mapping[str, Mapping[str, Any]] = {
    "Attribution": {"attribution": "actionable_gap"}, "RootCause": {"tags": []}, "State": {"assessment": []},
    "Ability": {"alone": False}, "Verdict": {}, "Contrast": {}, "Memories": {}, "Answered": {}, "Critique": {},
    "Quality": {},
}  # fmt: skip
"""Schema → fixed values of the fields that matter here. The texts in the answers to these schemas do not matter."""


def words(seed: str, count: int) -> str:
    """Return distinct words of the vocabulary. The same seed gives the same words."""
    return " ".join(Random(seed).sample(TOPICS, count))


def padded(text: str, tokens: int) -> str:
    """Return the text, cut or padded to a number of tokens of four characters."""
    return text[: 4 * tokens].ljust(4 * tokens, ".")


INSTRUCTIONS = padded("You route the messages of customers to one of five teams. " + f"{words('told', 90)}. " * 3, 300)
"""300 tokens."""


def tasks(count: int, easy: int = 6) -> list[Task]:
    """Return distinct tasks of 100 tokens. `easy` of each ten are solved at once. The targets are teams of LABELS."""
    texts = (
        f"{'M' if n % 10 < easy else 'Hard m'}essage {n}: it is about {words(f'task {n}', 75)}" for n in range(count)
    )
    return [Task(f"t{n}", padded(text, 100), LABELS[n % len(LABELS)]) for n, text in enumerate(texts)]


def attempt(text: str, last: str, before: int = 0) -> str:
    """Return the simulated agent's answer. `text` is the whole prompt, `last` its last message, and `before` the number
    of earlier calls with this prompt."""
    reasons = "\nReasoning: <" in text
    seed = int(sha256(f"{text}{before if reasons else ''}".encode()).hexdigest()[:12], 16)
    message = re.match(r"(Hard m|M)essage (\d+):", last)
    if message is None:
        return pseudo_words(Random(seed))
    # A message of over 100 tokens has a reflection after the task.
    wrong = message[1] != "M" and len(last) <= 400 and not (reasons and seed % 2)
    team = LABELS[(int(message[2]) + wrong) % len(LABELS)]
    return f"Reasoning: {pseudo_words(Random(seed))}\nAnswer: {team}" if reasons else team


def respond(name: str, schema: dict[str, Any], text: str, last: str) -> str:
    """Return the answer of another role. It fits the schema, and only the fields that matter here have a meaning.
    `name` is the name of the schema, `text` the whole prompt, and `last` its last message."""
    seed = int(sha256(text.encode()).hexdigest()[:12], 16)
    answer = fill(schema, seed)
    match name:
        case _ if name in FIXED:
            answer |= FIXED[name]
        case "Reflection" | "CoverageGap":
            about = f"{words(str(seed), 11)} and names case {seed % 10**8}"
            text = f"If the message speaks of {about}, answer {LABELS[seed % len(LABELS)]}."
            answer["insights"] = [{"section": "strategies", "text": text}]
            if "tags" in answer:
                answer["tags"] = []
        case "Changes" | "Mutations":
            first = {**answer["changes"][0], "op": "ADD", "ids": [], "text": "", "section": ""}
            insights = re.findall(r"^Insight (\d+)", last, re.MULTILINE)[:MAX_CHANGES]
            answer["changes"] = [{**first, "insights": [int(number)]} for number in insights]
        case "Plan":
            answer["parts"] = [{"text": f"{part} of {words(f'{seed} {part}', 9)}", "needs": []} for part in PLACES]
    return json.dumps(answer)


@dataclass
class Responder:
    """Answers the server's requests, and counts the requests to the agent by their prompts."""

    calls: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: Body) -> str:
        messages = [str(message["content"]) for message in body["messages"]]
        text = "\n".join(messages)
        if "response_format" not in body:
            self.calls[text] += 1
            return attempt(text, messages[-1], self.calls[text] - 1)
        form = body["response_format"]["json_schema"]
        return respond(form["name"], form["schema"], text, messages[-1])


if __name__ == "__main__":
    main(responder=Responder())
