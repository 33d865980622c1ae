"""Any input from outside: values or an error, at once, and nothing is lost without a report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fuzz
import pytest
from hypothesis import HealthCheck, settings
from profiles import PROFILE
from refusals import refused

from practicum.agents.team import load_team
from practicum.cli.inputs import read_instructions, read_sections
from practicum.core import playbook
from practicum.core.errors import PracticumError
from practicum.session import memories
from practicum.tasks.load import load_tasks
from practicum.tasks.traces import load, load_traces

GOOD = '{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}\n'


def test_an_endless_device_and_a_pipe_without_a_writer_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (Path("/dev/zero"), tmp_path / "pipe.json"):
        for read in (
            load_tasks, load_traces, playbook.load, memories.read, load_team, lambda path: read_sections(str(path)),
            lambda path: read_instructions(f"@{path}"),
        ):  # fmt: skip
            with pytest.raises(PracticumError, match="not a file but a device or a pipe"):
                read(path)


def test_a_line_or_a_document_that_is_too_long_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MOST_LINE", 200)
    monkeypatch.setattr(load, "MOST_DOCUMENT", 1000)
    long, path = GOOD.replace("4", "4" * 300), tmp_path / "t.jsonl"
    path.write_text(long + GOOD + long * 2 + GOOD + long.strip(), encoding="utf-8")
    traces = load_traces(path)
    assert [task.meta["line"] for task in traces.tasks] == [2, 5]
    (problem,) = traces.problems
    assert (problem.count, problem.line) == (4, 1)
    path.write_text(json.dumps(json.loads(GOOD.replace("4", "4" * 1000)), indent=1), encoding="utf-8")
    with refused("traces.unreadable"):
        load_traces(path)


@pytest.mark.parametrize("read", fuzz.PROPERTIES, ids=lambda read: read.__name__)
def test_a_reader_reads_any_input_or_refuses_it(read: Any) -> None:
    tried = 300 if PROFILE == "slow" else 5
    settings(max_examples=tried, deadline=None, suppress_health_check=[*HealthCheck], database=None)(read)()
