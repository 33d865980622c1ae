"""A context of 100,000 entries: 1,000 edits are applied, shown, and de-duplicated.

    python bench/context_bench.py [--json]

Each value is the median of 9 measurements; "best" is the fastest of them, for machines that are shared with other work.
Vectors are random. Real texts take the same time, because few of them are near each other.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import Target, load_average, print_end

from practicum.core.context import Context, Page
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.core.views import render_full
from practicum.methods.blocks.dedupe import duplicates

ENTRIES = 100_000
EDITS = 1_000
SECTIONS = 8
DIMS = 256
REPEATS = 9
TARGETS = {
    "apply": 12.0,
    "show_cold": 60.0,
    "show_after_edits": 25.0,
    "dedupe_one_section": 500.0,
    "dedupe_8_sections": 500.0,
}
"""Milliseconds."""

Words = Callable[[], str]


def writer(chance: random.Random) -> Words:
    """Return a function that writes texts of 80 to 160 characters."""
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 11))) for _ in range(5_000)]

    def text() -> str:
        return " ".join(chance.choices(words, k=30))[: chance.randint(80, 160)].strip()

    return text


def section(chance: random.Random) -> str:
    return f"section {chance.randrange(SECTIONS)}"


def mixed_edits(chance: random.Random, text: Words, entries: int) -> Delta:
    """Return edits as curators write them: of ten, three additions, two updates, three votes, a merge, a deletion."""
    ids = (f"e{n}" for n in chance.sample(range(entries), 2 * EDITS))
    source = ("task:new", "attempt:step 1")
    kinds: list[Callable[[], Edit]] = [
        *[lambda: Add(section(chance), text(), sources=source)] * 3,
        *[lambda: Update(next(ids), text(), sources=source)] * 2,
        *[lambda: Vote(next(ids), 1, 0, 1, sources=source)] * 3,
        lambda: Merge((next(ids), next(ids)), sources=source),
        lambda: Delete(next(ids), sources=source),
    ]
    return Delta(tuple(kinds[n % len(kinds)]() for n in range(EDITS)))


def cold(context: Context) -> Context:
    """Return the same context without rendered texts."""
    return Context(tuple(Page(p.entries) for p in context.pages), context.version, context.next_number, context.size)


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    began = time.perf_counter()
    outcome = work()
    return 1000 * (time.perf_counter() - began), outcome


def context_times(entries: int) -> dict[str, list[float]]:
    chance = random.Random(0)
    text = writer(chance)
    adds = (Add(section(chance), text(), sources=(f"task:{n}", f"attempt:step {n}")) for n in range(entries))
    base = Context().apply(Delta(tuple(adds))).context
    times: dict[str, list[float]] = {"apply": [], "show_cold": [], "show_after_edits": []}
    for _ in range(REPEATS):
        context, delta = cold(base), mixed_edits(chance, text, entries)
        took, _ = milliseconds(lambda context=context: render_full(context))
        times["show_cold"].append(took)
        took, outcome = milliseconds(lambda context=context, delta=delta: context.apply(delta))
        times["apply"].append(took)
        assert not outcome.refused
        took, _ = milliseconds(lambda outcome=outcome: render_full(outcome.context))
        times["show_after_edits"].append(took)
    return times


def unit_vectors(rng: np.random.Generator, n: int) -> np.ndarray:
    vectors = rng.standard_normal((n, DIMS), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def dedupe_times(entries: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    old, new = unit_vectors(rng, entries), unit_vectors(rng, EDITS)
    new[::10] = old[: EDITS // 10]  # one in ten is a duplicate
    times: dict[str, list[float]] = {"dedupe_one_section": [], "dedupe_8_sections": []}
    for _ in range(REPEATS):
        took, duplicate_of = milliseconds(lambda: duplicates(old, new, 0.85))
        assert duplicate_of[::10] == list(range(EDITS // 10))
        times["dedupe_one_section"].append(took)
        parts = [(old[i::SECTIONS].copy(), new[i::SECTIONS].copy()) for i in range(SECTIONS)]
        took, _ = milliseconds(lambda parts=parts: [duplicates(some, fresh, 0.85) for some, fresh in parts])
        times["dedupe_8_sections"].append(took)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=ENTRIES, help="entries of the context, from 2,000 (100,000)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    before, times = load_average(), {**context_times(options.entries), **dedupe_times(options.entries)}
    targets = [
        Target(name=f"{name}, ms", value=statistics.median(took), bound=TARGETS[name], note=f"best {min(took):.3g}")
        for name, took in times.items()
    ]
    print_end("context", times, targets, before, options.json)
    return int(not all(target.met for target in targets))


if __name__ == "__main__":
    raise SystemExit(main())
