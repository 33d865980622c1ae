"""More than one attempt at a task: which one stands, who chose it, and what the choice may not know."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from runs import indoors
from scripts import FORM, shape

from practicum.blocks.act.scaling import Scaling, in_parallel, in_sequence
from practicum.core.context import Context
from practicum.core.types import Rollout, Score, Task, Trace
from practicum.engine.run import Run, feedback
from practicum.models.scripted import Call

TASK = Task("t1", "Say the word.", "good")
LOST = Trace("", error="the line is dead", lost=True)
FAILED = Trace("", error="it fell over")


def answered(call: Call) -> str:
    """The answer that a judge is asked about."""
    return re.findall(r"# Answer\n(.*)", call.text)[-1]


@dataclass
class Attempts:
    """An `act` whose tries are given, and a model beside it; `asked` and `notes` are what happened."""

    traces: Sequence[Trace | str]
    judged: Callable[[str], Mapping[str, Any] | str | Exception] = lambda answer: {"right": answer == "good"}
    best: int | Exception = 1
    labels: bool = True
    values: Mapping[str, float] = field(default_factory=lambda: {"good": 1.0})
    asked: list[Call] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warmths: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = indoors(self._respond)
        self.run._state.labels = self.labels

    def _respond(self, call: Call) -> str | Exception:
        self.asked.append(call)
        said = self.judged(answered(call)) if call.role == "judge" else self.best
        if isinstance(said, Exception | str):
            return said
        return json.dumps({**FORM, **(said if isinstance(said, Mapping) else {"best": said, "why": "it is sound"})})

    async def act(self, task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        number = int(re.findall(r"(?:try|pass) (\d+)$", run.place)[-1])
        given = self.traces[number - 1 if "try" in run.place else number]
        trace = Trace(given) if isinstance(given, str) else given
        self.notes.append(note)
        self.warmths.append(run.warmth)
        value = self.values.get(trace.answer, 0.0)
        score = None if task.target is None else Score(value, value == 1.0)
        return Rollout(task, trace, score, feedback(task, trace, score, run._state.labels), run.place)

    def parallel(self, task: Task = TASK, **how: Any) -> Rollout:
        made = in_parallel(self.act, Scaling(len(self.traces), **{"blind": False, **how}))
        return asyncio.run(made(task, Context(), self.run))

    def sequence(self, task: Task = TASK, **how: Any) -> Rollout:
        made = in_sequence(self.act, Scaling(len(self.traces) - 1, **{"blind": False, **how}))
        return asyncio.run(made(task, Context(), self.run))

    def evaluating(self) -> Attempts:
        self.run = replace(self.run, teaches=False)
        return self

    @property
    def verdicts(self) -> list[str]:
        """The answers that a judge was asked about."""
        return [answered(call) for call in self.asked if call.role == "judge"]

    @property
    def contrasts(self) -> int:
        return sum(shape(call) == "Contrast" for call in self.asked)


def found_right(*answers: str) -> Callable[[str], Mapping[str, Any]]:
    return lambda answer: {"right": answer in answers, "reason": f"about {answer}"}


def number(rollout: Rollout) -> int:
    return int(rollout.place[-1])


# ---- parallel: who chooses


# ---- attempts that fail


traces = st.sampled_from(["good", "bad", "worse", LOST, FAILED])


@given(
    tries=st.lists(traces, min_size=2, max_size=5), right=st.sets(st.sampled_from(["good", "bad"])),
    best=st.integers(1, 5), labels=st.booleans(), blind=st.booleans(), teaches=st.booleans(),
    by=st.sampled_from(["judge", "agreement"]),
)  # fmt: skip
def test_no_attempt_is_lost_and_a_blind_choice_is_the_same_with_other_labels(
    tries: list[Trace | str], right: set[str], best: int, labels: bool, blind: bool, teaches: bool, by: str
) -> None:
    def chosen(task: Task) -> Rollout:
        made = Attempts(tries, found_right(*right), best, labels)
        return (made if teaches else made.evaluating()).parallel(task, blind=blind, by=by)

    one = chosen(TASK)
    assert sorted(map(number, one.group)) == list(range(1, len(tries) + 1))
    assert one.choice["of"] == len(tries)
    usable = [(r.trace.error is None, not r.trace.lost) for r in one.group]
    assert usable[0] == max(usable)
    if blind or not labels or not teaches:
        assert number(chosen(replace(TASK, target="bad"))) == number(one)


# ---- sequence
