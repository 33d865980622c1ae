"""The bench of many spaces with few: each has entries of its own, and some are closed because not all fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from practicum.bench.spaces import SpacesPlan, spaces
from practicum.store.database import Store
from practicum.store.snapshot import read_context


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.bench.spaces.ENTRIES", 30)
    monkeypatch.setattr("practicum.bench.spaces.TEXTS", 300)


def test_spaces_are_measured_and_made_once(tmp_path: Path) -> None:
    found = spaces(SpacesPlan(spaces=8, requests=60, folder=tmp_path))
    assert [row.opened for row in found.rows] == [0.0, 0.0]
    assert found.open == 8
    assert all(0 < row.p50_ms <= row.p99_ms for row in found.rows)
    assert [target["at_most"] for target in found.as_json()["targets"]] == [3.0]

    def entries(name: str) -> set[str]:
        with Store.read(tmp_path / "store/spaces" / name) as store:
            return {entry.text for entry in read_context(store, store.run_id)}

    assert len(entries("s1")) == 30
    assert entries("s1") != entries("s2")
    files = sorted(tmp_path.glob("store/spaces/*/run.sqlite"))
    made = [path.stat().st_ino for path in files]
    assert spaces(SpacesPlan(spaces=8, requests=10, memory=1, folder=tmp_path)).rows[0].opened > 0
    assert [path.stat().st_ino for path in files] == made
