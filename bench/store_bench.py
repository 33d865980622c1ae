"""Retrieval among many memories, in memory and from the disk.

The vectors of memories have 256 dimensions and lie in clusters, and differ mostly in few dimensions, as vectors of real
texts do (`ClusteredEmbedder`). The keys of memories have eight words; some are common and most are rare, as the content
words of real texts (`_keys`). Questions are drawn from the same distributions. Each is asked among all memories, and
among the memories with a tag that 10%, 1% and 0.01% have. "best" is the fastest question, for machines that are shared
with other work. Exact search, indexed search and opening from the disk run in a process each, because the peak of a
process's memory never goes down. `--part PART FOLDER` is one such process, which prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import BenchError, OnResult, Target, arguments, in_process, load_average, peak_mb, print_end

from practicum.core.context import Context, initial_context
from practicum.core.edits import Add, Delete, Delta
from practicum.retrieval.search import VISIBLE, Filter, Retriever
from practicum.retrieval.vectors import Vectors
from practicum.session.amend import save_snapshot
from practicum.session.config import Config, Splits
from practicum.session.records import begin
from practicum.store.database import Store
from practicum.store.snapshot import read_context

EXACT_MS, INDEX_MS, RECALL, ADD_S, PEAK_MB = 150.0, 20.0, 0.95, 2.0, 2500.0
"""Targets, for 1,000,000 memories."""

DIMS, K, QUESTIONS, ADDED = 256, 5, 100, 1_000
PER_CLUSTER, SPREAD = 200, 0.8
"""Memories in a cluster, and their distance from its centre, as a share of the centre's length."""

FILTERS: Mapping[str, Filter] = {share: Filter(tags=(f"{share} 0",)) for share in ("10%", "1%", "0.01%")}
"""Share of the memories that match → the filter."""
TAGS = [[f"tag:{share} {n}" for n in range(many)] for share, many in zip(FILTERS, (10, 100, 10_000), strict=True)]

BLOCK = 4_096
"""Number of vectors that are computed at once."""
VOCABULARY, LENGTH = 50_000, 8
"""Number of words of the vocabulary, and of words in a text."""
ALL = 2**40
"""Limit for exact search. It is above the number of memories, so that no index is used."""


class ClusteredEmbedder:
    """Embedder that returns, for a text that ends with a number, the vector of that number. The standard deviation
    along dimension i is proportional to i to the power of -1/2, about as in embeddings of real texts."""

    name = "clustered"

    def __init__(self, n: int) -> None:
        self._scale = (np.arange(1, DIMS + 1) ** -0.5).astype(np.float32)
        clusters = max(n // PER_CLUSTER, 1)
        self._centres = _unit(np.random.default_rng(0).standard_normal((clusters, DIMS), np.float32) * self._scale)

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        numbers = np.array([int(text.rpartition(" ")[2]) for text in texts])
        points = np.empty((len(texts), DIMS), dtype=np.float32)
        for block in np.unique(numbers // BLOCK):
            rng = np.random.default_rng((1, int(block)))
            centres = self._centres[rng.integers(0, len(self._centres), BLOCK)]
            noise = _unit(rng.standard_normal((BLOCK, DIMS), np.float32) * self._scale)
            here = numbers // BLOCK == block
            points[here] = _unit(centres + SPREAD * noise)[numbers[here] % BLOCK]
        return points


def _unit(vectors: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _keys(first: int, end: int) -> Iterator[str]:
    """Yield texts that end with their numbers. The frequency of a word is proportional to 1 / (rank + 50): the most
    frequent word is in 2% of the texts."""
    cumulated = np.cumsum(1 / (np.arange(VOCABULARY) + 50))
    for block in range(first // BLOCK, -(-end // BLOCK)):
        drawn = np.random.default_rng((2, block)).random((BLOCK, LENGTH)) * cumulated[-1]
        words = np.searchsorted(cumulated, drawn)
        for n in range(max(first, block * BLOCK), min(end, (block + 1) * BLOCK)):
            yield " ".join([*map("w{}".format, words[n % BLOCK]), str(n)])


def memories(first: int, end: int) -> Iterator[Add]:
    """Yield memories as methods add them: a title, a description and advice. The key is the text of their task."""
    for n, key in enumerate(_keys(first, end), first):
        text = f"Refund {n}: when the customer names an order.\nLook the order up in ledger {n % 97} before you answer."
        data = {"title": f"Refund {n}", "outcome": "failure" if n % 3 else "success"}
        tags = (group[n % len(group)] for group in TAGS)
        yield Add("memories", text, key=key, data=data, sources=(f"task:t{n}", *tags))


@dataclass(frozen=True, kw_only=True)
class StoreResult:
    """Measurements of each part."""

    memories: int
    parts: Mapping[str, Mapping[str, float]]

    def targets(self) -> list[Target]:
        recall = self.parts["indexed"]["recall"]
        targets = [Target(name="indexed: share of the true top 5", value=recall, bound=RECALL, at_least=True)]
        for share in FILTERS:
            value = self.parts["indexed"][f"recall_{share}"]
            targets.append(Target(name=f"indexed, {share} of all: the same", value=value, bound=RECALL, at_least=True))
        for name, part in self.parts.items():
            most = EXACT_MS if name == "exact" else INDEX_MS
            note = f"best {part['best_ms']:.3g}"
            targets.append(Target(name=f"{name}: top 5, ms, median", value=part["median_ms"], bound=most, note=note))
            targets.append(Target(name=f"{name}: adding {ADDED:,}, s", value=part["add_s"], bound=ADD_S))
            targets.append(Target(name=f"{name}: deleted and still found", value=part["still_found"], bound=0))
            targets.append(Target(name=f"{name}: peak MB", value=part["peak_mb"], bound=PEAK_MB))
        return targets

    def as_json(self) -> dict[str, Any]:
        return {"memories": self.memories, **self.parts, "targets": [target.as_json() for target in self.targets()]}


def store(n: int, report: OnResult = lambda line: None) -> StoreResult:
    """Measure each part with n memories."""
    parts = {}
    with tempfile.TemporaryDirectory(prefix="practicum-store-") as folder:
        for name in PARTS:
            title = f"{name} with {n:,} memories"
            parts[name] = in_process(
                title, [str(Path(__file__).resolve()), "--memories", str(n), "--part", name, folder]
            )
            report(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in parts[name].items()))
    return StoreResult(memories=n, parts=parts)


async def exact(n: int, folder: Path) -> dict[str, float]:
    """Compare each question with all memories."""
    _, numbers = await _search(n, Retriever(Vectors(ClusteredEmbedder(n)), ALL))
    return numbers


async def indexed(n: int, folder: Path) -> dict[str, float]:
    """Measure searches by an index, then save the context and the index for `opened`."""
    with Store.create(folder / "run") as run:
        vectors = Vectors(ClusteredEmbedder(n), run)
        retriever = Retriever(vectors, 1)
        context, numbers = await _search(n, retriever)
        everything = Retriever(vectors, ALL)
        for name, where in (("recall", VISIBLE), *((f"recall_{share}", where) for share, where in FILTERS.items())):
            hits = expected = 0
            for question in _questions(n):
                true = {near.entry.id for near in (await everything.nearest(context, question, K, where)).matches}
                near = (await retriever.nearest(context, question, K, where)).matches
                hits, expected = hits + len(true & {each.entry.id for each in near}), expected + len(true)
            numbers[name] = hits / max(expected, 1)
        began = time.perf_counter()
        begin(run, Config(method="none"), Splits(()), context, "done")
        await save_snapshot(run, replace(context, version=0), retriever)
        numbers["save_s"] = time.perf_counter() - began
    return numbers


async def opened(n: int, folder: Path) -> dict[str, float]:
    """Measure opening a run from the disk and searching it, in a process that did no other work."""
    before, began = peak_mb(), time.perf_counter()
    with Store.read(folder / "run") as run:
        retriever = Retriever(Vectors(ClusteredEmbedder(n), run), 1)
        context = read_context(run)
        open_s = time.perf_counter() - began
        began = time.perf_counter()
        await retriever.nearest(context, _questions(n)[0], K)
        numbers = {"open_s": open_s, "first_s": time.perf_counter() - began}
        numbers |= await _ask(n, context, retriever)
    return {**numbers, "before_mb": before}


async def _search(n: int, retriever: Retriever) -> tuple[Context, dict[str, float]]:
    context, vectors = initial_context(memories(0, n)), retriever.vectors
    question = _questions(n)[0]
    began = time.perf_counter()
    await vectors.ready([*(entry.embedded_text for entry in context), question])
    embedded = time.perf_counter()
    await retriever.nearest(context, question, K)
    numbers = {"embed_s": embedded - began, "first_s": time.perf_counter() - embedded}
    return context, numbers | await _ask(n, context, retriever)


async def _ask(n: int, context: Context, retriever: Retriever) -> dict[str, float]:
    """Measure the questions one after another, among all memories and by each filter. Then measure adding memories, and
    deleting the memories that the first question finds, each with that question asked again. The time of the simulated
    embedder is not included."""
    questions = _questions(n)
    await retriever.vectors.ready([*questions, *(add.key for add in memories(n, n + ADDED))])
    numbers = {}
    for share, where in (("", VISIBLE), *FILTERS.items()):
        times = []
        for question in questions:
            start = time.perf_counter()
            await retriever.nearest(context, question, K, where)
            times.append(1000 * (time.perf_counter() - start))
        if share:
            numbers[f"median_ms_{share}"] = float(np.median(times))
        else:
            median, p95 = np.percentile(times, (50, 95)).tolist()
            numbers |= {"median_ms": median, "best_ms": min(times), "p95_ms": p95}
    start = time.perf_counter()
    more = context.apply(Delta(tuple(memories(n, n + ADDED)))).context
    matches = (await retriever.nearest(more, questions[0], K)).matches
    added = time.perf_counter()
    fewer = more.apply(Delta(tuple(Delete(near.entry.id) for near in matches))).context
    left = {near.entry.id for near in (await retriever.nearest(fewer, questions[0], K)).matches}
    delete_s = time.perf_counter() - added
    still = len(left & {near.entry.id for near in matches})
    return {**numbers, "add_s": added - start, "delete_s": delete_s, "still_found": still, "peak_mb": peak_mb()}


def _questions(n: int) -> list[str]:
    first = 2 * n + ADDED
    return list(_keys(first, first + QUESTIONS))


PARTS = {"exact": exact, "indexed": indexed, "opened": opened}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--memories", type=int, default=1_000_000, help="memories; the targets are for a million")
    parser.add_argument("--part", nargs=2, metavar=("PART", "FOLDER"), help="one part in this process, as JSON")
    options, load = parser.parse_args(), load_average()
    if options.part:
        name, folder = options.part
        print(json.dumps(asyncio.run(PARTS[name](options.memories, Path(folder)))))
        return
    try:
        result = store(options.memories, print)
    except BenchError as error:
        sys.exit(str(error))
    print_end("store", result.as_json(), result.targets(), load, options.json)


if __name__ == "__main__":
    main()
