"""Whether the time to refuse a wrong key shows how many of its first characters are right.

    python bench/keys_bench.py [--calls 20000] [--seed 0]

The first characters of a wrong key, of several numbers, are equal to a key of the service, or to a random text of the
same form (the control, because the form of a key may itself change the time). Keys are looked up in turn, in an order
that changes, so that other work of the machine affects all kinds equally. For each number of characters, the bench
prints both medians in microseconds, and the 95% interval of their difference (bootstrap).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import string
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from measure import load_average

from practicum.serve import access
from practicum.serve.access import Keys, Wrong, add_key, read_keys
from practicum.store.database import Database

GIVEN = "given-" + "k" * 38
SHARED = (1, 8, 24, -1)
"""Number of first characters that are shared. -1: all except the last."""


def wrong_key(right: str, shared: int, rng: random.Random) -> str:
    """Return a wrong key of the right key's length. Its first `shared` characters are right, and all others wrong."""
    shared = len(right) - 1 if shared < 0 else shared
    rest = (rng.choice([one for one in string.ascii_letters if one != correct]) for correct in right[shared:])
    return right[:shared] + "".join(rest)


async def seconds(
    keys: Keys, texts: Sequence[str], calls: int, rng: random.Random
) -> dict[tuple[int, int], np.ndarray]:
    """Return the seconds of each look-up, by the number of shared characters and the index of the text in `texts`."""
    kinds = [(shared, source) for shared in SHARED for source in range(len(texts))]
    times: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    for _ in range(calls):
        order = rng.sample(kinds, len(kinds))
        # All keys exist before the first look-up: a longer random rest takes longer, which would cool the caches.
        wrong = [wrong_key(texts[source], shared, rng) for shared, source in order]
        for kind, key in zip(order, wrong, strict=True):
            began = time.perf_counter()
            try:
                await keys.grant(key, "127.0.0.1")
            except Wrong:
                times[kind].append(time.perf_counter() - began)
    return {kind: np.array(values) for kind, values in times.items()}


def difference(one: np.ndarray, other: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Return the 95% interval of the difference between two medians, in the unit of the values."""
    drawn = (np.median(rng.choice(one, len(one))) - np.median(rng.choice(other, len(other))) for _ in range(1_000))
    low, high = np.percentile([*drawn], [2.5, 97.5])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="look-ups of each length")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # All look-ups come from one address, and the service limits the wrong keys of an address.
    access.WRONG_A_MINUTE = 10**9
    with tempfile.TemporaryDirectory() as folder:
        database = Database.at(Path(folder), Path(folder), create=True)
        _, stored = add_key(database, "stored", "", ["ask"])
        for name, right in (("a stored key", stored), ("a key given at the start", GIVEN)):
            keys = Keys(read_keys([GIVEN]), database)
            rng = random.Random(options.seed)
            control = "".join(rng.choice(string.ascii_letters) for _ in right)
            times = asyncio.run(seconds(keys, (right, control), options.calls, rng))
            print(f"{name}, {options.calls:,} look-ups of each kind")
            for shared in SHARED:
                real, other = times[shared, 0], times[shared, 1]
                low, high = difference(real, other, np.random.default_rng(options.seed))
                print(
                    f"  {shared if shared > 0 else len(right) - 1:>2} of {len(right)} characters: "
                    f"{1e6 * np.median(real):.3f} and {1e6 * np.median(other):.3f} us, "
                    f"difference {1e6 * low:+.3f} to {1e6 * high:+.3f}"
                )
        database.close()
    print(f"load average {load_average()}")


if __name__ == "__main__":
    main()
