"""Trackers: watches that send a run to a tracker of experiments. Plug-ins (entry point group `practicum.trackers`)."""

from __future__ import annotations

from typing import Protocol

from practicum.core.plugins import Group, called
from practicum.session.result import Watch


class TrackerKind(Protocol):
    """Makes a tracker, with the name of the run there, and the group that it belongs to. Raises UsageError if a package
    or a login is missing."""

    def __call__(self, *, name: str | None = None, group: str | None = None) -> Watch: ...


TRACKERS: Group[TrackerKind] = Group("practicum.trackers", "tracker", called, unknown="tracker.unknown")
