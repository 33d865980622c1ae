"""Combination of the caller's observers of a run into one observer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from practicum.core.errors import UsageError
from practicum.session.notebook import Notebook, in_notebook
from practicum.session.result import Evaluation, Result, RunInfo, Watch


class Watches(Watch):
    """Several observers of one run, combined into one observer. Each of the observers receives every event, in the
    order of the list. An observer that did not receive `began` does not receive `ended`, because such an observer may
    be observing another run."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches
        self._begun: list[Watch] = []
        for event, _ in inspect.getmembers(Watch, inspect.isfunction):
            if event not in vars(Watches):
                setattr(self, event, partial(self._notify_all, event))

    def _notify_all(self, event: str, *arguments: Any) -> None:
        for watch in self._watches:
            _notify(watch, event, *arguments)

    def began(self, run: RunInfo) -> None:
        for watch in self._watches:
            _notify(watch, "began", run)
            self._begun.append(watch)

    def ended(self, result: Result | Evaluation | None) -> None:
        for watch in self._begun:
            _notify(watch, "ended", result)

    async def flush(self) -> None:
        for watch in self._begun:
            await watch.flush()


def _notify(watch: Watch, event: str, *arguments: Any) -> None:
    try:
        getattr(watch, event)(*arguments)
    except SystemExit as error:
        raise UsageError(
            "code.exited",
            f"{type(watch).__name__}.{event}, a watch, called sys.exit({error.code!r}): to end a run early, call "
            "`run.budget.stop(reason)` on the run that `began` receives",
        ) from error


def one_watch(watch: Watch | Sequence[Watch] | None) -> Watch:
    """Return the `watch` argument (None, an observer, or several) as one observer. In a notebook, None becomes
    a display.

    Raises UsageError for a `watch` of another type.
    """
    if watch is None and in_notebook():
        return Notebook()
    watches: list[Any] = [] if watch is None else [*watch] if isinstance(watch, list | tuple) else [watch]
    if wrong := [each for each in watches if not isinstance(each, Watch)]:
        raise UsageError(
            "settings.invalid",
            f"watch= takes a practicum.Watch or a list of Watches, not {wrong[0]!r}",
            setting="watch",
        )
    return Watches(watches)
