"""What a run's attempts came to: success, learning curves, retrieval, agreement, the judge against the scorer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from practicum.analysis.monitor.series import Column, Part, mean, rates, spread, window_of
from practicum.blocks.act.scaling import number_of, place_of_all
from practicum.core.intervals import share_ci95
from practicum.core.types import Rollout

Tried = Sequence[tuple[int, Sequence[Rollout]]]
"""Steps in order, each with what it tried."""

ALL = "all"
"""The domain of tasks that name none."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What counts as success in a run: scores, where anything was scored; else verdicts."""

    by: str

    @classmethod
    def of(cls, tried: Tried) -> Marks:
        return cls("score" if any(r.score is not None for _, rollouts in tried for r in rollouts) else "verdict")

    def __call__(self, rollout: Rollout) -> bool | None:
        """Whether an attempt went well; None where nothing says so."""
        if self.by == "score":
            return None if rollout.score is None else rollout.score.correct
        return rollout.feedback.success

    def known(self, rollouts: Sequence[Rollout]) -> list[bool]:
        """The marks there are."""
        return [mark for rollout in rollouts if (mark := self(rollout)) is not None]


def made(tried: Tried) -> Tried:
    """The same without attempts that an earlier one stands for, which were not made."""
    return [(step, [rollout for rollout in rollouts if not rollout.of]) for step, rollouts in tried]


def success(tried: Tried, marks: Marks) -> Part:
    """How often attempts went well, over a window, and how many there were. Of several attempts at a task the one that
    reports count is counted, and one that stands for another as often as reports do."""
    by_step = [marks.known(rollouts) for _, rollouts in tried]
    known = [mark for step in by_step for mark in step]
    counted = [r for _, rollouts in tried for r in rollouts]
    numbers = {
        "by": marks.by,
        "attempts": len(counted),
        "tries": sum(len(r.group) for r in counted),
        "unknown": len(counted) - len(known),
        "errors": sum(_failed(r) for r in counted),
        "lost": sum(r.trace.lost for r in counted),
        "reused": sum(bool(r.of) for r in counted),
        "stopped": sum(r.score is not None and r.score.stopped for r in counted),
    }
    if not known:
        return Part(numbers)
    window = window_of(len(known))
    columns: dict[str, Column] = {
        **rates(by_step, window),
        "attempts": [len(rollouts) for _, rollouts in tried],
        "errors": [sum(map(_failed, rollouts)) for _, rollouts in tried],
    }
    ends = {"first": _rate(known[:window]), "last": _rate(known[-window:])}
    return Part({**numbers, **_rate(known), "window": window, **ends}, columns)


def learning(tried: Tried, marks: Marks) -> Part | None:
    """A learning curve for each domain: success over its attempts in order, over a window. None where nothing is known
    of any."""
    found: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for step, rollouts in tried:
        for rollout in rollouts:
            mark = marks(rollout)
            if mark is not None:
                found[str(rollout.task.meta.get("domain", ALL))].append((step, mark))
    domains = {}
    for name, seen in sorted(found.items()):
        window = window_of(len(seen))
        curve = rates([[mark] for _, mark in seen], window)
        columns = {"attempt": [*range(1, len(seen) + 1)], "step": [step for step, _ in seen], **curve}
        domains[name] = {**_rate([mark for _, mark in seen]), "attempts": len(seen), "window": window} | {
            "by_attempt": columns
        }
    return Part({"domains": domains}) if domains else None


def retrieval(tried: Tried, cites: bool) -> Part | None:
    """How similar what was looked up is to its task, on average and at best, and which share of it the agent says it
    relied on, if it can say. None where nothing was ever looked up."""
    similarity: list[float | None] = []
    best: list[float | None] = []
    used: list[float | None] = []
    for _, rollouts in tried:
        with_some = [r for r in rollouts if r.retrieved]
        similarity.append(mean([near for r in with_some for _, near in r.retrieved]))
        best.append(mean([max(near for _, near in r.retrieved) for r in with_some]))
        used.append(mean([id in r.trace.used for r in with_some if r.trace.error is None for id, _ in r.retrieved]))
    looked = [r for _, rollouts in tried for r in rollouts if r.retrieved]
    if not looked:
        return None
    shown = [(id in r.trace.used) for r in looked if r.trace.error is None for id, _ in r.retrieved]
    numbers = {
        "lookups": len(looked),
        "similarity": mean([near for r in looked for _, near in r.retrieved]),
        "best": mean([max(near for _, near in r.retrieved) for r in looked]),
    }
    if not cites or not shown:
        return Part(numbers, {"similarity": similarity, "best": best})
    return Part({**numbers, "relied_on": mean(shown)}, {"similarity": similarity, "best": best, "relied_on": used})


def contrast(tried: Tried) -> Part | None:
    """Where several attempts were made at a task: the share that came to what was chosen, who chose, and how many there
    were. None where none were."""
    chosen = [[r.choice for r in rollouts if r.choice.get("of", 1) > 1] for _, rollouts in tried]
    every = [choice for step in chosen for choice in step]
    if not every:
        return None
    agreement = [mean([choice["agreement"] for choice in step]) for step in chosen]
    by = Counter(str(choice["by"]) for choice in every)
    numbers = {
        "tasks": len(every),
        "tries": mean([choice["of"] for choice in every]),
        "agreement": mean([choice["agreement"] for choice in every]),
        "unanimous": mean([choice["agreement"] == 1 for choice in every]),
        "by": dict(by.most_common()),
    }
    return Part(numbers, {"agreement": agreement})


def actions(tried: Tried) -> Part | None:
    """Actions of an attempt of an agent that takes several steps; further attempts at a task are counted too."""

    def taken(rollouts: Sequence[Rollout]) -> list[int]:
        traces = [one.trace for rollout in rollouts for one in rollout.group if one.trace.steps]
        return [sum(step.kind == "action" for step in trace.steps) for trace in traces]

    by_step = [taken(rollouts) for _, rollouts in tried]
    every = [n for step in by_step for n in step]
    if not any(every):
        return None
    return Part(spread(every), {"actions": [mean(step) for step in by_step]})


@dataclass(frozen=True, slots=True)
class Judged:
    """An attempt with the verdict that a judge gave on it in the run."""

    rollout: Rollout
    verdict: bool


def judged(tried: Tried, places: Collection[str]) -> Iterator[Judged]:
    """The attempts that a judge gave a verdict on; of those that came to the same at one task, one. `places` are those
    under which a judge was asked for a verdict."""
    for _, rollouts in tried:
        for rollout in rollouts:
            if place_of_all(rollout) not in places:
                continue
            seen = {
                (one.trace.answer, said): Judged(one, said)
                for one, said in _verdicts(rollout)
                if said is not None and one.trace.error is None
            }
            yield from seen.values()


def scored(tried: Tried) -> list[Judged]:
    """All attempts that have a score, as verdicts of the judge that gave it."""
    group = (one for _, rollouts in tried for rollout in rollouts for one in rollout.group)
    return [Judged(one, one.score.correct) for one in group if one.score is not None and one.trace.error is None]


def _verdicts(rollout: Rollout) -> Iterator[tuple[Rollout, bool | None]]:
    """Each attempt at a task with what was said of it; a choice keeps that in the order they were made in."""
    said = rollout.choice.get("verdicts")
    if said is None:
        yield from ((one, one.feedback.success) for one in rollout.group)
        return
    yield from zip(sorted(rollout.group, key=number_of), said, strict=True)


def against_scorer(found: Sequence[Judged]) -> dict[str, object] | None:
    """How often the judge's verdict is the scorer's; None where nothing has both. `lenient` were called right and are
    wrong, `strict` the reverse."""
    both = [(one.verdict, one.rollout.score.correct) for one in found if one.rollout.score is not None]
    if not both:
        return None
    same = sum(said == is_so for said, is_so in both)
    lenient = sum(said and not is_so for said, is_so in both)
    return {"n": len(both), **_share(same, len(both)), "lenient": lenient, "strict": len(both) - same - lenient}


def _share(hits: int, n: int) -> dict[str, object]:
    return {"same": hits / n, "ci95": list(share_ci95(hits, n))}


def _rate(marks: Sequence[bool]) -> dict[str, object]:
    return {"rate": sum(marks) / len(marks), "ci95": list(share_ci95(sum(marks), len(marks)))}


def _failed(rollout: Rollout) -> bool:
    return rollout.trace.error is not None
