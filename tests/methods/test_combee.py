"""Combee's scan keeps to its fan-in and loses no lesson, whatever its curators answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profiles import cases
from runs import OPS, random_curator, spelled
from scans import curated, curated_by, learned

from practicum.core.context import seed_context

# ---- accounting


@pytest.mark.parametrize("n", [4, 7, 20, 55, 100])
@pytest.mark.parametrize("seed", cases([0, 1, 2], 0))
@pytest.mark.parametrize(
    "settings", [{}, {"fan_in": 7, "copies": 3}, {"asynchronous": True}], ids=["", "fan_in", "async"]
)
@pytest.mark.slow
def test_random_curators_read_at_most_fan_in_lessons_and_lose_none(
    tmp_path: Path, n: int, seed: int, settings: dict[str, Any]
) -> None:
    curator = random_curator(seed, OPS[seed::2] if seed else OPS, 0.1, [])
    rules = seed_context([("rules", f"If old {spelled(i)}, do it.") for i in range(5)])
    run = learned(tmp_path, curated_by(curator), n, settings, seed_context=rules)
    assert max(map(len, curated(run)), default=0) <= settings.get("fan_in", 20)
    named = {id for step in run.reports for a in step.applied for id in a.edit.lessons if a.edit.op in NAMING}
    resolutions = {resolution.lesson for step in run.reports for resolution in step.resolutions}
    assert {x.id for step in run.reports for x in step.lessons if x.text} == named | resolutions


NAMING = ("add", "update", "merge")
