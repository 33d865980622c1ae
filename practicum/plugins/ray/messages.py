"""What crosses between the run and an attempt on a worker, as pickled values of these classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from practicum.core.types import Profile, Task, Trace
from practicum.core.views import View

Kind = Literal["reply", "mended", "give_up", "text", "observed", "recall", "decided", "approve", "embed"]
"""What an attempt asks the run for. `observed` and `decided` tell it what an action or a decision returned."""


@dataclass(frozen=True, slots=True)
class Job:
    """An attempt at a task, or the score of one (`trace`), at the place of its run. `room` is in tokens. `kept` has
    what the placeholders in it stand for, if tools are to get that. `approves` says that somebody can be asked."""

    place: str
    task: Task
    profile: Profile
    room: int
    view: View | None = None
    trace: Trace | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    approves: bool = False


@dataclass(frozen=True, slots=True)
class RayRequest:
    """What an attempt asks its run for, at the places `at` below its own, one below the other. The same attempt that
    is made again asks the same there, and is given the same."""

    kind: Kind
    at: tuple[str, ...]
    name: str
    given: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class RayAnswer:
    """What came of a request: a value, or the error that it ended with. `kept` as in `Job`."""

    value: Any = None
    error: BaseException | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RayOutcome:
    """How a job ended: with a trace or a score, or with an error."""

    value: Any = None
    error: BaseException | None = None
