"""Speed and false alarms of two tests of the learning service (see `session.sequential`): the test that takes back a
worse canary version, and the test that detects a fall of the scores of a stream.

The scores are simulated; the tests are the tests of the service. A rollout of a canary ends after a number of scored
requests of the canary, a stream after a number of values. A score is 0 or 1, with its mean as the probability of 1. A
graded score has a beta distribution with that mean. The seed and the number of the case determine all random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf
from typing import Any

import numpy as np
from measure import Target, arguments, load_average, print_end, print_table

from practicum.core.intervals import share_ci95
from practicum.session.sequential import CanaryTest, Drift

ALPHA = 0.05
"""Bound of each share of false alarms."""

WORSE, WORSE_THERE, BETTER, ALARM = "worse", "worse in its kind", "better", "alarm"
"""Events of rollouts and streams."""

KINDS = 8
SEVERAL, NEVER = 1_000, 2_000
"""Number of values of a stream, and of scored requests of a canary, that should pass without a false alarm."""


@dataclass(frozen=True, kw_only=True)
class CanaryCase:
    """A canary that gets a share of the requests.

    `live` and `canary` are the mean scores of each kind; all kinds are equally frequent. With `strata`, the test has a
    stratum for each kind. The test must decide within `within` scores of the canary. `bound` is the target for the
    median number of these scores or, if the versions are equal, for the share of false alarms.
    """

    live: Sequence[float]
    canary: Sequence[float]
    share: float = 0.5
    strata: bool = False
    graded: bool = False
    within: int = NEVER
    bound: float = ALPHA

    @property
    def name(self) -> str:
        fallen = [(old, new) for old, new in zip(self.live, self.canary, strict=True) if old != new]
        old, new = fallen[0] if fallen else (self.live[0], self.canary[0])
        scores = f"{'graded ' if self.graded else ''}{old} to {new}" if fallen else f"{old}, equal"
        kinds = f" in one kind of {KINDS}" if 0 < len(fallen) < len(self.live) else ""
        return f"{scores}{kinds}, share {self.share:g}{f', {KINDS} strata' if self.strata else ''}"

    @property
    def equal(self) -> bool:
        return self.live == self.canary

    @property
    def events(self) -> tuple[str, ...]:
        if self.equal:
            return WORSE, BETTER
        if len(set(self.canary)) > 1:
            return WORSE, WORSE_THERE
        return (WORSE,) if self.canary[0] < self.live[0] else (BETTER,)

    def simulate(self, rng: np.random.Generator) -> dict[str, tuple[int, int]]:
        """Simulate a rollout. Returns, for each event that happens, the number of scored requests until it: of the
        canary, and of both arms."""
        test, until = CanaryTest(KINDS if self.strata else 0), dict[str, tuple[int, int]]()
        events, count = self.events, int(2 * self.within / self.share)
        arms, kinds = rng.random(count) < self.share, rng.integers(len(self.live), size=count)
        means = np.where(arms, np.array(self.canary)[kinds], np.array(self.live)[kinds])
        requests = zip(arms.tolist(), draw(means, self.graded, rng), kinds.tolist(), strict=True)
        for total, (canary, score, kind) in enumerate(requests, 1):
            test.take(canary, score, kind if self.strata else None)
            worse, scores = test.worse, test.all.canary.count
            now = {WORSE: worse is not None, WORSE_THERE: worse == 0, BETTER: test.better}
            for event in events:
                if now[event] and event not in until:
                    until[event] = scores, total
            if len(until) == len(events) or scores == self.within:
                break
        return until


@dataclass(frozen=True, kw_only=True)
class DriftCase:
    """A stream whose mean falls from `old` to `new`, `steady` values after the first reference window. The test must
    detect the fall within the next `within` values."""

    old: float
    new: float
    steady: int = 0
    graded: bool = False
    within: int = SEVERAL
    bound: float = ALPHA

    @property
    def name(self) -> str:
        scores = f"{'graded ' if self.graded else ''}{self.old}"
        if self.new == self.old:
            return f"{scores}, steady"
        return f"{scores} to {self.new} after {Drift().reference + self.steady}"

    @property
    def equal(self) -> bool:
        return self.old == self.new

    @property
    def events(self) -> tuple[str, ...]:
        return (ALARM,)

    def simulate(self, rng: np.random.Generator) -> dict[str, tuple[int, int]]:
        """Simulate a stream. Returns the number of values between the fall and the alarm, if an alarm is raised. A
        stream with an alarm before the fall is drawn again."""
        while True:
            drift = Drift()
            before = drift.reference + self.steady
            means = np.repeat([self.old, self.new], [before, self.within])
            alarms = (n for n, value in enumerate(draw(means, self.graded, rng), 1) if drift.take(value))
            alarm = next(alarms, None)
            if alarm is None or alarm > before:
                return {} if alarm is None else {ALARM: (alarm - before, alarm - before)}


@dataclass(frozen=True, kw_only=True)
class CanaryRow:
    """An event in the rollouts of a case. `scored` has the number of scored requests of the canary, or of values of the
    stream, until the event in each rollout. `total` has the number in both arms. inf: the event did not happen."""

    event: str
    case: CanaryCase | DriftCase
    scored: tuple[float, ...]
    total: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.event}: {self.case.name}"

    @property
    def share(self) -> float:
        """Share of the rollouts in which the event happened."""
        return sum(one < inf for one in self.scored) / len(self.scored)

    @property
    def ci95(self) -> tuple[float, float]:
        return share_ci95(sum(one < inf for one in self.scored), len(self.scored))

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "event": self.event, "case": asdict(self.case), "rollouts": len(self.scored),
            "median": quantile(self.scored, 0.5), "p90": quantile(self.scored, 0.9),
            "total_median": quantile(self.total, 0.5), "total_p90": quantile(self.total, 0.9),
            "share": self.share, "ci95": self.ci95,
        }  # fmt: skip


def _canaries() -> Iterator[CanaryCase]:
    for share in (0.1, 0.2, 0.5):
        for old, new in ((0.8, 0.5), (0.6, 0.3)):
            yield CanaryCase(live=[old], canary=[new], share=share, within=300, bound=60)
        yield CanaryCase(live=[0.8], canary=[0.7], share=share, within=600, bound=600)
    yield CanaryCase(live=[0.8] * KINDS, canary=[0.5] * KINDS, share=0.1, strata=True, within=300, bound=60)
    for share in (0.1, 0.5):
        one = [0.3] + [0.8] * (KINDS - 1)
        yield CanaryCase(live=[0.8] * KINDS, canary=one, share=share, strata=True, within=1_000, bound=1_000)
    yield CanaryCase(live=[0.7], canary=[0.8], share=0.1, within=600, bound=600)
    for equal in (0.5, 0.8, 0.95):
        yield CanaryCase(live=[equal] * KINDS, canary=[equal] * KINDS, strata=True)
    yield CanaryCase(live=[0.7] * KINDS, canary=[0.7] * KINDS, strata=True, graded=True)
    yield CanaryCase(live=[0.8], canary=[0.8])
    yield CanaryCase(live=[0.8], canary=[0.8], share=0.1)


def _drifts() -> Iterator[DriftCase]:
    for steady in (0, 800, 2_800):
        for old, slight, steep in ((0.8, 0.7, 0.5), (0.6, 0.5, 0.3)):
            yield DriftCase(old=old, new=steep, steady=steady, within=60, bound=60)
            yield DriftCase(old=old, new=slight, steady=steady, within=600, bound=600)
    for mean in (0.5, 0.6, 0.8, 0.95):
        yield DriftCase(old=mean, new=mean)
    yield DriftCase(old=0.7, new=0.7, graded=True)


def canary(rollouts: int, seed: int, report: Callable[[CanaryRow], None] = lambda row: None) -> list[CanaryRow]:
    """Measure all cases, each with this number of rollouts."""
    rows = list[CanaryRow]()
    cases: list[CanaryCase | DriftCase] = [*_canaries(), *_drifts()]
    for number, case in enumerate(cases):
        rng = np.random.default_rng((seed, number))
        for row in case_rows(case, rollouts, rng):
            rows.append(row)
            report(row)
    return rows


def case_rows(case: CanaryCase | DriftCase, rollouts: int, rng: np.random.Generator) -> list[CanaryRow]:
    """Simulate rollouts of a case, and return a row for each of its events."""
    outcomes = [case.simulate(rng) for _ in range(rollouts)]
    rows = []
    for event in case.events:
        scored, total = zip(*(one.get(event, (inf, inf)) for one in outcomes), strict=True)
        rows.append(CanaryRow(event=event, case=case, scored=scored, total=total))
    return rows


def targets(rows: Sequence[CanaryRow]) -> list[Target]:
    """Return the targets of these rows: the share of false alarms, or the median number of scores until the event."""
    result = []
    for row in rows:
        if row.case.equal:
            low, high = row.ci95
            note, measure, value = f"95% interval {low:.1%} to {high:.1%}", "share of ", row.share
        else:
            note, measure, value = "", "median of ", quantile(row.scored, 0.5) or inf
        result.append(Target(name=measure + row.name, value=value, bound=row.case.bound, note=note))
    return result


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value that this share of the values does not exceed. None: the event happened in fewer rollouts."""
    value = sorted(values)[ceil(share * len(values)) - 1]
    return value if value < inf else None


def draw(means: np.ndarray, graded: bool, rng: np.random.Generator) -> list[float]:
    """Draw a score for each mean."""
    scores = rng.beta(4 * means, 4 * (1 - means)) if graded else (rng.random(len(means)) < means) * 1.0
    drawn: list[float] = scores.tolist()
    return drawn


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--rollouts", type=int, default=400, help="rollouts of each canary, streams of each drift (400)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (0)")
    options, load = parser.parse_args(), load_average()
    rows = canary(options.rollouts, options.seed, lambda row: print(f"{row.name}: {row.share:.1%}"))
    lines = []
    for row in rows:
        times = [quantile(scores, share) for scores in (row.scored, row.total) for share in (0.5, 0.9)]
        share = f"{100 * row.share:.1f} ({100 * row.ci95[0]:.0f}\u2013{100 * row.ci95[1]:.0f})"
        cells = (None if value is None else f"{value:.0f}" for value in times)
        lines.append((row.name, row.case.within, *cells, share))
    columns = ("event: mean scores", "within", "median", "90%", "in all: median", "90%", "% of rollouts")
    print_table(columns, lines)
    print(
        "median, 90%: scored requests of the canary (or values of the stream) until the event; in all: scored\n"
        "requests of both versions; % of rollouts: share in which the event happened, with its 95% interval"
    )
    value = {"rollouts": options.rollouts, "seed": options.seed, "rows": [row.as_json() for row in rows]}
    print_end("canary", value, targets(rows), load, options.json)


if __name__ == "__main__":
    main()
