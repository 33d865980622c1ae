"""How often texts that were written independently of each other share rare words, and how often a copied passage is
found by them (`core.shingles`).

    python bench/shingles_bench.py FILE.jsonl:FIELD ... [--texts 8 58] [--json]

Each file is a collection of texts that nobody copied from each other. "wrong" is the share of the texts that have a
rare piece of another one, with so many texts read together. "found" is the share of the passages of so many words, each
copied from one text to the end of another, that are recognized.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from measure import load_average, print_end

from practicum.core.shingles import Rarity, grams, pieces

LENGTHS = (3, 5, 8, 12)
TRIES = 400


def wrong(texts: Sequence[str], size: int, rng: random.Random) -> float:
    """The share of the texts that have a rare piece of one of the others."""
    found = 0
    for _ in range(TRIES):
        one, *others = rng.sample(texts, min(size, len(texts)))
        among, words = Rarity(others), grams(one)
        found += any(among.rare(pieces(other) & words) for other in others)
    return found / TRIES


def found(texts: Sequence[str], size: int, length: int, rng: random.Random) -> float:
    """The share of the copied passages that are recognized."""
    made = 0
    for _ in range(TRIES):
        one, source, *others = rng.sample(texts, min(size, len(texts)))
        words = source.split()
        start = rng.randrange(max(len(words) - length, 0) + 1)
        copied = f"{one}\n{' '.join(words[start : start + length])}"
        made += bool(Rarity([source, *others]).rare(pieces(source) & (grams(copied) - grams(one))))
    return made / TRIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl:FIELD")
    parser.add_argument("--texts", nargs="+", type=int, default=[8, 58])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    load = load_average()
    result: dict[str, dict[str, float]] = {}
    for name in asked.files:
        path, _, field = name.rpartition(":")
        texts = [str(json.loads(line)[field]) for line in Path(path).read_text("utf-8").splitlines()]
        for size in asked.texts:
            rng = random.Random(0)
            row = {"wrong": wrong(texts, size, rng)}
            row |= {f"found {n}": found([t for t in texts if len(t.split()) >= n], size, n, rng) for n in LENGTHS}
            result[f"{Path(path).stem}:{field}, {size} texts"] = row
            print(f"{Path(path).stem}:{field}, {size} texts: " + ", ".join(f"{k} {v:.0%}" for k, v in row.items()))
    print_end("shingles", result, [], load, asked.json)


if __name__ == "__main__":
    main()
