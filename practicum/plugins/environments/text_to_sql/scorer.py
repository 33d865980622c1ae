"""Scorer `sql`: execution accuracy, the metric of StreamBench and BIRD.

The score is 1 if the query in the answer and the query in the target have the same set of rows; the order and the
number of equal rows do not count. The target and the answer are untrusted, so both run in the sandbox, which can read
only the database. Only the comparison and the error message of a query leave the sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from practicum.core.types import Score, Task, Trace
from practicum.core.words import one_line
from practicum.tasks.sandbox.runner import Limits, Sandbox
from practicum.tasks.scoring.code_blocks import code_blocks
from practicum.tasks.scoring.registry import AnswerScorer

SCRIPT = Path(__file__).with_name("run_sql.py")

LIMITS = Limits(cpu=15, wall=60.0)

MAX_ERROR = 300  # maximum number of characters of an error message


@cache
def _sandbox() -> Sandbox:
    sandbox = Sandbox(LIMITS)
    sandbox.require()
    return sandbox


def sql_of(answer: str) -> str:
    """Return the query of an answer: the last block that is tagged as SQL, else the last block without a tag, else the
    whole answer."""
    blocks = code_blocks(answer)
    for languages in (("sql", "sqlite", "sqlite3"), ("",)):
        if codes := [block.code for block in blocks if block.language in languages]:
            return codes[-1].strip()
    return answer.strip()


async def score_sql(task: Task, trace: Trace) -> Score:
    """Return the score, with the error of a query that fails as the note. Raises UsageError if this machine lacks the
    sandbox."""
    job = {"database": task.meta["database"], "target": task.target, "answer": sql_of(trace.answer)}
    files = {"main.py": SCRIPT.read_text("utf-8")}
    result = await _sandbox().run(files, stdin=json.dumps(job), readable=[Path(task.meta["database"])])
    report: dict[str, Any] = {}
    for line in result.stdout.splitlines():
        report |= json.loads(line)
    stopped = result.stopped or report.get("stopped", False)
    if report.get("target", result.reason):
        reason = one_line(report.get("target") or result.reason, MAX_ERROR)
        return Score(0.0, False, f"the query of the target fails: {reason}", untestable=True, unfenced=result.unfenced)
    if "equal" not in report:
        note = f"the query fails: {one_line(report.get('answer') or result.reason, MAX_ERROR)}"
        return Score(0.0, False, note, stopped=stopped, unfenced=result.unfenced)
    correct = report["equal"]
    note = "" if correct else "the query runs, but its rows are not the rows of the target"
    return Score(float(correct), correct, note, unfenced=result.unfenced)


def database_fault(meta: Mapping[str, Any]) -> str | None:
    """Return the fault of a task's `meta`, phrased to follow "task X"; None if the `meta` is valid. Only a path that
    ends in NAME/NAME.sqlite is valid, so a task file from elsewhere cannot name the databases of other programs. Raises
    UsageError if this machine lacks the sandbox."""
    path = Path(name) if isinstance(name := meta.get("database"), str) else Path()
    if not path.is_absolute() or path.suffix != ".sqlite" or path.parent.name != path.stem:
        return "has no meta.database (an absolute path that ends in NAME/NAME.sqlite), which scorer 'sql' needs"
    if not path.is_file():
        return f"has a meta.database that does not exist: {one_line(path, 200)}"
    _sandbox()
    return None


SCORER = AnswerScorer("sql", score_sql, needs_target=True, pure=False, fault=database_fault)
