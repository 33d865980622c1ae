"""MIPROv2: instructions and demonstrations are proposed, and their combinations searched by Bayesian optimization
(Opsahl-Ong et al., 2024, section 4).

The `dspy` package is its optimizer. Deviations: the program is one predictor, our agent, whose code is not shown to the
model that proposes; its instruction stands beside the agent's own, its demonstrations are earlier turns of the chat.
Its prompts are the package's, its answers JSON; a call that is lost proposes nothing and is counted. Of equal attempts
one is made. Defaults are those of the package's "light" search, with as many instructions as sets of demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from practicum.blocks.accept.always import always
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import as_experience
from practicum.blocks.sample.orders import everything
from practicum.blocks.search.mipro_search import MiproSettings, answer_with_combination, bayesian_search
from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Lesson
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.settings import MethodSettings


class Settings(MethodSettings):
    """Settings of MIPROv2."""

    TRACES: ClassVar = None
    NO_GATE: ClassVar[str] = "judges its candidates itself"
    REQUIRES: ClassVar[tuple[str, ...]] = ("dspy", "optuna")

    candidates: int = Field(default=6, ge=1)
    """Instructions, and as many sets of demonstrations, of which the search combines one each."""
    trials: int = Field(default=10, ge=1)
    """Combinations tried."""
    minibatch: int = Field(default=35, ge=1)
    """Tasks a combination is tried on; on all of them where there are no more."""
    full: int = Field(default=5, ge=1)
    """Trials after which the best combination so far is compared on all tasks."""
    bootstrapped: int = Field(default=4, ge=0)
    """Right answers of the agent's own in a set of demonstrations, at most."""
    labeled: int = Field(default=4, ge=0)
    """Demonstrations a set is filled up to with right answers of tasks."""
    warmth: float = Field(default=1.0, ge=0)
    """Temperature at which instructions are written."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.online:
            raise ValueError("candidates are tried on the same tasks, and a stream shows each once: leave out online")
        if self.labeled and not self.bootstrapped:
            raise ValueError("sets are drawn from the agent's own answers first: set bootstrapped, or labeled=0 too")
        return self


def method(s: Settings) -> Method:
    """Attempt tasks for demonstrations, have instructions proposed, try combinations of both, keep the best."""
    act = answer_with_combination()
    search = MiproSettings(s.candidates, s.trials, s.minibatch, s.full, s.bootstrapped, s.labeled, s.warmth)

    return Method(
        name="mipro",
        sample=everything(),
        act=act,
        attempt=once(act),
        reflect=as_experience(),
        update=left_to_the_search,
        accept=always,
        schedule=bayesian_search(search),
        roles=("curator",),
        costs="attempts for demonstrations, trying each combination on a minibatch, a call for each instruction",
    )


async def left_to_the_search(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """No delta of lessons: the search writes its candidates down itself."""
    return Delta()
