"""What failures are good for, in a small world whose roles know what stands in their prompts and no more: on fixed
seeds, with a margin, through the real methods.

Each task is about one kind of thing. A kind has four possible answers, of which one is right:

- Of a plain kind the agent guesses. An attempt that went well shows what to answer.
- A tricky kind has a trap, which the agent takes seven times in ten. An attempt that went well was lucky, and shows
  nothing; one that failed shows the trap, and beside it the right answer is found four times in five.

No target is used in learning: a judge, wrong one time in ten, says what went well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
from helpers import client, number_of
from runs import Words
from scripts import FORM, shape

import practicum
from practicum.core.context import Context
from practicum.core.edits import Delete, Delta
from practicum.core.types import Task
from practicum.models.scripted import Call

pytestmark = pytest.mark.slow

PLAIN = [f"{a}aro" for a in "bdfg"]
TRICKY = [f"{a}ilo" for a in "mnpr"]
TRAPPED, FOUND, SLIP, MISJUDGED = 0.7, 0.8, 0.1, 0.1


def answers(kind: str) -> list[str]:
    """The right one, the trap of a tricky kind, and two others."""
    return [f"{kind}-{end}" for end in ("lyn", "dor", "wex", "mun")]


def made_tasks(n: int, start: int = 0) -> list[Task]:
    """Tasks about every kind, each as often as the others; their numbers are all that tells them apart."""
    kinds = [*PLAIN, *TRICKY]
    about = [(i, kinds[i % len(kinds)]) for i in range(start, start + n)]
    return [Task(f"t{i}", f"Note {i} on {kind}", answers(kind)[0]) for i, kind in about]


def kind_of(call: Call) -> str:
    return re.findall(r"Note \d+ on (\w+)", call.text)[-1]


def agent(call: Call) -> str:
    kind, head, luck = kind_of(call), call.prompt.head, Random(number_of(f"{call.prompt.user} {call.options.seed}"))
    known = re.findall(rf"Successful approach:.* on {kind} answer ([\w-]+)", head)
    avoided = set(re.findall(rf"Failed approach \(avoid\):.* on {kind} do not answer ([\w-]+)", head))
    right, trap, *others = answers(kind)
    if known and luck.random() > SLIP:
        return known[-1]
    if kind in TRICKY and trap in avoided:
        return right if luck.random() < FOUND else luck.choice(others)
    if kind in TRICKY:
        return trap if luck.random() < TRAPPED else luck.choice([right, *others])
    return luck.choice([a for a in (right, trap, *others) if a not in avoided] or [right])


def judge(call: Call) -> dict[str, Any]:
    said = re.findall(r"# Answer\n(.*)", call.text)[-1]
    wrong = Random(number_of(call.text)).random() < MISJUDGED
    return {"right": (said == answers(kind_of(call))[0]) is not wrong}


def extractor(call: Call) -> dict[str, Any]:
    kind, answer = kind_of(call), re.findall(r"^Answer: (.*)$", call.prompt.user, re.MULTILINE)[-1]
    if "which went well" in call.prompt.user:
        content = f"on {kind} answer {answer}" if kind in PLAIN else "take your time"
    else:
        content = f"on {kind} do not answer {answer}"
    return {"items": [{"title": kind, "description": f"a note on {kind}", "content": content}]}


def successes_alone(call: Call) -> dict[str, Any]:
    """The ablation: nothing is learned from an attempt that failed."""
    return extractor(call) if "which went well" in call.prompt.user else {}


def world(extract: Callable[[Call], dict[str, Any]]) -> practicum.Parts:
    def respond(call: Call) -> str:
        match shape(call):
            case "Verdict":
                said = judge(call)
            case "Memories":
                said = extract(call)
            case "Contrast" | "Bullets":
                said = {}
            case "":
                return agent(call)
            case _:
                said = {"answer": agent(call)}
        return json.dumps({**FORM, **said})

    return practicum.Parts(clients={"agent": client(respond)}, embedder=Words())


@dataclass(frozen=True)
class World:
    """One learner of this world: what it learned in the end."""

    method: str
    seed: int
    folder: Path

    def learned(self, extract: Callable[[Call], dict[str, Any]] = extractor) -> Context:
        work = practicum.learn(
            made_tasks(16), out=self.folder / f"{self.method}-{self.seed}-{extract.__name__}", method=self.method,
            settings={"k": 2}, labels=False, seed=self.seed, parts=world(extract),
        )  # fmt: skip
        return practicum.run_sync(work).context

    def score(self, context: Context) -> float:
        """On tasks that were never seen."""
        work = practicum.evaluate(
            made_tasks(32, 100), context, method=self.method, settings={"scaling": "none"}, seed=self.seed,
            parts=world(extractor),
        )  # fmt: skip
        return practicum.run_sync(work).score


def without_failures(context: Context) -> Context:
    gone = [entry.id for entry in context if entry.data.get("outcome") == "failure"]
    assert gone
    return context.apply(Delta(tuple(Delete(id) for id in gone))).context


@pytest.mark.parametrize("method", ["reasoning_bank", pytest.param("unified", marks=pytest.mark.slow)])
def test_learning_from_failures_helps_and_deleting_their_memories_hurts(method: str, tmp_path: Path) -> None:
    worlds = [World(method, seed, tmp_path) for seed in range(3)]
    banks = [one.learned() for one in worlds]

    def scores(contexts: list[Context]) -> float:
        return mean(one.score(context) for one, context in zip(worlds, contexts, strict=True))

    nothing, whole = scores([Context()] * 3), scores(banks)
    deleted = scores([without_failures(bank) for bank in banks])
    never = scores([one.learned(successes_alone) for one in worlds])
    assert nothing < 0.3
    assert never > nothing + 0.1
    assert whole > never + 0.2
    assert deleted < whole - 0.2
