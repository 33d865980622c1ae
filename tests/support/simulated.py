"""A small world in which a learner can go wrong as real ones do, to see what each of RCL's primitives is good for.

Each task is about one kind of thing and mentions another. Each kind has one answer, and so one right rule: "If <kind>,
answer <answer>." The roles know what stands in their prompts and no more, and err by a chance that follows from the
task and the place:

- The agent follows the rule of its task's kind, save one time in four; where it sees none it guesses.
- The reflector knows the right answer, and has to find out to which of the two kinds it belongs. The reasoning of a run
  that succeeded tells it, and so does what the annotated run consulted or missed. Else it is right 3 times in 5; the
  rule it then writes for the other kind may take the place of a right one.
- The curator weighs a rule against the one it contradicts by how many diagnoses there were for each, as far as it can
  see: those in its prompt, and those that its own notes count. One among several is not enough.
- The notes, where there are some, count diagnoses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from helpers import number_of
from scripts import scripted

import practicum
from practicum import methods
from practicum.agents.chat import ChatAgent
from practicum.core.context import Context
from practicum.core.edits import Update
from practicum.core.types import Task
from practicum.core.views import render_full
from practicum.engine.loop import StepReport, sequential
from practicum.engine.run import Run
from practicum.engine.state import RunState, Seat
from practicum.models.scripted import Call
from practicum.retrieval.vectors import Vectors
from practicum.store.journal import Journal, JournalRow
from practicum.tasks.scoring.registry import load_scorer

KINDS = [f"{a}{b}ro" for a in "bdfgklmnprstvz" for b in "aeiou"]
ANSWERS = {kind: f"{kind[1]}{kind[0]}lyn" for kind in KINDS}
SLIP, ATTRIBUTED = 0.25, 0.6

Tally = Counter[tuple[str, str]]


def made_tasks(n: int, kinds: int, seed: int) -> list[Task]:
    """Tasks about the first so many kinds, each as often as the others."""
    rng, some = Random(seed), KINDS[:kinds]
    about = (some * (n // kinds + 1))[:n]
    return [Task(f"t{i}", f"Note {i} on {k}, beside {rng.choice(some)}.", ANSWERS[k]) for i, k in enumerate(about)]


def told(text: str) -> dict[str, tuple[str, str]]:
    """The rules of a prompt by kind, with their ids: plain or annotated, the newest of a kind."""
    found = re.findall(r'^(?:<entry id="|\[)(e\d+).*?[)>] ?If (\w+), answer (\w+)\.', text, re.MULTILINE)
    return {kind: (id, answer) for id, kind, answer in found}


def chance(about: str, call: Call) -> Random:
    """Of what the call is about, and of its place: not of how prompts are worded."""
    return Random(number_of(f"{about} {call.options.seed}"))


def agent(call: Call) -> dict[str, Any]:
    kind, other = re.findall(r"on (\w+), beside (\w+)", call.prompt.user)[0]
    rule, luck = told(call.prompt.head).get(kind), chance(call.prompt.user, call)
    if rule is not None and luck.random() > SLIP:
        return {"answer": rule[1], "reasoning": f"It is on {kind}.", "used": [rule[0]]}
    missing = "" if rule else f"what to do with {kind}"
    return {"answer": luck.choice([*ANSWERS.values()]), "reasoning": f"I see {other}.", "missing": missing}


def reflector(call: Call) -> dict[str, Any]:
    case = call.prompt.user
    both = re.search(r"on (\w+), beside (\w+)", case)
    right = re.search(r"The right answer is: (\w+)", case)
    assert both
    assert right
    contrast = re.search(r"which succeeded\n.*?Reasoning: It is on (\w+)", case, re.DOTALL)
    twin = re.search(r"# The agent's notes.*?(?:missing: what to do with|Reasoning: It is on) (\w+)", case, re.DOTALL)
    known = contrast or twin
    blamed = known[1] if known else both[1 if chance(both[0], call).random() < ATTRIBUTED else 2]
    return {"insight": f"If {blamed}, answer {right[1]}."}


def curator(call: Call) -> dict[str, Any]:
    read = re.findall(r"^(?:Lesson|Insight) (\d+)[^:]*: If (\w+), answer (\w+)\.", call.prompt.user, re.MULTILINE)
    now: Tally = Counter((kind, answer) for _, kind, answer in read)
    seen, rules = now + noted(call.prompt.user), told(call.text)
    decisions: dict[str, dict[str, Any]] = {}
    for number, kind, answer in sorted(read, key=lambda x: -seen[x[1], x[2]]):
        id, old = rules.get(kind, ("", ""))
        single = len(read) > 1 and seen[kind, answer] == 1
        if not old:
            decided: dict[str, Any] = {"op": "ADD"}
        elif old == answer or single or seen[kind, answer] <= seen[kind, old]:
            decided = {"op": "COVERED", "ids": [id]}
        else:
            decided = {"op": "UPDATE", "ids": [id], "text": f"If {kind}, answer {answer}."}
        decisions.setdefault(kind, {"lesson": int(number), **decided})
    return {"decisions": [*decisions.values()]}


def noted(text: str) -> Tally:
    """What the notes count."""
    found = re.findall(r"^- (\w+) (\w+): (\d+)$", text, re.MULTILINE)
    return Counter({(kind, answer): int(count) for kind, answer, count in found})


def state(call: Call) -> dict[str, Any]:
    new: Tally = Counter(re.findall(r"^(?:- |Insight: )If (\w+), answer (\w+)\.", call.prompt.user, re.MULTILINE))
    counted = sorted((noted(call.prompt.user) + new).items(), key=lambda x: x[1])
    return {"ledger": [f"{kind} {answer}: {count}" for (kind, answer), count in counted[-40:]]}


# ---- a run of it


class Paper:
    """Neither a journal nor an embedder that would do anything."""

    name, hits = "paper", 0

    def find(self, place: str, digest: str) -> None: ...

    def post(self, record: JournalRow) -> None: ...

    async def write(self, *records: JournalRow) -> None: ...

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.ones((len(texts), 1), dtype=np.float32)


@dataclass(frozen=True)
class Learner:
    """What came of a run."""

    tasks: list[Task]
    reports: list[StepReport]

    @property
    def misattributed(self) -> float:
        """Share of the rules that reflection came to that are wrong."""
        found = re.findall(r"If (\w+), answer (\w+)", str([x.text for r in self.reports for x in r.lessons]))
        return mean(ANSWERS[kind] != answer for kind, answer in found)

    @property
    def reversals(self) -> int:
        """Edits that give a rule words it had before."""
        past: set[tuple[str, str | None]] = set()
        found = 0
        for report in self.reports:
            found += sum((a.id, a.edit.text) in past for a in report.applied if isinstance(a.edit, Update))
            past |= {(entry.id, entry.text) for entry in report.context if not entry.hidden}
        return found

    @property
    def final(self) -> float:
        """Share of the tasks for which the last rules are right, luck aside."""
        return mean(map(self._solved, self.tasks))

    @property
    def mended(self) -> float:
        """The same share of the tasks that failed at some time."""
        failed = {r.task.id for report in self.reports for r in report.attempts if r.feedback.success is False}
        return mean(self._solved(task) for task in self.tasks if task.id in failed)

    def _solved(self, task: Task) -> bool:
        rules = told("\n".join(render_full(self.reports[-1].context).pages))
        return rules.get(task.input.split()[3].strip(","), ("", ""))[1] == task.target


def simulated(
    settings: Mapping[str, Any], *, n: int = 60, kinds: int = 10, seed: int = 0, steps: int | None = None
) -> Learner:
    """One run of ACE with these primitives."""
    tasks = made_tasks(n, kinds, seed)
    base = {"rounds": 0, "learn_from": "failures", "dedupe": "never", "uncovered": "drop", "harmful": 0}
    method = methods.build("ace", {**base, **settings})
    paper, model = Paper(), scripted(agent, reflector, curator, state)
    shared = RunState(
        cast(Journal, paper), {"agent": Seat(model)}, ChatAgent(reasoning=True),
        load_scorer("exact", None), Vectors(paper), seed=seed,
    )  # fmt: skip

    async def go() -> list[StepReport]:
        reports: list[StepReport] = []
        async for report in sequential(method, tasks, Context(), Run(shared)):
            reports.append(report)
            if report.step == steps:
                break
        return reports

    return Learner(tasks, practicum.run_sync(go()))
