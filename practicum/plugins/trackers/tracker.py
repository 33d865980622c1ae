"""Base class of experiment trackers: selects the data of a run, sends it, and counts failures."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Literal

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.metrics import METRICS
from practicum.core.requirements import pip_install
from practicum.core.types import Usage
from practicum.core.views import render_full
from practicum.core.words import error_line
from practicum.engine.loop import StepReport, mean_score
from practicum.session.result import Evaluation, Progress, Result, RunInfo, Watch

State = Literal["done", "stopped", "failed"]

_Job = tuple[Callable[[], object], int]
"""Function that the tracker's thread calls, and the number of the step whose metrics the function sends; 0 if the
function does not send the metrics of a step."""

PATIENCE = 30.0
"""Timeout (s) at the end of a run for sending the remaining records."""

SPREAD = 1.25
"""Contexts are sent at growing intervals: after the context of step n, the next context is sent at step SPREAD * n or
later. A run of 1,000 steps sends 27 contexts."""

UNSENT = {"instructions", "choices", "sections", "trace_faults"}
"""Fields of the configuration that are not sent, because they contain texts about the tasks."""

log = logging.getLogger("practicum.trackers")


def require(name: str, *packages: str) -> None:
    """Raise UsageError if a package of the tracker is not installed."""
    if any(find_spec(package) is None for package in packages):
        raise UsageError(
            "extra.missing", f"the tracker {name} needs packages that are not installed: {pip_install(name)}"
        )


def parameters(run: RunInfo) -> dict[str, Any]:
    """Return the configuration of a run as flat values. Texts about tasks are left out, and credentials are removed
    from addresses."""
    config = run.config.model_dump(mode="json", exclude=UNSENT, exclude_none=True)
    settings, roles = config.pop("settings"), config.pop("roles")
    config |= {f"settings.{name}": value for name, value in settings.items()}
    config |= {f"roles.{name}": value for name, value in roles.items()}
    config |= {f"tasks.{name}": len(tasks) for name, tasks in run.splits.by_name.items()}
    redacted: dict[str, Any] = json.loads(re.sub(r'//[^/@\s"]+@', "//", json.dumps(config)))
    return {**redacted, "folder": str(run.folder)}


def step_values(report: StepReport, progress: Progress) -> dict[str, float]:
    """Return the metrics of a step: scores so far, edits of the step, and total cost so far."""
    metrics = {
        "score.mean": progress.score,
        "score.best_of_k": progress.best_of_k,
        "score.step": mean_score(report.attempts) if any(r.first.score for r in report.attempts) else None,
        "score.validation": report.val,
        "score.validation_best": progress.best_score,
        "context.version": report.context.version,
        "context.entries": len(report.context),
        "context.tokens": render_full(report.context).tokens,
        "learning.lessons": sum(bool(x.text) for lesson in report.lessons for x in lesson.each),
        "learning.edits": len(report.applied),
        "learning.refused": progress.refused,
        "latency.step_seconds": report.seconds,
    }
    values = {METRICS[name].tracker: value for name, value in metrics.items() if value is not None}
    return {**values, **usage_values(progress.usage)}


def usage_values(usage: Usage) -> dict[str, float]:
    """Return the usage of calls as metrics, with the cost in dollars if the cost is known."""
    values = {"tokens": usage.tokens, **asdict(usage)}
    return {METRICS[f"cost.{name}"].tracker: value for name, value in values.items() if value is not None}


def final_values(result: Result | Evaluation) -> dict[str, float]:
    """Return the final metrics of a run or an evaluation."""
    if isinstance(result, Result):
        scores, counts = result.scores, {**result.errors, "refused_edits": result.refused}
    else:
        scores = {"eval": result.score, **result.measures} if result.n else result.measures
        counts = {**result.counts, "errors": result.errors}
    counted = {f"counts.{name}": count for name, count in counts.items()}
    return {**scores, **counted, **usage_values(result.usage), "seconds": result.seconds}


class Tracker(Watch):
    """Base class of a tracker that sends a run to a service from a separate thread, so that a slow service does not
    delay the run.

    A record that cannot be sent is dropped and counted, and the first failure is logged; the run continues. A resumed
    run is sent to the service under the id that is stored in the run's folder, from the first step that was not sent
    before. `name` is the name of the run at the service (default: name of the run's folder). `group` is the group of
    the run at the service.
    """

    service: ClassVar[str]

    def __init__(self, name: str | None = None, group: str | None = None) -> None:
        self.name, self.group = name, group
        self._thread = threading.Thread()

    @abstractmethod
    def open(self, run: RunInfo, id: str | None) -> str:
        """Start a run at the service, or continue the run with this id. Return the id of the started or continued
        run."""

    @abstractmethod
    def send(self, values: Mapping[str, float], step: int) -> None:
        """Send metrics of a step."""

    @abstractmethod
    def save(self, context: Context, step: int, label: str) -> None:
        """Send a context as markdown and as JSON. The label is "step-N" for the context after step N. At the end of the
        run, the label is "best" for the context that the run returns, and "last" for the context of the last step if
        the run failed or returns a different context."""

    @abstractmethod
    def close(self, state: State, reason: str) -> None:
        """End the run at the service. `reason` is the reason why the run was stopped early; empty if the run was not
        stopped."""

    def began(self, run: RunInfo) -> None:
        if self._thread.is_alive():
            raise UsageError(
                "tracker.unusable", f"a tracker follows one run at a time: create a {type(self).__name__} for each run"
            )
        self._run, self._context, self._step, self._lost = run, run.context, 0, 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        stored = _read(self._file) if run.splits.train else {}
        self._id, self._sent = stored.get("id"), stored.get("step", 0)
        self._due = self._sent * SPREAD
        self._thread = threading.Thread(target=self._work, name=f"practicum-{self.service}", daemon=True)
        self._thread.start()

    def stepped(self, report: StepReport, progress: Progress) -> None:
        new = report.context.version != (self._context.version if self._context else 0)
        self._context, self._step = report.context, report.step
        if report.step <= self._sent:
            return  # a resume reports again all steps in the journal, and this step was sent before the resume
        self._put(self.send, step_values(report, progress), report.step, done=report.step)
        if new and report.step >= self._due:
            self._due = report.step * SPREAD
            self._put(self.save, report.context, report.step, f"step-{report.step}")

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        if score is not None:
            self._put(self.send, {name: score, f"{name}_tasks": scored}, self._step)

    def ended(self, result: Result | Evaluation | None) -> None:
        reason = (result.stopped if result is not None else None) or ""
        if result is not None:
            self._put(self.send, final_values(result), self._step)
        best = result.context if isinstance(result, Result) else self._context
        if best is not None and best != self._context and self._context is not None:
            self._put(self.save, self._context, self._step, "last")
        if best is not None:
            self._put(self.save, best, self._step, "last" if result is None else "best")
        self._put(self.close, "failed" if result is None else "stopped" if reason else "done", reason)
        self._jobs.put(None)

    async def flush(self) -> None:
        await asyncio.to_thread(self._thread.join, PATIENCE)
        if self._thread.is_alive():
            left = self._jobs.qsize()
            log.warning("%s: stopped sending after %g s; %d records were not sent", self.service, PATIENCE, left)
            self._lost += left
        self._run.counts[Count.UNTRACKED_RECORDS] += self._lost

    @property
    def _file(self) -> Path:
        return self._run.folder / f"{self.service}.json"

    def _put(self, do: Callable[..., object], *args: Any, done: int = 0) -> None:
        self._jobs.put((partial(do, *args), done))

    def _work(self) -> None:
        """Run the jobs in order. If the run cannot be opened at the service, drop all jobs and count them as lost."""
        try:
            self._id = self.open(self._run, self._id)
        except Exception as error:
            self._fail(error)
            while self._jobs.get() is not None:
                self._lost += 1
            return
        job: _Job | None = (self._store, 0)
        while job is not None:
            do, step = job
            try:
                do()
                self._sent = step or self._sent
                if step and self._jobs.empty():
                    self._store()
            except Exception as error:
                self._fail(error)
            job = self._jobs.get()
        self._store()

    def _store(self) -> None:
        """Store, for a resume, the id of the run at the service and the number of the last step that was sent."""
        if self._run.splits.train:
            write_atomic(self._file, json.dumps({"id": self._id, "step": self._sent}), private=True)

    def _fail(self, error: Exception) -> None:
        if not self._lost:
            reason = error_line(error)
            log.warning("%s: could not send a record, the run continues without it (%s)", self.service, reason)
        self._lost += 1


def _read(path: Path) -> dict[str, Any]:
    """Read the file written by `_store`. Return {} if the file is missing or damaged; the tracker then starts a new run
    at the service."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {"id": str(stored["id"]), "step": int(stored["step"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
