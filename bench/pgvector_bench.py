"""The index of many entries in PostgreSQL (pgvector), compared with the index in files: build, search and extend.

Entries and questions come from `store_bench.py`, with tags that 10%, 1% and 0.01% of the entries have. An exact search
finds the true answers. Rounds alternate between the two indexes, and the medians count. PostgreSQL needs the extension
vector.

    python bench/pgvector_bench.py postgresql://USER@HOST/DATABASE --entries 100000
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from measure import Target, load_average, print_end
from store_bench import ClusteredEmbedder, memories

from practicum.core.context import Context, initial_context
from practicum.core.edits import Add, Delta
from practicum.retrieval.search import Filter, Retriever
from practicum.retrieval.vectors import Vectors
from practicum.session.config import Config, Splits
from practicum.session.records import begin
from practicum.store.database import Store
from practicum.store.snapshot import read_context, write_snapshot

FILES, PGVECTOR = "files", "pgvector"
K, ADDED, RECALL = 5, 1_000, 0.95
EVERY = {"all": 1, "10%": 10, "1%": 100, "0.01%": 10_000}
"""Tag of a filter → N: every Nth entry has the tag."""


def tagged(first: int, end: int) -> list[Add]:
    """Return memories with their tags."""
    return [
        replace(add, sources=(*add.sources, *(f"tag:{name}" for name, every in EVERY.items() if n % every == 0)))
        for n, add in enumerate(memories(first, end), first)
    ]


async def saved(store: Store, retriever: Retriever, context: Context) -> float:
    """Save a context with its index. Returns the seconds for the index."""
    began = time.perf_counter()
    indexed = await retriever.save(context)
    took = time.perf_counter() - began
    retriever.saved.settle()
    write_snapshot(store, context, indexed)
    return took


async def measure(folder: Path, url: str, n: int, asked: int) -> dict[str, dict[str, float]]:
    embedder, results = ClusteredEmbedder(n), dict[str, dict[str, float]]()
    seed = replace(initial_context(tagged(0, n)), version=0)
    everything, questions = Retriever(Vectors(embedder), 2**40), [add.key for add in memories(2 * n, 2 * n + asked)]
    true = {
        (name, text): {
            match.entry.id for match in (await everything.nearest(seed, text, K, Filter(tags=(name,)))).matches
        }
        for name in EVERY
        for text in questions
    }
    # The rows of both stores are in the database.
    stores = {
        where: Store.create(folder / where, f"{url}?index={where}", f"{where}-{time.time_ns():x}")
        for where in (FILES, PGVECTOR)
    }
    retrievers, contexts = dict[str, Retriever](), dict[str, Context]()
    for where, store in stores.items():
        begin(store, Config(method="none"), Splits(()), seed, "done")
        vectors = Vectors(embedder, store)
        await vectors.passing([entry.embedded_text for entry in seed])
        results[where] = {"build_s": await saved(store, Retriever(vectors, 1), seed)}
        retrievers[where], contexts[where] = Retriever(Vectors(embedder, store), 1), read_context(store)
        await retrievers[where].vectors.ready(questions)
    for name in EVERY:
        times: dict[str, list[float]] = {where: [] for where in stores}
        hits = dict.fromkeys(stores, 0)
        for warm in (False, True):
            for text in questions:
                for where, context in contexts.items():
                    began = time.perf_counter()
                    search = await retrievers[where].nearest(context, text, K, Filter(tags=(name,)))
                    if warm:
                        times[where].append(1000 * (time.perf_counter() - began))
                        hits[where] += len(true[name, text] & {match.entry.id for match in search.matches})
        for where in stores:
            results[where][f"{name}: ms"] = statistics.median(times[where])
            results[where][f"{name}: recall"] = hits[where] / sum(len(true[name, text]) for text in questions)
    for where, store in stores.items():
        more = contexts[where].apply(Delta(tuple(tagged(n, n + ADDED)))).context
        await retrievers[where].vectors.ready(add.key for add in tagged(n, n + ADDED))
        results[where][f"add_{ADDED}_s"] = await saved(store, retrievers[where], more)
        store.remove()
        store.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="a PostgreSQL database")
    parser.add_argument("--entries", type=int, default=100_000, help="entries (100,000)")
    parser.add_argument("--questions", type=int, default=100, help="questions a filter, at most 100 (100)")
    parser.add_argument("--json", action="store_true", help="print one JSON line at the end")
    options = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="practicum-pgvector-") as name:
        results = asyncio.run(measure(Path(name), options.url, options.entries, options.questions))
    for name, value in results[FILES].items():
        print(f"{name}: {value:.3g} in files, {results[PGVECTOR][name]:.3g} with pgvector")
    targets = [
        Target(name=f"{name}, pgvector", value=value, bound=RECALL, at_least=True)
        for name, value in results[PGVECTOR].items()
        if name.endswith("recall")
    ]
    print_end("pgvector", results, targets, before, options.json)


if __name__ == "__main__":
    main()
