"""MIPROv2: instructions and demonstrations are proposed, and their combinations searched by Bayesian optimization
(Opsahl-Ong et al., 2024, section 4).

The optimizer is that of the `dspy` package. Deviations: the program is one predictor, our agent, whose code the
proposing model does not see; its instruction is shown beside the agent's own, and its demonstrations are earlier turns
of the chat. The prompts are the package's, the answers are JSON; a lost call proposes nothing and is counted. Equal
attempts are made once. Defaults are those of the package's "light" search, with as many instructions as sets of
demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import as_experience
from practicum.blocks.sample.orders import everything
from practicum.engine.loop import Method
from practicum.methods.none import keep_nothing
from practicum.methods.settings import CandidateSettings
from practicum.plugins.rivals.mipro_search import MiproSettings, bayesian_search, best_combination


class Settings(CandidateSettings):
    NO_GATE: ClassVar[str] = "judges its candidates itself"
    REQUIRES: ClassVar[tuple[str, ...]] = ("dspy", "optuna")

    candidates: int = Field(default=6, ge=1)
    """The number of instructions, and of sets of demonstrations; the search combines one of each."""
    trials: int = Field(default=10, ge=1)
    """The number of combinations that are tried."""
    minibatch: int = Field(default=35, ge=1)
    """Tasks that a combination is tried on; all tasks if there are fewer."""
    full: int = Field(default=5, ge=1)
    """Trials between comparisons of the best combination so far on all tasks."""
    bootstrapped: int = Field(default=4, ge=0)
    """The most right answers of the agent itself in a set of demonstrations."""
    labeled: int = Field(default=4, ge=0)
    """The number of demonstrations up to which a set is filled with target answers."""

    def conflicts(self) -> Iterator[tuple[object, str]]:
        yield from super().conflicts()
        none = self.labeled and not self.bootstrapped
        yield none, "sets are drawn from the agent's own answers first: set bootstrapped, or labeled=0 too"


def method(s: Settings) -> Method:
    """Attempt tasks for demonstrations, have instructions proposed, try combinations of both, keep the best."""
    act = answer(best_combination)
    search = MiproSettings(s.candidates, s.trials, s.minibatch, s.full, s.bootstrapped, s.labeled, s.warmth)
    return Method(
        name="mipro",
        sample=everything,
        act=act,
        attempt=once(act),
        reflect=as_experience,
        update=keep_nothing,
        accept=always,
        schedule=bayesian_search(search),
        roles=("curator",),
        costs="attempts for demonstrations, trying each combination on a minibatch, a call for each instruction",
    )
