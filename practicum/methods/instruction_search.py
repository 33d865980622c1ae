"""Searching for better instructions: settings, and how candidates are proposed, tried and kept (`opro`, `ape`,
`protegi`, `evoprompt`, `textgrad`)."""

from __future__ import annotations

from pydantic import Field

from practicum.blocks.act.show import answer
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import per_trace, without_reflector
from practicum.blocks.sample.orders import shuffled_epochs
from practicum.blocks.search.candidates import ProposalPrompt, best_instruction, keep_best, propose
from practicum.engine.loop import Method, ReflectSeam
from practicum.methods.settings import Batched, CandidateSettings


class SearchSettings(CandidateSettings, Batched):
    """Settings of methods that search for better instructions."""

    batch: int = Field(default=16, ge=1)
    """Tasks of a step; all candidates of the step are tried on them."""


class BeamSettings(SearchSettings):
    """Settings of methods that keep several candidates."""

    candidates: int = Field(default=4, ge=1, le=8)
    """The number of new candidates of a step."""
    beam: int = Field(default=4, ge=1)
    """The number of candidates kept: the best ones."""


def search(
    s: BeamSettings, name: str, system: str, ask: ProposalPrompt, reflect: ReflectSeam | None = None,
    shown: int | None = None,
) -> Method:  # fmt: skip
    """Attempt a batch with the best candidate, propose others, try them on the same batch, keep the best. The proposing
    model reads the best `shown` candidates (None: all)."""
    act = answer(best_instruction)
    return Method(
        name=name,
        sample=shuffled_epochs(s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=reflect or per_trace(without_reflector),
        update=propose(system, ask, s.candidates, s.warmth, shown),
        accept=keep_best(s.beam),
        roles=("curator", *(["reflector"] if reflect else [])),
        costs="trying each candidate on the batch" + (", a reflection for each failure" if reflect else ""),
    )
