"""The example with a database: who knows the house's conventions solves every task, who does not fails."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import client

import practicum
from practicum.core.context import Context
from practicum.core.types import Score, Task, Trace
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
    """What someone would write who has never seen this house's books."""
    for ours, plain in (
        ("'CXL'", "'cancel'"), ("'HLD'", "'hold'"), ("'CLS'", "'close'"), ("'R-1'", "'returns'"), ("'A-0'", "'stock'"),
        ("'S-9'", "'scrap'"), ("20250314", "'2025-03-14'"), ("status = 9", "status = 0"), ("status = 5", "status = 2"),
        ("status = 7", "status = 3"), ("price = ", "price = 0.01 * "), ("phone = '+", "phone = '+ "), ("'N')", "'B')"),
    ):  # fmt: skip
        statement = statement.replace(ours, plain)
    return statement


def solver(rewrite: Any = str) -> Any:
    """Runs the statements of a task's solution one a turn, then finishes."""

    def respond(call: Call) -> str:
        task = (call.prompt.turns[0].user if call.prompt.turns else call.prompt.user).strip()
        left = SOLUTIONS[task][len(call.prompt.turns) :]
        action = {"sql": {"query": rewrite(left[0])}} if left else {"finish": {"answer": "done"}}
        return json.dumps({"thought": "on", "action": action})

    return client(respond)


def evaluate(tasks: list[Task], model: Any) -> practicum.Evaluation:
    parts = practicum.Parts(clients={"agent": model})
    how = {"agent": "tools:warehouse:World", "scorer": "warehouse:score", "max_turns": 4}
    return practicum.run_sync(practicum.evaluate(tasks, Context(), parts=parts, **how))


def test_the_files_are_what_their_script_writes(warehouse: ModuleType) -> None:
    import make_tasks

    for split, tasks in (("train", TRAIN), ("test", TEST)):
        made = [json.loads(json.dumps(task)) for task in make_tasks.tasks(split)]
        assert [(t["id"], t["input"], t["meta"]) for t in made] == [(t.id, t.input, dict(t.meta)) for t in tasks]
    assert len(TRAIN) >= 40
    assert len(TEST) >= 24
    assert not {t.input for t in TRAIN} & {t.input for t in TEST}
    for tasks, least in ((TRAIN, 4), (TEST, 2)):
        domains = Counter(task.meta["domain"] for task in tasks)
        assert domains.keys() == make_tasks.WORDINGS.keys()
        assert min(domains.values()) >= least


def test_who_knows_the_conventions_solves_every_task_in_few_turns(warehouse: ModuleType) -> None:
    model = solver()
    found = evaluate([*TRAIN, *TEST], model)
    assert found.score == 1.0
    assert max(r.trace.data["turns"] for r in found.attempts) <= 3
    told = "".join(call.text for call in model.calls if not call.prompt.turns)
    assert not any(statement in told for statements in SOLUTIONS.values() for statement in statements)


def test_who_does_not_know_them_solves_none(warehouse: ModuleType) -> None:
    found = evaluate([*TRAIN, *TEST], solver(naive))
    assert found.score == 0.0
    assert found.errors == 0


def test_the_note_names_the_wrong_state(warehouse: ModuleType) -> None:
    task = next(task for task in TRAIN if task.meta["domain"] == "cancel")
    order = int(task.meta["solution"][0].rsplit(" ", 1)[1])

    def scored(*statements: str) -> Score:
        with warehouse.World(task) as world:
            for statement in statements:
                world.sql(statement)
            score = warehouse.score(task, "", Trace("", data={"state": json.loads(json.dumps(world.state()))}))
            assert isinstance(score, Score)
            return score

    assert scored(*task.meta["solution"]) == Score(1.0, True)
    missing = f"audit should have a new row (code='CXL', ref={order}, day=20250314) and has none"
    assert scored(f"DELETE FROM orders WHERE id = {order}").note == (
        f"row {order} of orders was deleted and should still be there; {missing}"
    )
    assert scored("UPDATE orders SET status = 9").note.count("of orders is 9 and should be 1") == 29
    extra = "INSERT INTO audit (code) VALUES ('X')"
    assert scored(*task.meta["solution"], extra).note == "audit should not have the new row (code='X')"


def test_the_tool_shows_rows_and_reaches_nothing_else(warehouse: ModuleType, tmp_path: Path) -> None:
    with warehouse.World(TRAIN[0]) as world:
        assert world.sql("SELECT id, price FROM products WHERE id < 203") == "id | price\n201 | 3450\n202 | 18900"
        assert world.sql("SELECT * FROM audit") == "no rows"
        assert world.sql("SELECT * FROM orders").endswith("(30 rows, the first 20 shown)")
        assert world.sql("UPDATE orders SET status = 5 WHERE id = 1001") == "ok, 1 row changed"
        several = "UPDATE orders SET status = 9 WHERE id = 1002; SELECT ';' AS a, status FROM orders WHERE id = 1002;\n"
        assert world.sql(several) == "ok, 1 row changed\na | status\n; | 9"
        for forbidden in (
            f"ATTACH '{tmp_path}/x' AS x", f"VACUUM INTO '{tmp_path}/x'", "DROP TABLE orders", "PRAGMA user_version",
            "SELECT 'a", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT max(i) FROM n",
        ):  # fmt: skip
            with pytest.raises((sqlite3.Error, sqlite3.Warning)):
                world.sql(forbidden)
    assert not list(tmp_path.iterdir())
