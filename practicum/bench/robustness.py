"""How learning holds up when its reflector errs or harms, with the acceptance gate and without it (ACE, tables 16, 17).

A simulated world, so that whole runs cost seconds. Each task is about one of a few kinds of things and mentions
another; each kind has one right answer. Without a rule for the kind the agent is right 7 times in 10 (the base, as on
FiNER); with one it does what most rules for the kind say, the newest on ties, 19 times in 20. The reflector writes the
right rule. A harmful one, at every X-th step, writes a wrong answer of its own; a weak one blames, as often as its
noise says, the thing that was only mentioned. Each lesson becomes an entry: no curator, no de-duplication and no
pruning by votes stands between them, so what is measured is the gate alone.

All chance follows from the task's text and the seed. The score is that of the last context, not of the best one by
validation, and the tasks of learning, gate and test are different ones. A simulation does not stand in for the papers'
numbers.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import numpy as np

import practicum
from practicum.bench.target import Target
from practicum.core.context import Context
from practicum.core.types import Task
from practicum.core.views import render_full
from practicum.engine.loop import StepReport
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.learn import Session
from practicum.session.result import Nobody
from practicum.testing.fill import fill

KINDS = ("bado", "befu", "dimo", "dora", "fegu", "guna", "kelo", "lira")
ANSWERS = {kind: f"{kind[::-1]}lyn" for kind in KINDS}
BASE, FOLLOWED = 0.7, 0.95
LEARNING, GATE, TEST = 40, 48, 400
"""Tasks of each sort; a step is one task."""

SETTINGS = {"online": True, "rounds": 0, "curator": "append", "dedupe": "never", "harmful": 0}
"""ACE on a stream, in which task n is step n."""


@dataclass(frozen=True, slots=True)
class ReflectorSetting:
    """A reflector that is harmful at every `every`-th step (never where None), else wrong with the chance `noise`."""

    every: int | None = None
    noise: float = 0.0

    @property
    def name(self) -> str:
        if self.noise:
            return f"weak, wrong {self.noise:.0%}"
        return f"harmful every {self.every}" if self.every else "sound"


@dataclass(frozen=True, slots=True)
class RobustnessRow:
    """One setting with the gate or without it: scores on the test tasks, one a seed, beside the base."""

    setting: ReflectorSetting
    gate: bool
    base: tuple[float, ...]
    scores: tuple[float, ...]
    dropped: tuple[int, ...]
    calls: tuple[int, ...]

    @property
    def gain(self) -> float:
        """Mean over seeds of the score above the base."""
        return mean(self.gains)

    @property
    def gains(self) -> list[float]:
        return [score - base for score, base in zip(self.scores, self.base, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.setting.name, **asdict(self), "gain": self.gain}


@dataclass(frozen=True)
class Looking(Nobody):
    """Keeps the context of the last step."""

    seen: list[Context]

    def stepped(self, session: Session, report: StepReport) -> None:
        self.seen.append(report.context)


class Flat:
    """An embedder for runs that compare no texts."""

    name = "flat"

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), 1), dtype=np.float32)


def made_tasks(count: int, sort: str, seed: int) -> list[Task]:
    """Tasks about every kind in turn, each beside another kind; different for each sort and seed."""
    rng = Random(f"{sort} {seed}")
    made = []
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        beside = rng.choice([other for other in KINDS if other != kind])
        made.append(Task(f"{sort}{n}", f"Note {n} of {sort} {seed} on {kind}, beside {beside}.", ANSWERS[kind]))
    return made


def answered(text: str, shown: str) -> str:
    """What the agent answers to a task with these rules before it."""
    kind = _read(text)[1]
    told = re.findall(rf"If {kind}, answer (\w+)\.", shown)
    if not told:
        return ANSWERS[kind] if Random(f"alone {text}").random() < BASE else "unsure"
    counts = Counter(told)
    most = max(counts.values())
    rule = next(answer for answer in reversed(told) if counts[answer] == most)
    return rule if Random(f"told {text}").random() < FOLLOWED else "unsure"


def reflected(text: str, setting: ReflectorSetting) -> str:
    """The lesson of an attempt at a task."""
    number, kind, beside = _read(text)
    luck = Random(f"reflector {text}")
    if setting.every and (number + 1) % setting.every == 0:
        return f"If {kind}, answer nay{luck.randrange(1000)}."
    return f"If {beside if luck.random() < setting.noise else kind}, answer {ANSWERS[kind]}."


def score(tasks: Sequence[Task], context: Context) -> float:
    """Share of the tasks that are solved with this context."""
    shown = "\n".join(render_full(context).pages)
    return mean(answered(task.input, shown) == task.target for task in tasks)


def robustness(
    settings: Sequence[ReflectorSetting], seeds: int, tell: Callable[[RobustnessRow], None]
) -> list[RobustnessRow]:
    """Each setting without the gate and with it, on the same tasks for each seed."""
    rows = []
    for setting in settings:
        for gate in (False, True):
            found = [one(setting, gate, seed) for seed in range(seeds)]
            rows.append(RobustnessRow(setting, gate, *zip(*found, strict=True)))
            tell(rows[-1])
    return rows


def one(setting: ReflectorSetting, gate: bool, seed: int) -> tuple[float, float, int, int]:
    """One run: base, score, deltas dropped, model calls of learning."""
    test = made_tasks(TEST, "test", seed)
    model, seen = ScriptedClient(partial(_respond, setting)), [Context()]
    with tempfile.TemporaryDirectory(prefix="practicum-robustness-") as folder:
        run = practicum.learn(
            made_tasks(LEARNING, "learning", seed),
            val=made_tasks(GATE, "gate", seed) if gate else (),
            out=Path(folder) / "run",
            method="ace",
            settings=SETTINGS | ({"gate": True} if gate else {}),
            # The best context by validation is not what is looked for here.
            validate_every=LEARNING if gate else 1,
            seed=seed,
            parts=practicum.Parts(clients={"agent": model}, embedder=Flat()),
            watch=Looking(seen),
        )
        dropped = practicum.run_sync(run).errors.get("deltas dropped by the gate", 0)
    return score(test, Context()), score(test, seen[-1]), dropped, len(model.calls)


def targets(rows: Sequence[RobustnessRow]) -> list[Target]:
    """With the gate no run ends below the base, harmful steps or not."""
    name = "least gain over the base with the gate, {}"
    return [
        Target(what=name.format(row.setting.name), value=min(row.gains), bound=0.0, at_least=True)
        for row in rows
        if row.gate and row.setting.every
    ]


def _respond(setting: ReflectorSetting, call: Call) -> str:
    text = re.findall(_TASK, call.prompt.user)[-1]
    said = answered(text, call.prompt.head)
    if call.schema is None:
        return said
    made = fill(call.schema, 0)
    if call.role == "agent":
        return json.dumps({**made, "answer": said, "used": []})
    return json.dumps({**made, "insight": reflected(text, setting), "tags": []})


def _read(text: str) -> tuple[int, str, str]:
    """Number of a task, its kind, and what it mentions."""
    found = re.match(r"Note (\d+) of \w+ \d+ on (\w+), beside (\w+)\.", text)
    if found is None:
        raise ValueError(f"no task of this world: {text!r}")
    return int(found[1]), found[2], found[3]


_TASK = r"Note \d+ of \w+ \d+ on \w+, beside \w+\."
