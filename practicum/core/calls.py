"""Calls of user functions, which may block, raise, hang, start an event loop or try to end the process."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any

_Queue = SimpleQueue[tuple[Context, Callable[[], Any], Future[Any]] | None]


class OwnThread:
    """Thread that runs functions one after another.

    Objects bound to a thread (such as a SQLite connection) work, and the functions need not be thread-safe. A cancelled
    call keeps running in its thread, and the next call gets a new thread. Neither the event loop nor the exit of Python
    waits for a function that hangs: the thread is a daemon.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Queue | None = None

    async def call(self, function: Callable[[], Any]) -> Any:
        """Return the result of the function, or raise its error. An async function runs in the event loop. Raises
        RuntimeError for SystemExit, which would end the process. KeyboardInterrupt is raised unchanged and stops the
        command."""
        try:
            value = function() if inspect.iscoroutinefunction(function) else await self._run(function)
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the function cancelled itself") from error

    async def _run(self, function: Callable[[], Any]) -> Any:
        if self._calls is None:
            self._calls = SimpleQueue()
            weakref.finalize(self, self._calls.put, None).atexit = False
            # A daemon thread, unlike the threads of an executor: before its exit, Python waits for all threads that are
            # not daemons.
            Thread(target=_work, args=(self._calls,), name=self._name, daemon=True).start()
        outcome: Future[Any] = Future()
        self._calls.put((copy_context(), function, outcome))
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        """End the thread after its current call."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


async def call_apart(name: str, function: Callable[[], Any]) -> Any:
    """Run one function by `OwnThread.call` in a new thread, and return its result. Several calls may run at the same
    time."""
    thread = OwnThread(name)
    try:
        return await thread.call(function)
    finally:
        thread.close()


def _work(calls: _Queue) -> None:
    while (call := calls.get()) is not None:
        context, function, outcome = call
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(context.run(function))
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                # A future cannot hold a StopIteration.
                stop = isinstance(error, StopIteration)
                outcome.set_exception(RuntimeError(f"StopIteration: {error}") if stop else error)
            except BaseException as error:
                outcome.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        del call, context, function, outcome
