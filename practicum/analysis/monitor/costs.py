"""Time and cost of a run's calls, read from the run's journal: seconds by component, tokens and US dollars by role and
task.

A component is one function of a role: the reflector, for example, proposes, contrasts or extracts. The component of a
call is derived from the place of the call. Seconds are the durations of calls. Calls overlap, so the sum of the
durations can exceed the elapsed time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from practicum.analysis.monitor.attempts import StepAttempts
from practicum.analysis.monitor.series import MetricGroup, Series, distribution, mean
from practicum.core.types import Usage
from practicum.engine.loop import ENDED
from practicum.session.result import usage_json
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import NOTE_ROLE
from practicum.view.read import StepStory

EVALUATION_PREFIX = "evaluate "
"""Prefix of the journal places of evaluations."""

COMPONENTS_BY_SEGMENT = {"propose": "proposal", "contrast": "contrast", "summary": "summary", "score": "scoring"}
"""Segment of a place → component, for any role except the agent."""

COMPONENTS_BY_ROLE = {"reflector": "reflection", "curator": "curation", "score": "scoring"}
"""Role → component, at places without a segment of `COMPONENTS_BY_SEGMENT`. Any other role is a component of the same
name."""


class JournalCall(NamedTuple):
    """One effect in the journal. For an attempt of an agent with turns, the journal has one effect per turn, and one
    more effect for the whole attempt."""

    place: str
    role: str
    ok: bool
    usage: Usage
    seconds: float

    @property
    def parent(self) -> str:
        """Place under which the call was made: the place of the call without its last segment."""
        return self.place.rpartition("/")[0]

    @property
    def stage(self) -> str:
        return "evaluation" if self.place.startswith(EVALUATION_PREFIX) else "learning"

    @property
    def is_turn(self) -> bool:
        """Whether the effect is one turn of an attempt."""
        return self.role == "agent" and self.parent.rpartition("/")[2].startswith("turn ")


def read_calls(store: Store) -> list[JournalCall]:
    """Return all effects of a run, sorted by place. Raises ValueError for a damaged row."""
    t = schema.journal
    usage = (t.c[name] for name in schema.USAGE)
    query = store.select(t.c.place, t.c.role, t.c.ok, t.c.seconds, *usage).where(t.c.role != NOTE_ROLE)
    rows = store.rows(query.order_by(t.c.place))
    if invalid := next((row for row in rows if not isinstance(row.role, str) or not isfinite(row.seconds)), None):
        raise ValueError(f"invalid call in the journal: role {invalid.role!r}, {invalid.seconds} s")
    return [JournalCall(r[0], r[1], bool(r[2]), Usage(*r[4:]), r[3]) for r in rows]


def read_step_ends(store: Store) -> dict[int, float]:
    """Return, for each step, the Unix time at which the step ended. If a resumed run repeats the step, the time stays
    the same."""
    t = schema.journal
    noted = (t.c.role == NOTE_ROLE) & t.c.place.like(f"step %/{ENDED}")
    rows = store.rows(store.select(t.c.place, t.c.answer).where(noted))
    return {int(row.place.split("/")[0].removeprefix("step ")): float(row.answer) for row in rows}


def verdict_places(calls: Sequence[JournalCall]) -> set[str]:
    """Return all places below which a judge was called for a verdict, not for a score."""
    places = [call.place.split("/") for call in calls if call.role == "judge"]
    return {"/".join(parts[:n]) for parts in places if "score" not in parts for n in range(1, len(parts))}


def latency(
    calls: Sequence[JournalCall], remembers: bool, steps: StepAttempts, records: Sequence[StepStory]
) -> MetricGroup:
    """Return the seconds of components, of attempts, and of steps.

    `remembers`: whether the reflector of the method extracts memories. A failed call is counted, but the duration of a
    failed call is left out."""
    numbers: dict[str, Any] = {"components": _component_numbers(calls, remembers)}
    series: dict[str, Series] = {}
    # The time of an attempt includes the calls that repaired an answer of the agent that did not fit the schema.
    by_attempt: dict[str, float] = defaultdict(float)
    for call in calls:
        if call.role == "agent" and call.ok and not call.is_turn:
            by_attempt[call.parent] += call.seconds
    by_step = [
        [by_attempt[attempt.place] for r in attempts for attempt in r.group if attempt.place in by_attempt]
        for _, attempts in steps
    ]
    if every := [seconds for step in by_step for seconds in step]:
        numbers["attempt_seconds"], series["attempt_seconds"] = distribution(every), [*map(mean, by_step)]
    step_seconds = [record.seconds for record in records]
    if timed := [seconds for seconds in step_seconds if seconds is not None]:
        numbers["step_seconds"], series["step_seconds"] = distribution(timed), step_seconds
    return MetricGroup(numbers, series)


def _component_numbers(calls: Sequence[JournalCall], remembers: bool) -> list[dict[str, Any]]:
    """Return the calls and seconds of each component: learning first, then evaluation, each sorted by seconds. In an
    attempt with turns, the time between the turns counts as time of the component `tools` (and includes waits for a
    free model)."""
    in_turns: dict[str, float] = defaultdict(float)
    for call in calls:
        if call.is_turn:
            in_turns[call.parent.rpartition("/")[0]] += call.seconds
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    failures = Counter[tuple[str, str]]()
    for call in calls:
        with_tools = call.role == "agent" and not call.usage.calls and call.parent in in_turns
        key = call.stage, "tools" if with_tools else _component(call, remembers)
        failures[key] += not call.ok
        seconds[key] += [max(call.seconds - in_turns[call.parent], 0.0) if with_tools else call.seconds] * call.ok
    total = sum(map(sum, seconds.values()))
    rows = []
    ordered = sorted(seconds.items(), key=lambda item: (item[0][0] == "evaluation", -sum(item[1])))
    for (stage, component), durations in ordered:
        failed, numbers = failures[stage, component], distribution(durations) if durations else {}
        row = {"component": component, "stage": stage, "calls": len(durations) + failed, "failures": failed}
        row |= {"seconds": sum(durations), **{name: value for name, value in numbers.items() if name != "n"}}
        rows.append({**row, "share": sum(durations) / total if total else None})
    return rows


def _component(call: JournalCall, remembers: bool) -> str:
    named = [COMPONENTS_BY_SEGMENT[part] for part in call.place.split("/") if part in COMPONENTS_BY_SEGMENT]
    if named and call.role != "agent":
        return named[-1]
    if remembers and call.role == "reflector":
        return "extraction"
    return COMPONENTS_BY_ROLE.get(call.role, call.role)


def tokens(calls: Sequence[JournalCall], steps: StepAttempts, records: Sequence[StepStory]) -> MetricGroup | None:
    """Return tokens and, if prices are available, US dollars: in total, by role and per task, for learning and for
    evaluation. None if no model was called."""
    stages: dict[str, list[JournalCall]] = {"learning": [], "evaluation": []}
    for call in calls:
        if call.usage.calls:
            stages[call.stage].append(call)
    tasks = {
        "learning": sum(len(attempts) for _, attempts in steps),
        "evaluation": len({tuple(call.place.split("/")[:2]) for call in stages["evaluation"]}),
    }
    numbers = {stage: _costs(paid, tasks[stage]) for stage, paid in stages.items() if paid}
    series = _tokens_by_step(stages["learning"], steps, records) if stages["learning"] else {}
    return MetricGroup(numbers, series) if numbers else None


def _costs(calls: Sequence[JournalCall], tasks: int) -> dict[str, Any]:
    by_role: dict[str, Usage] = {}
    for call in calls:
        by_role[call.role] = by_role.get(call.role, Usage()) + call.usage
    total = sum(by_role.values(), Usage())
    roles = {role: _usage(usage, tasks) for role, usage in sorted(by_role.items(), key=lambda item: -item[1].tokens)}
    return {"tasks": tasks, **_usage(total, tasks), "by_role": roles}


def _usage(usage: Usage, tasks: int) -> dict[str, Any]:
    """Return the numbers of a usage, and further numbers that are computed from this usage. US dollars are left out if
    a price is missing."""
    values = {**usage_json(usage), "tokens": usage.tokens, "cached_share": usage.cached_share}
    if tasks:
        values |= {"tokens_per_task": usage.tokens / tasks}
        values |= {"usd_per_task": usage.usd / tasks} if usage.usd is not None else {}
    return {name: value for name, value in values.items() if value is not None}


def _tokens_by_step(
    calls: Sequence[JournalCall], steps: StepAttempts, records: Sequence[StepStory]
) -> dict[str, Series]:
    """Return the tokens per task of each step, in total and by role. The value of a step without attempts is None, and
    the tokens of such a step count for the nearest earlier step with attempts."""
    tasks = {step: len(attempts) for step, attempts in steps if attempts}
    owner = {attempt.place.split("/")[0]: step for step, attempts in steps for attempt in attempts}
    at = next(iter(tasks), 0)
    for (step, attempts), record in zip(steps, records, strict=True):
        at = step if attempts else at
        # In the schedule without a barrier, each step makes its calls at the place of its group of lessons, `group N`.
        owner |= {f"step {step}": at, f"group {record.sampled.get('group')}": at}
    # The total is the first series, named "tokens".
    spent: dict[str, Counter[int]] = defaultdict(Counter, {"tokens": Counter()})
    for call in calls:
        owning_step = owner.get(call.place.split("/")[0].removesuffix(" again"))
        if owning_step is not None:
            spent["tokens"][owning_step] += call.usage.tokens
            spent[call.role][owning_step] += call.usage.tokens
    return {
        name: [count[step] / tasks[step] if step in tasks else None for step, _ in steps]
        for name, count in spent.items()
    }
