"""Work in a child process that is killed at a chosen moment."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

KILLED = 9

WRITES = ("INSERT", "UPDATE", "DELETE", "VACUUM", "PRAGMA WAL_CHECKPOINT", "PRAGMA USER_VERSION", "ALTER", "DROP")


@contextmanager
def counted(moment: Callable[[], None]) -> Iterator[None]:
    """Call a function after each statement that writes, each commit, and each change of a file outside databases."""
    commit, truncate, unlink, replace = DefaultDialect.do_commit, os.truncate, os.unlink, os.replace

    def executed(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.lstrip().upper().startswith(WRITES):
            moment()

    def after(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            moment()
            return result

        return call

    event.listen(Engine, "after_cursor_execute", executed)
    DefaultDialect.do_commit = after(commit)  # type: ignore[method-assign]
    os.truncate, os.unlink, os.replace = after(truncate), after(unlink), after(replace)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", executed)
        DefaultDialect.do_commit = commit  # type: ignore[method-assign]
        os.truncate, os.unlink, os.replace = truncate, unlink, replace


def moments(work: Callable[[], object]) -> int:
    """The number of moments of some work at which `killed` can end it."""
    count = 0

    def moment() -> None:
        nonlocal count
        count += 1

    def child() -> int:
        with counted(moment):
            work()
        return count

    return int(in_child(child))


def killed(work: Callable[[], object], at: int) -> None:
    """Do some work in a process that ends at its moment `at`, from 0 on, as by a kill."""
    left = at

    def moment() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(KILLED)

    def child() -> None:
        with counted(moment):
            work()

    assert in_child(child) is KILLED


def in_child(work: Callable[[], object]) -> Any:
    """The result of some work in a child process; KILLED if the child was killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            result = pickle.dumps(work())
            os.write(writing, result)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        pickled = answer.read()
    _, status = os.waitpid(pid, 0)
    code = abs(os.waitstatus_to_exitcode(status))
    assert code in (0, KILLED), f"the child ended with {code}"
    return KILLED if code == KILLED else pickle.loads(pickled)
