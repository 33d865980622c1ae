"""Messages between the run and an attempt on a worker, sent as pickled bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from practicum.core.types import Profile, Task, Trace
from practicum.core.views import View

Kind = Literal["reply", "mended", "give_up", "text", "observed", "recall", "decided", "approve", "embed"]
"""Kind of a request from an attempt to the run. `observed` reports the result of an action, and `decided` reports the
result of a decision. `recall` asks for the result of a decision that was reported before."""


@dataclass(frozen=True, slots=True)
class Job:
    """An attempt at a task, or the scoring of an attempt."""

    place: str
    """Place of the attempt in the journal."""

    task: Task
    profile: Profile
    room: int
    """Number of tokens available for the agent's prompt."""

    view: View | None = None
    trace: Trace | None = None
    """Trace to score; None if the job is an attempt."""

    redacted: Mapping[str, str] = field(default_factory=dict)
    """Original values of the placeholders in the task, for tools that need the original values."""

    approves: bool = False
    """Whether a tool call that the guard holds can be sent to the run for approval."""


@dataclass(frozen=True, slots=True)
class RayRequest:
    """Request from an attempt to its run. An attempt that is repeated sends the same requests at the same places and
    gets the same answers."""

    kind: Kind
    at: tuple[str, ...]
    """Names on the path from the place of the attempt to the place of the request."""

    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class RayAnswer:
    """Result of a request: a value or an error. `redacted` has the original values of the placeholders in the value."""

    value: Any = None
    error: BaseException | None = None
    redacted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RayOutcome:
    """Result of a job: a trace or a score, or an error."""

    value: Any = None
    error: BaseException | None = None
