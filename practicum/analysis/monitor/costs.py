"""What a run's calls took and cost, from its journal: seconds by component, tokens and US dollars by role and by task.

A component is a role in one of its parts (the reflector proposes, contrasts, extracts), known by the place of its
calls. Seconds are those of the calls, which overlap: their sum is more than the time that passed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import select

from practicum.analysis.monitor.attempts import Tried
from practicum.analysis.monitor.series import Column, Part, mean, spread
from practicum.core.types import Usage
from practicum.engine.loop import ENDED
from practicum.session.records import RUN
from practicum.session.result import usage_json
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import NOTE_ROLE

EVALUATION = "evaluate "
"""How places begin at which nothing is learned."""

PARTS = {"propose": "proposal", "contrast": "contrast", "summary": "summary", "score": "scoring"}
"""Segments of a place that say what is done there, whoever does it."""

ROLES = {"reflector": "reflection", "curator": "curation", "score": "scoring"}
"""What else these roles do; others do what they are called."""


class Call(NamedTuple):
    """One effect of the journal. An agent that works in turns has one for each, and one for its whole attempt."""

    place: str
    role: str
    ok: bool
    usage: Usage
    seconds: float

    @property
    def parent(self) -> str:
        """The place that asked."""
        return self.place.rpartition("/")[0]

    @property
    def evaluates(self) -> bool:
        return self.place.startswith(EVALUATION)

    @property
    def turn(self) -> bool:
        """Whether it is one turn of an attempt."""
        return self.role == "agent" and self.parent.rpartition("/")[2].startswith("turn ")


def read_calls(store: Store) -> list[Call]:
    """All effects of a run that cost something, in the order of their places."""
    t = schema.journal
    paid = (t.c.calls, t.c.input_tokens, t.c.cached_tokens, t.c.output_tokens, t.c.usd)
    query = select(t.c.place, t.c.role, t.c.ok, t.c.seconds, *paid).where(t.c.run_id == RUN, t.c.role != NOTE_ROLE)
    return [Call(r[0], r[1], bool(r[2]), Usage(*r[4:]), r[3]) for r in store.rows(query.order_by(t.c.place))]


def read_ends(store: Store) -> dict[int, float]:
    """When each step was first done, in seconds since 1970."""
    t = schema.journal
    noted = (t.c.run_id == RUN) & (t.c.role == NOTE_ROLE) & t.c.place.like(f"step %/{ENDED}")
    rows = store.rows(select(t.c.place, t.c.answer).where(noted))
    return {int(row.place.split("/")[0].removeprefix("step ")): float(row.answer) for row in rows}


def verdict_places(calls: Sequence[Call]) -> set[str]:
    """Every place under which a judge was asked for a verdict, not for a score."""
    found: set[str] = set()
    for call in calls:
        if call.role == "judge" and "score" not in call.place.split("/"):
            place = call.parent
            while place and place not in found:
                found.add(place)
                place = place.rpartition("/")[0]
    return found


@dataclass
class _Component:
    """What was done in one part of a run."""

    seconds: list[float] = field(default_factory=list)
    failures: int = 0

    def take(self, ok: bool, seconds: float) -> None:
        """A call that failed took a time that nobody kept."""
        if ok:
            self.seconds.append(seconds)
        else:
            self.failures += 1


def latency(calls: Sequence[Call], remembers: bool, tried: Tried, steps: Sequence[Mapping[str, Any]]) -> Part:
    """Seconds by component, of attempts and of steps. What `remembers` extracts memories where others reflect."""
    found: dict[tuple[bool, str], _Component] = defaultdict(_Component)
    for evaluates, name, ok, seconds in _timed(calls, remembers):
        found[evaluates, name].take(ok, seconds)
    total = sum(sum(component.seconds) for component in found.values())
    order = sorted(found.items(), key=lambda item: (item[0][0], -sum(item[1].seconds)))
    told = [_told(name, evaluates, component, total) for (evaluates, name), component in order]
    numbers: dict[str, Any] = {"components": told}
    by_attempt = _attempts(calls)
    lasted = [
        [s for r in rollouts for one in r.group if (s := by_attempt.get(one.place)) is not None]
        for _, rollouts in tried
    ]
    columns: dict[str, Column] = {}
    if every := [s for step in lasted for s in step]:
        numbers["attempt_seconds"] = spread(every)
        columns["attempt_seconds"] = [mean(step) for step in lasted]
    if timed := [step["seconds"] for step in steps if step["seconds"] is not None]:
        numbers["step_seconds"] = spread(timed)
        columns["step_seconds"] = [step["seconds"] for step in steps]
    return Part(numbers, columns)


def _told(name: str, evaluates: bool, component: _Component, total: float) -> dict[str, Any]:
    seconds = component.seconds
    lies = spread(seconds) if seconds else {"n": 0}
    return {
        "component": name,
        "stage": "evaluation" if evaluates else "learning",
        "calls": lies.pop("n") + component.failures,
        "failures": component.failures,
        "seconds": sum(seconds),
        **lies,
        "share": sum(seconds) / total if total else None,
    }


def _timed(calls: Sequence[Call], remembers: bool) -> Iterator[tuple[bool, str, bool, float]]:
    """Stage, component, whether it went well, and seconds. Of an attempt in turns the time between them is the tools'
    (and that of waiting for the model to be free)."""
    thought: dict[str, float] = defaultdict(float)
    for call in calls:
        if call.turn:
            thought[call.parent.rpartition("/")[0]] += call.seconds
    for call in calls:
        whole = call.role == "agent" and not call.usage.calls and call.parent in thought
        name = "tools" if whole else _component(call, remembers)
        seconds = max(call.seconds - thought[call.parent], 0.0) if whole else call.seconds
        yield call.evaluates, name, call.ok, seconds


def _component(call: Call, remembers: bool) -> str:
    parts = [PARTS[segment] for segment in call.place.split("/") if segment in PARTS]
    if parts and call.role != "agent":
        return parts[-1]
    if remembers and call.role == "reflector":
        return "extraction"
    return ROLES.get(call.role, call.role)


def _attempts(calls: Sequence[Call]) -> dict[str, float]:
    """Seconds of each attempt by its place, repairs included."""
    found: dict[str, float] = defaultdict(float)
    for call in calls:
        if call.role == "agent" and call.ok and not call.turn:
            found[call.parent] += call.seconds
    return found


def tokens(calls: Sequence[Call], tried: Tried, steps: Sequence[Mapping[str, Any]]) -> Part | None:
    """Tokens and, where prices are known, US dollars: in all, by role, and for a task that was learned from; what was
    evaluated apart. None where no model was asked."""
    paid = [call for call in calls if call.usage.calls]
    if not paid:
        return None
    learned = [call for call in paid if not call.evaluates]
    asked = [call for call in paid if call.evaluates]
    tasks = sum(len(rollouts) for _, rollouts in tried)
    numbers: dict[str, Any] = {"learning": _cost(learned, tasks)} if learned else {}
    if asked:
        numbers["evaluation"] = _cost(asked, len({tuple(call.place.split("/")[:2]) for call in asked}))
    return Part(numbers, _by_step(learned, tried, steps) if learned else {})


def _cost(calls: Sequence[Call], tasks: int) -> dict[str, Any]:
    by_role: dict[str, Usage] = {}
    for call in calls:
        by_role[call.role] = by_role.get(call.role, Usage()) + call.usage
    whole = sum(by_role.values(), Usage())
    roles = {role: _usage(usage, tasks) for role, usage in sorted(by_role.items(), key=lambda item: -item[1].tokens)}
    return {"tasks": tasks, **_usage(whole, tasks), "by_role": roles}


def _usage(usage: Usage, tasks: int) -> dict[str, Any]:
    """Usage with what follows from it; without a price where none is known."""
    told = {**usage_json(usage), "tokens": usage.tokens, "cached_share": usage.cached_share}
    if tasks:
        told |= {"tokens_per_task": usage.tokens / tasks}
    if usage.usd is None:
        return {name: value for name, value in told.items() if name != "usd"}
    return {**told, "usd_per_task": usage.usd / tasks} if tasks else told


def _by_step(calls: Sequence[Call], tried: Tried, steps: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """Tokens for each task of a step, in all and by role. A step that tried none has None, and what it used counts with
    the step before it that did."""
    sizes = {step: len(rollouts) for step, rollouts in tried if rollouts}
    owner = {rollout.place.split("/")[0]: step for step, rollouts in tried for rollout in rollouts}
    at = next(iter(sizes), 0)
    for (step, rollouts), data in zip(tried, steps, strict=True):
        at = step if rollouts else at
        # Without a barrier a step is what a group of lessons came to.
        owner |= {f"step {step}": at, f"group {data.get('sampled', {}).get('group')}": at}
    by_role: dict[str, Counter[int]] = defaultdict(Counter)
    for call in calls:
        done = owner.get(call.place.split("/")[0].removesuffix(" again"))
        if done is not None:
            by_role[call.role][done] += call.usage.tokens

    def column(found: Mapping[int, int]) -> Column:
        return [found.get(step, 0) / sizes[step] if step in sizes else None for step, _ in tried]

    total: Counter[int] = sum(by_role.values(), Counter[int]())
    return {"tokens": column(total), **{role: column(found) for role, found in by_role.items()}}
