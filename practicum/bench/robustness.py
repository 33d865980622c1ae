"""`practicum bench robustness`: measures learning from a harmful or weak reflector, with and without the acceptance
gate (ACE, tables 16, 17).

The world is simulated, so a run takes seconds. Each task is about one kind of thing and mentions another kind. Each
kind has one right answer. Without a rule for the kind, the agent is right with probability 0.7 (the base, as on FiNER).
With rules for the kind, it follows the majority of these rules, the newest rule on ties, with probability 0.95. The
reflector writes the right rule, with two exceptions: a harmful reflector writes a rule with a wrong answer at every
X-th step, and a weak reflector writes the rule for the kind that the task only mentions, with probability `noise`. Each
lesson becomes an entry. There is neither a curator nor de-duplication nor pruning, so that only the effect of the gate
is measured.

All random choices are functions of the task's text and the seed. The score is the score of the last context, not of the
best context by validation. Learning, gate and test have different tasks. A simulation does not replace the paper's
numbers: `practicum bench paper ace17` measures unchanged ACE, with the user's tasks and models, and the same harmful
instruction in the reflector's prompt.
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
"""Numbers of tasks for learning, for the gate and for the test. A step learns from one task."""

_TASK = re.compile(r"Note (\d+) of \w+ \d+ on (\w+), beside (\w+)\.")
"""Matches the text of a task. Groups: the number of the task, the kind that the task is about, and the kind that the
task only mentions."""

SETTINGS = {
    "online": True, "batch": 1, "rounds": 0, "learn_from": "all", "lessons": "all", "curator": "append",
    "dedupe": "never", "harmful": 0,
}  # fmt: skip
"""Settings of ACE on a stream. Step n learns from task n."""


@dataclass(frozen=True, slots=True)
class ReflectorSetting:
    """Reflector that is harmful at every `every`-th step (None: never), and wrong with probability `noise` at other
    steps."""

    every: int | None = None
    noise: float = 0.0

    @property
    def name(self) -> str:
        if self.noise:
            return f"weak, wrong {self.noise:.0%}"
        return f"harmful every {self.every}" if self.every else "sound"


@dataclass(frozen=True, slots=True)
class RobustnessRow:
    """Results of one setting with or without the gate, with one value per seed: scores on the test tasks without a
    context (`base`) and with the last context (`scores`), deltas that the gate dropped, and model calls."""

    setting: ReflectorSetting
    gate: bool
    base: tuple[float, ...]
    scores: tuple[float, ...]
    dropped: tuple[int, ...]
    calls: tuple[int, ...]

    @property
    def gain(self) -> float:
        """Score minus base, averaged over the seeds."""
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
    """Make tasks about each kind in turn. Each task also mentions another kind. Tasks of other splits and seeds are
    different."""
    rng = Random(f"{split} {seed}")
    tasks = []
    for n in range(count):
        kind = KINDS[n % len(KINDS)]
        mentioned = rng.choice([other for other in KINDS if other != kind])
        tasks.append(Task(f"{split}{n}", f"Note {n} of {split} {seed} on {kind}, beside {mentioned}.", ANSWERS[kind]))
    return tasks


def agent_answer(text: str, context: str) -> str:
    """Return the agent's answer to a task with the rules of a context."""
    kind = _TASK.findall(text)[0][1]
    rules = re.findall(rf"If {kind}, answer (\w+)\.", context)
    if not rules:
        return ANSWERS[kind] if Random(f"alone {text}").random() < BASE else "unsure"
    counts = Counter(rules)
    most = max(counts.values())
    rule = next(answer for answer in reversed(rules) if counts[answer] == most)
    return rule if Random(f"told {text}").random() < FOLLOWED else "unsure"


def reflector_rule(text: str, noise: float, harmful: bool) -> str:
    """Return the reflector's lesson from an attempt at a task."""
    _, kind, mentioned = _TASK.findall(text)[0]
    luck = Random(f"reflector {text}")
    if harmful:
        return f"If {kind}, answer nay{luck.randrange(1000)}."
    return f"If {mentioned if luck.random() < noise else kind}, answer {ANSWERS[kind]}."


def score(tasks: Sequence[Task], context: Context) -> float:
    """Return the share of the tasks that the agent solves with the rules of a context."""
    text = "\n".join(render_full(context).pages)
    return mean(agent_answer(task.input, text) == task.target for task in tasks)


def robustness(
    settings: Sequence[ReflectorSetting], seeds: int, report: Callable[[RobustnessRow], None]
) -> list[RobustnessRow]:
    """Measure each setting with and without the gate. For each seed, all settings have the same tasks."""
    rows = []
    for setting in settings:
        for gate in (False, True):
            runs = [run_once(setting, gate, seed) for seed in range(seeds)]
            rows.append(RobustnessRow(setting, gate, *zip(*runs, strict=True)))
            report(rows[-1])
    return rows


def run_once(setting: ReflectorSetting, gate: bool, seed: int) -> tuple[float, float, int, int]:
    """Run one setting with one seed. Return the base, the score, the number of dropped deltas, and the number of model
    calls for learning."""
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
            # The validation tasks are only for the gate. The last context is measured, not the best by validation, so a
            # validation after the last step is enough.
            validate_every=LEARNING if gate else 1,
            seed=seed,
            profile="small",
            parts=practicum.Parts(clients={"agent": model}),
            watch=_ContextRecorder(contexts),
        )
        dropped = practicum.run_sync(run).errors.get(Count.GATED_DELTAS, 0)
    return score(test, Context()), score(test, contexts[-1]), dropped, len(model.calls)


def targets(rows: Sequence[RobustnessRow]) -> list[Target]:
    """Return the targets: with the gate, every run with harmful steps has at least the score without learning."""
    gain = "with the gate, smallest gain over the score without learning, "
    return [
        Target(name=gain + row.setting.name, value=min(row.gains), bound=0.0, at_least=True)
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
