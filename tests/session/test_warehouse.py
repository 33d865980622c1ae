"""The example with a database: an agent that knows the conventions solves every task, another agent none."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import client

import practicum
from practicum.core.context import Context
from practicum.models.scripted import Call

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2] / "examples" / "warehouse"
TRAIN, TEST = (practicum.load_tasks(HERE / f"{split}.jsonl") for split in ("train", "test"))
SOLUTIONS = {task.input: task.meta["solution"] for task in (*TRAIN, *TEST)}


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])
    import warehouse

    yield warehouse
    for name in ("warehouse", "make_tasks"):
        sys.modules.pop(name, None)


def naive(statement: str) -> str:
    """The statement of an agent that does not know the conventions."""
    for code, plain in (
        ("'CXL'", "'cancel'"), ("'HLD'", "'hold'"), ("'CLS'", "'close'"), ("'R-1'", "'returns'"), ("'A-0'", "'stock'"),
        ("'S-9'", "'scrap'"), ("20250314", "'2025-03-14'"), ("status = 9", "status = 0"), ("status = 5", "status = 2"),
        ("status = 7", "status = 3"), ("price = ", "price = 0.01 * "), ("phone = '+", "phone = '+ "), ("'N')", "'B')"),
    ):  # fmt: skip
        statement = statement.replace(code, plain)
    return statement


def evaluate(rewrite: Any) -> tuple[practicum.Evaluation, Any]:
    """Run the statements of each task's solution one a turn, then finish."""

    def respond(call: Call) -> str:
        task = (call.prompt.turns[0].user if call.prompt.turns else call.prompt.user).strip()
        left = SOLUTIONS[task][len(call.prompt.turns) :]
        action = {"sql": {"query": rewrite(left[0])}} if left else {"finish": {"answer": "done"}}
        return json.dumps({"thought": "on", "action": action})

    model = client(respond)
    parts = practicum.Parts(clients={"agent": model})
    how = {"agent": "tools:warehouse:World", "scorer": "warehouse:score", "max_turns": 4}
    return practicum.run_sync(practicum.evaluate([*TRAIN, *TEST], Context(), parts=parts, **how)), model


@pytest.mark.usefixtures("warehouse")
def test_an_agent_solves_every_task_with_the_conventions_and_none_without_them() -> None:
    result, model = evaluate(str)
    assert result.score == 1.0
    assert max(r.trace.data["turns"] for r in result.attempts) <= 3
    prompts = "".join(call.text for call in model.calls if not call.prompt.turns)
    assert not any(statement in prompts for statements in SOLUTIONS.values() for statement in statements)
    result, _ = evaluate(naive)
    assert (result.score, result.errors) == (0.0, 0)


def test_the_tool_shows_rows_and_reaches_no_file(warehouse: ModuleType, tmp_path: Path) -> None:
    with warehouse.World(TRAIN[0]) as world:
        assert world.sql("SELECT id, price FROM products WHERE id < 203") == "id | price\n201 | 3450\n202 | 18900"
        assert world.sql("SELECT * FROM audit") == "no rows"
        assert world.sql("SELECT * FROM orders").endswith("(30 rows, the first 20 shown)")
        several = "UPDATE orders SET status = 9 WHERE id = 1002; SELECT ';' AS a, status FROM orders WHERE id = 1002;\n"
        assert world.sql(several) == "ok, 1 row changed\na | status\n; | 9"
        for forbidden in (
            f"ATTACH '{tmp_path}/x' AS x", f"VACUUM INTO '{tmp_path}/x'", "DROP TABLE orders", "PRAGMA user_version",
            "SELECT 'a", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT max(i) FROM n",
        ):  # fmt: skip
            with pytest.raises((sqlite3.Error, sqlite3.Warning)):
                world.sql(forbidden)
    assert not list(tmp_path.iterdir())
