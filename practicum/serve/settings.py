"""The settings of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from practicum.core.types import Profile
from practicum.engine.door import Review
from practicum.session.outcomes import Trusted


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """How a service learns and serves.

    `store` is a folder of this service alone, or a PostgreSQL database that several nodes share; `folder` is that of
    the store, or one of the node's own, for logs and for what can be made again. `spaces` are served; the first is that
    of requests that name none. `context` is what the first one starts from. `review` says what waits for review (None:
    what the space says; a new one: what is foreign), and `trusted` whose words do not, besides the operator's.
    Learning begins with `learn_every` outcomes, or `learn_minutes` after the first; its budgets are for a day and a
    space. `judge` is the share of answers without an outcome that a judge scores for learning. `canary` is the share of
    sessions that see a candidate, and `canary_length` how many scored requests it gets. `memory` is how many megabytes
    open spaces take, about: beyond that those are closed that were not asked for longest. `max_read` is how many
    megabytes the largest request, answer or event has that is read and kept: a larger one passes unchanged, and is
    counted.
    """

    store: Path | URL
    folder: Path
    spaces: tuple[str, ...] = ("default",)
    context: str | None = None
    method: str | None = None
    profile: Profile | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    review: Review | None = None
    trusted: Trusted = field(default_factory=Trusted)
    learn: bool = True
    learner: str | None = None
    judge: float = 0.0
    learn_every: int = 20
    learn_minutes: float = 60.0
    max_calls_day: int | None = None
    max_usd_day: float | None = None
    canary: float = 0.2
    canary_length: int = 200
    memory: int = 4_000
    max_read: int = 8
    webhook: str | None = None
