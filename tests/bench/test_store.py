"""The store bench with few memories: it measures every part, and the index finds the nearest memories."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from practicum.bench.store import FILTERS, ClusteredEmbedder, StoreResult, exact, indexed, opened, store
from practicum.core.errors import StoreError


def test_the_index_finds_the_nearest_and_the_saved_run_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("QUESTIONS", 10), ("ADDED", 50)):
        monkeypatch.setattr(f"practicum.bench.store.{name}", count)
    compared, searched = asyncio.run(exact(300, tmp_path)), asyncio.run(indexed(300, tmp_path))
    reopened = asyncio.run(opened(300, tmp_path))
    assert searched["recall"] >= 0.99
    assert all(searched[f"recall_{share}"] >= 0.99 for share in FILTERS)
    assert [part["still_found"] for part in (compared, searched, reopened)] == [0, 0, 0]
    assert compared.keys() == {name for name in searched if not name.startswith("recall")} - {"save_s"}
    assert reopened.keys() >= {"open_s", "median_ms", "peak_mb"}
    result = StoreResult(memories=300, parts={"exact": compared, "indexed": searched, "opened": reopened})
    (recall,) = [target for target in result.as_json()["targets"] if "share of" in target["what"]]
    assert recall["met"]


@pytest.mark.slow
def test_every_part_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = store(1_500)
    assert found.parts["indexed"]["recall"] >= 0.99
    assert found.parts["opened"]["peak_mb"] > found.parts["opened"]["before_mb"]
    value = json.loads(json.dumps(found.as_json()))
    assert [target["met"] for target in value["targets"] if "share" in target["what"]] == [True]


def test_missed_targets_are_marked() -> None:
    part = {"median_ms": 21.0, "best_ms": 19.0, "add_s": 1.0, "still_found": 0, "peak_mb": 100.0, "recall": 0.9}
    part |= {f"recall_{share}": 0.96 for share in FILTERS}
    parts = {"exact": part, "indexed": part, "opened": {**part, "peak_mb": 2_501.0}}
    missed = [t.what for t in StoreResult(memories=5, parts=parts).targets() if not t.met]
    assert missed == [
        "indexed: share of the true top 5", "indexed: top 5, ms, median", "opened: top 5, ms, median",
        "opened: peak MB",
    ]  # fmt: skip


def test_points_are_clustered_and_belong_to_their_text() -> None:
    points = asyncio.run(ClusteredEmbedder(4_000).embed([f"about {n}" for n in range(9_000)]))
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-5)
    assert (asyncio.run(ClusteredEmbedder(4_000).embed(["else 8999", "about 3"])) == points[[8999, 3]]).all()
    similarity = np.sort(points[:50] @ points.T, axis=1)
    assert np.median(similarity) < 0.2 < 0.5 < np.median(similarity[:, -6])


def test_opening_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        asyncio.run(opened(1_000, tmp_path))
