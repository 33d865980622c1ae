"""Kills of a process at a chosen moment: when it is about to write a certain row, or to make the tables."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from practicum.store import schema
from practicum.store.database import Store

BEFORE_THE_TABLES = ("", "", 1)


def kill_before(table: str, text: str, number: int) -> None:
    """Kill this process before it writes a row of a table: row `number`, from 1, of the rows whose values contain the
    text. BEFORE_THE_TABLES kills it before it makes the tables."""
    seen = 0

    def killing(write: Callable[..., Any]) -> Callable[..., Any]:
        def checked(store: Store, into: Any, rows: Any) -> Any:
            nonlocal seen
            for row in rows:
                seen += into.name == table and text in str(row)
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return write(store, into, rows)

        return checked

    if not table:
        schema.FORMAT = replace(schema.FORMAT, create=lambda db: os.kill(os.getpid(), signal.SIGKILL))
    Store.write, Store.post = killing(Store.write), killing(Store.post)  # type: ignore[method-assign]
