"""Data for two thresholds: the cosine from which a correction is shown to a different request
(`serve.corrections.SIMILAR`), and the similarity from which a note is shown (`serve.corrections.ALIKE`).

Each file is a set of tasks whose `meta` names a topic or an intent. The bench prints JSON objects, one a line. For each
set and each cosine, it prints the share of pairs with requests of other sets that reach the cosine. It also prints the
shares of requests whose nearest request of the same topic, of another topic of the set, and of another set reaches it.
Then the requests of the set are notes. For each value of the setting `retrieval` and each similarity, the bench prints
the share of pairs with requests of other sets that reach the similarity, and the share of requests whose nearest note
of the same topic reaches it.

    python bench/similarity_bench.py SET.jsonl ... --others OTHER.jsonl ...
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import numpy as np

from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.retrieval.search import WEIGHTS, Retriever
from practicum.retrieval.vectors import Vectors, WordLlama

COSINES = (0.2, 0.22, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
SIMILARITIES = (0.05, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2, 0.22, 0.25, 0.3)


def read(path: Path) -> tuple[list[str], list[str]]:
    """Return the questions of a set, and their topics. An empty topic: the task names none."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    metas = [row.get("meta") or {} for row in rows]
    texts = [str(row.get("input") or row.get("question"))[:2_000] for row in rows]
    return texts, [str(meta.get("topic") or meta.get("intent") or "") for meta in metas]


def reached(values: np.ndarray, least: tuple[float, ...] = COSINES) -> dict[str, float]:
    """Return the share of values that reach each number of `least`."""
    return {str(each): round(float((values >= each).mean()), 3) for each in least} if values.size else {}


async def similarities(retriever: Retriever, notes: list[str], texts: list[str]) -> np.ndarray:
    """Return the similarity of each note to each text, in the shape (len(texts), len(notes))."""
    context = initial_context([Add("notes", note) for note in notes])
    similarities_ = np.zeros((len(texts), len(notes)))
    for row, text in zip(similarities_, texts, strict=True):
        for match in (await retriever.nearest(context, text, len(notes))).matches:
            row[match.entry.number] = match.similarity
    return similarities_


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--others", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    vectors = Vectors(WordLlama())
    sets = {path.stem: read(path) for path in (*options.sets, *options.others)}
    matrices = {name: await vectors(texts) for name, (texts, _) in sets.items()}
    for name in (path.stem for path in options.sets):
        mine, topics = matrices[name], np.array(sets[name][1])
        cosines = mine @ mine.T
        np.fill_diagonal(cosines, -1)
        same = topics[:, None] == topics[None]
        own = np.where(same, cosines, -1).max(axis=1)
        # The sets of one bench ("routing_train", "routing_test") are about the same topics.
        others = [matrix @ mine.T for other, matrix in matrices.items() if other.split("_")[0] != name.split("_")[0]]
        print(json.dumps({
            "set": name, "requests": len(mine), "pairs": reached(np.concatenate([each.ravel() for each in others])),
            "own topic": reached(own[own > -1]), "another topic": reached(np.where(~same, cosines, -1).max(axis=1)),
            "another set": reached(np.concatenate([each.max(axis=1) for each in others])),
        }))  # fmt: skip
        for way in WEIGHTS:
            retriever, notes = Retriever(vectors, retrieval=way), sets[name][0]
            foreign = [
                await similarities(retriever, notes, texts)
                for other, (texts, _) in sets.items()
                if other.split("_")[0] != name.split("_")[0]
            ]
            within = await similarities(retriever, notes, notes)
            np.fill_diagonal(within, -1)
            own = np.where(same, within, -1).max(axis=1)
            print(json.dumps({
                "notes": name, "retrieval": way, "own topic": reached(own[own > -1], SIMILARITIES),
                "pairs": reached(np.concatenate([each.ravel() for each in foreign]), SIMILARITIES),
            }))  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
