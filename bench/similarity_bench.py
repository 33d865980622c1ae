"""From which cosine a correction is shown to a request that asks something else (`serve.corrections.SIMILAR`).

Each file is a set of tasks whose `meta` names a topic or an intent. For each set and cosine, prints how many pairs with
requests of other sets reach it, and the shares of requests whose nearest request of their own topic, of another topic
of the set, and of another set reach it. One JSON object a line.

    python bench/similarity_bench.py SET.jsonl ... --others OTHER.jsonl ...
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import numpy as np

from practicum.retrieval.vectors import Vectors, WordLlama

COSINES = (0.2, 0.22, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)


def read(path: Path) -> tuple[list[str], list[str]]:
    """The questions of a set, and their topics; empty where there is none."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    metas = [row.get("meta") or {} for row in rows]
    texts = [str(row.get("input") or row.get("question"))[:2_000] for row in rows]
    return texts, [str(meta.get("topic") or meta.get("intent") or "") for meta in metas]


def reached(values: np.ndarray) -> dict[str, float]:
    """The share of values that reach each cosine."""
    return {str(cosine): round(float((values >= cosine).mean()), 3) for cosine in COSINES} if values.size else {}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--others", nargs="*", type=Path, default=[])
    given = parser.parse_args()
    vectors = Vectors(WordLlama())
    sets = {path.stem: read(path) for path in (*given.sets, *given.others)}
    matrices = {name: await vectors(texts) for name, (texts, _) in sets.items()}
    for name in (path.stem for path in given.sets):
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


if __name__ == "__main__":
    asyncio.run(main())
