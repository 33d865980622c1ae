"""`practicum bench robustness`: learning from a harmful or weak reflector, with the acceptance gate and without it
(ACE, tables 16, 17).

The world is simulated, so that a run takes seconds. Each task is about one kind of thing and mentions another; each
kind has one right answer. Without a rule for the kind, the agent is right with a chance of 0.7 (the base, as on FiNER).
With rules, it follows the majority of them, the newest on ties, with a chance of 0.95. The reflector writes the right
rule, except that it writes a wrong answer where it is told to do harm, at every X-th step, and a weak one writes its
rule for the kind that was only mentioned, with the chance `noise`. Each lesson becomes an entry: without a curator,
de-duplication and pruning, the gate alone is measured.

All chance follows from the task's text and the seed. The score is that of the last context, not of the best one by
validation; learning, gate and test have different tasks. A simulation does not replace the papers' numbers:
`practicum bench paper ace17` measures ACE as it is, with the user's tasks and models, and the reflector's model told to
do harm in the same way.
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

import practicum
from practicum import methods
from practicum.bench.harmful import HARMFUL, harmful
from practicum.bench.measure import Target
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Task
from practicum.core.views import render_full
from practicum.engine.loop import StepReport
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Progress, Watch
from practicum.testing import fill

KINDS = ("bado", "befu", "dimo", "dora", "fegu", "guna", "kelo", "lira")
ANSWERS = {kind: f"{kind[::-1]}lyn" for kind in KINDS}
BASE, FOLLOWED = 0.7, 0.95
LEARNING, GATE, TEST = 40, 48, 400
"""Numbers of tasks; a step is one task."""

_TASK = re.compile(r"Note (\d+) of \w+ \d+ on (\w+), beside (\w+)\.")
"""The text of a task: its number, its kind, and the kind it mentions."""

SETTINGS = {
    "online": True, "batch": 1, "rounds": 0, "learn_from": "all", "lessons": "all", "curator": "append",
    "dedupe": "never", "harmful": 0,
}  # fmt: skip
"""ACE on a stream, so that task n is step n."""


@dataclass(frozen=True, slots=True)
class ReflectorSetting:
    """A reflector that is harmful at every `every`-th step (never if None), else wrong with the chance `noise`."""

    every: int | None = None
    noise: float = 0.0

    @property
    def name(self) -> str:
        if self.noise:
            return f"weak, wrong {self.noise:.0%}"
        return f"harmful every {self.every}" if self.every else "sound"


@dataclass(frozen=True, slots=True)
class RobustnessRow:
    """One setting with the gate or without it. The tuples have a value a seed: the scores on the test tasks without a
    context (`base`) and with the last one, the deltas that the gate dropped, and the model calls."""

    setting: ReflectorSetting
    gate: bool
    base: tuple[float, ...]
    scores: tuple[float, ...]
    dropped: tuple[int, ...]
    calls: tuple[int, ...]

    @property
    def gain(self) -> float:
        """The score minus the base, averaged over the seeds."""
        return mean(self.gains)

    @property
    def gains(self) -> list[float]:
        return [score - base for score, base in zip(self.scores, self.base, strict=True)]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.setting.name, **asdict(self), "gain": self.gain}


@dataclass(frozen=True)
class _ContextRecorder(Watch):
    contexts: list[Context]

    def stepped(self, report: StepReport, progress: Progress) -> None:
        self.contexts.append(report.context)


def make_tasks(count: int, split: str, seed: int) -> list[Task]:
    """Tasks about each kind in turn, each mentioning another kind; different for each split and seed."""
    rng = Random(f"{split} {seed}")
    tasks = []
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        beside = rng.choice([other for other in KINDS if other != kind])
        tasks.append(Task(f"{split}{n}", f"Note {n} of {split} {seed} on {kind}, beside {beside}.", ANSWERS[kind]))
    return tasks


def agent_answer(text: str, context: str) -> str:
    """The agent's answer to a task, with the rules of this context."""
    kind = _TASK.findall(text)[0][1]
    rules = re.findall(rf"If {kind}, answer (\w+)\.", context)
    if not rules:
        return ANSWERS[kind] if Random(f"alone {text}").random() < BASE else "unsure"
    counts = Counter(rules)
    most = max(counts.values())
    rule = next(answer for answer in reversed(rules) if counts[answer] == most)
    return rule if Random(f"told {text}").random() < FOLLOWED else "unsure"


def reflector_rule(text: str, noise: float, harmful: bool) -> str:
    """The reflector's lesson from an attempt at a task."""
    _, kind, beside = _TASK.findall(text)[0]
    luck = Random(f"reflector {text}")
    if harmful:
        return f"If {kind}, answer nay{luck.randrange(1000)}."
    return f"If {beside if luck.random() < noise else kind}, answer {ANSWERS[kind]}."


def score(tasks: Sequence[Task], context: Context) -> float:
    """The share of the tasks that are solved with this context."""
    text = "\n".join(render_full(context).pages)
    return mean(agent_answer(task.input, text) == task.target for task in tasks)


def robustness(
    settings: Sequence[ReflectorSetting], seeds: int, report: Callable[[RobustnessRow], None]
) -> list[RobustnessRow]:
    """Measure each setting without the gate and with it, on the same tasks for each seed."""
    rows = []
    for setting in settings:
        for gate in (False, True):
            runs = [run_once(setting, gate, seed) for seed in range(seeds)]
            rows.append(RobustnessRow(setting, gate, *zip(*runs, strict=True)))
            report(rows[-1])
    return rows


def run_once(setting: ReflectorSetting, gate: bool, seed: int) -> tuple[float, float, int, int]:
    """One run: base, score, deltas dropped, model calls of learning."""
    test = make_tasks(TEST, "test", seed)
    model, contexts = ScriptedClient(partial(_respond, setting.noise)), [Context()]
    ace = methods.build("ace", methods.read_settings("ace", SETTINGS, "small"))
    with tempfile.TemporaryDirectory(prefix="practicum-robustness-") as folder:
        run = practicum.learn(
            make_tasks(LEARNING, "learning", seed),
            val=make_tasks(GATE, "gate", seed) if gate else (),
            out=Path(folder) / "run",
            method=harmful(ace, setting.every) if setting.every else ace,
            settings={"gate": True} if gate else {},
            # The last context is measured, so a run with the gate validates only once.
            validate_every=LEARNING if gate else 1,
            seed=seed,
            profile="small",
            parts=practicum.Parts(clients={"agent": model}),
            watch=_ContextRecorder(contexts),
        )
        dropped = practicum.run_sync(run).errors.get(Count.GATED_DELTAS, 0)
    return score(test, Context()), score(test, contexts[-1]), dropped, len(model.calls)


def targets(rows: Sequence[RobustnessRow]) -> list[Target]:
    """With the gate, no run with harmful steps ends below the base."""
    what = "least gain over the base with the gate, "
    return [
        Target(what=what + row.setting.name, value=min(row.gains), bound=0.0, at_least=True)
        for row in rows
        if row.gate and row.setting.every
    ]


def _respond(noise: float, call: Call) -> str:
    *_, task = _TASK.finditer(call.prompt.user)
    text = task.group()
    answer = agent_answer(text, call.prompt.head)
    if call.schema is None:
        return answer
    filled = fill(call.schema, 0)
    if call.role == "agent":
        return json.dumps({**filled, "answer": answer, "used": []})
    rule = reflector_rule(text, noise, HARMFUL in call.prompt.user)
    return json.dumps({**filled, "insight": rule, "tags": []})
