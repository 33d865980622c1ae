"""A run says so where every stored trace is too long for its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers import make_tasks
from refusals import refused
from scripts import learned, scripted

from practicum.core.errors import WindowError
from practicum.core.types import Recorded, Score, Task, Trace
from practicum.models.scripted import Call


def recorded(n: int = 4) -> list[Task]:
    """Tasks whose attempts went well and badly by turns."""
    made = [Recorded(Trace(f"word{i}" if i % 2 else "no"), Score(i % 2, i % 2 == 1)) for i in range(n)]
    return [replace(task, recorded=one) for task, one in zip(make_tasks(n), made, strict=True)]


def refusing(call: Call) -> str:
    raise AssertionError("nothing was to be tried")


def test_where_every_trace_is_too_long_for_its_model_the_run_says_so(tmp_path: Path) -> None:
    def blind(call: Call) -> Exception:
        return WindowError("window.exceeded", "larger than the window")

    with refused("attempts.all_failed"):
        learned(tmp_path, scripted(refusing, blind), recorded(), {"batch": 4}, "combee", from_traces=True)
