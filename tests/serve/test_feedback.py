"""Feedback: its rules, whose word it is, what holds at once, and what is still known after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import asynchronous, served
from sqlalchemy import select

from practicum.core.errors import StoreError
from practicum.serve import tables
from practicum.serve.identities import add_space
from practicum.serve.log import FolderDatabase, Log

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


# Corrections


@pytest.mark.slow
@asynchronous
async def test_of_a_thousand_requests_none_is_shown_what_was_replaced(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for n in range(50):
            for version in ("old", "new"):
                id = (await at.ask(f"Which team handles case {n} of department {n % 7}?")).interaction
                await at.report(interaction=id, target=f"the {version} team {n}")
        shown = [await at.shown(f"Which team handles case {n % 50} of department {n % 7}?") for n in range(1_000)]
        assert sum("the old team" in text for text in shown) == 0
        assert all(f"the new team {n % 50}\n" in text for n, text in enumerate(shown) if n % 50 % 7 == n % 7)


# What is kept


def live(log: Log) -> str:
    """The identity of a space that is made here."""
    return str(log.do(lambda db: add_space(db, "s", "live").run_id).result())


def test_what_cannot_be_written_is_refused_and_written_later(tmp_path: Path) -> None:
    log = Log(FolderDatabase(tmp_path))
    row = {"run_id": live(log), "id": "i1", "at": 1.0, "version": 0, "data": "{}"}
    with log.database.engine.connect() as db:
        pages = db.exec_driver_sql("PRAGMA page_count").scalar_one()
    # As much as the file has: every page more is refused as by a full disk.
    full = lambda db: db.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # noqa: E731
    log.do(full).result()
    log.post(tables.interactions, {**row, "data": "x" * 100_000})
    with pytest.raises(StoreError, match="is the disk full"):
        log.do(lambda db: db.execute(tables.interactions.insert().values(**{**row, "id": "i2"}))).result()
    with log.database.engine.connect() as db:
        db.exec_driver_sql("PRAGMA max_page_count = 1000000")
    log.close()
    again = Log(FolderDatabase(tmp_path))
    assert [row.id for row in again.rows(select(tables.interactions))] == ["i1"]
    again.close()


def test_a_change_that_is_refused_undoes_nothing_of_others(tmp_path: Path) -> None:
    log = Log(FolderDatabase(tmp_path))

    def refuse(db: object) -> None:
        raise ValueError("no")

    row = {"run_id": live(log), "id": "i1", "at": 1.0, "version": 0, "data": "{}"}
    log.post(tables.interactions, row)
    refused = log.do(refuse)
    with pytest.raises(ValueError, match="no"):
        refused.result()
    log.close()
    again = Log(FolderDatabase(tmp_path))
    assert len(again.rows(select(tables.interactions))) == 1
    again.close()
