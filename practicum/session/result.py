"""What comes of a run, and who looks on while it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from practicum.core.context import Context
from practicum.core.edits import entry_json
from practicum.core.types import Usage
from practicum.core.views import render_full
from practicum.engine.loop import StepReport

if TYPE_CHECKING:
    from practicum.session.learn import Session


@dataclass(frozen=True)
class Result:
    """What came of a run. `scores` has before, val_best, test, online, each where it applies, in [0, 1]. `seconds` is
    how long it took, `critical` how long its calls take of which each waits for the one before: with any number of them
    at once it cannot go faster."""

    run: Path
    context: Context
    scores: dict[str, float]
    usage: Usage
    by_role: dict[str, Usage]
    seconds: float
    critical: float
    hits: int
    refused: int
    errors: dict[str, int]
    steps: int
    stopped: str | None = None
    interrupted: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them; `stopped` only where it was."""
        values = {
            "run": str(self.run),
            "version": self.context.version,
            "entries": [entry_json(e) for e in self.context],
            "context_tokens": render_full(self.context).tokens,
            "seconds": round(self.seconds, 3),
            "scores": self.scores,
            "usage": usage_json(self.usage),
            "by_role": roles_json(self.by_role),
            "journal": {"hits": self.hits},
            "refused": self.refused,
            "errors": self.errors,
        }
        return values if self.stopped is None else {**values, "stopped": self.stopped}


def usage_json(usage: Usage) -> dict[str, Any]:
    """Usage as plain values; `usd` is null where a price is unknown."""
    return {
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "usd": usage.usd,
    }


def roles_json(by_role: Mapping[str, Usage]) -> dict[str, Any]:
    """Usage of each role as plain values."""
    return {role: usage_json(usage) for role, usage in by_role.items()}


class Watch(Protocol):
    """Someone who looks on. Every method may be called often and must return at once."""

    def began(self, session: Session) -> None: ...

    def evaluating(self, session: Session, name: str, tasks: int) -> None: ...

    def evaluated(self, session: Session, name: str, score: float | None, scored: int) -> None:
        """`scored` tasks could be scored; there is no score where none could."""

    def stepped(self, session: Session, report: StepReport) -> None: ...


class Nobody:
    """Looks away."""

    def began(self, session: Session) -> None: ...

    def evaluating(self, session: Session, name: str, tasks: int) -> None: ...

    def evaluated(self, session: Session, name: str, score: float | None, scored: int) -> None: ...

    def stepped(self, session: Session, report: StepReport) -> None: ...
