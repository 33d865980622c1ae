"""How often independent texts share rare words (`core.shingles`), and how often a copied passage is recognized.

    python bench/shingles_bench.py FILE.jsonl:FIELD ... [--texts 8 58] [--json]

Each file is a collection of independent texts. "wrong" is the share of texts with a rare piece of another text, by the
number of texts that are read together (--texts). "found N" is the share of passages of N words that are recognized.
Each passage is copied from one text to the end of another.
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
    """Return the share of the texts that have a rare piece of another text."""
    hits = 0
    for _ in range(TRIES):
        one, *others = rng.sample(texts, min(size, len(texts)))
        among, words = Rarity(others), grams(one)
        hits += any(among.rare(pieces(other) & words) for other in others)
    return hits / TRIES


def share_recognized(texts: Sequence[str], size: int, length: int, rng: random.Random) -> float:
    """Return the share of the copied passages that are recognized."""
    hits = 0
    for _ in range(TRIES):
        one, source, *others = rng.sample(texts, min(size, len(texts)))
        words = source.split()
        start = rng.randrange(max(len(words) - length, 0) + 1)
        copied = f"{one}\n{' '.join(words[start : start + length])}"
        hits += bool(Rarity([source, *others]).rare(pieces(source) & (grams(copied) - grams(one))))
    return hits / TRIES


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
            for n in LENGTHS:
                long_enough = [text for text in texts if len(text.split()) >= n]
                row[f"found {n}"] = share_recognized(long_enough, size, n, rng)
            result[f"{Path(path).stem}:{field}, {size} texts"] = row
            print(f"{Path(path).stem}:{field}, {size} texts: " + ", ".join(f"{k} {v:.0%}" for k, v in row.items()))
    print_end("shingles", result, [], load, asked.json)


if __name__ == "__main__":
    main()
