"""Experiment trackers: observers that send a run to a tracking service. Plug-ins (entry point `practicum.trackers`)."""

from __future__ import annotations

from typing import Protocol

from practicum.core.plugins import Group, called
from practicum.session.result import Watch


class TrackerKind(Protocol):
    """Factory of a tracker; `name` and `group` are the run's name and group in the tracking service. Raises UsageError
    if a package or a login is missing."""

    def __call__(self, *, name: str | None = None, group: str | None = None) -> Watch: ...


TRACKERS: Group[TrackerKind] = Group("practicum.trackers", "tracker", called, unknown="tracker.unknown")
