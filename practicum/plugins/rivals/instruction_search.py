"""Searching for better instructions: settings, and how candidates are written, scored and kept (`opro`, `ape`,
`protegi`, `erm`, `evoprompt`, `promptbreeder`, `textgrad`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from practicum.blocks.act.show import answer
from practicum.blocks.sample.orders import drawn
from practicum.engine.loop import Method, UpdateSeam
from practicum.methods.settings import CandidateSettings
from practicum.plugins.rivals.demonstrations import demonstrations
from practicum.plugins.rivals.search import best_instruction, each_once, keep_best


class SearchSettings(CandidateSettings):
    """Settings of methods that search for better instructions."""

    steps: int = Field(default=12, ge=1)
    """The number of steps."""
    batch: int = Field(default=16, ge=1)
    """Tasks of a step; all candidates of the step are tried on them."""


class BeamSettings(SearchSettings):
    """Settings of methods that score all candidates on the same tasks."""

    SMALL: ClassVar[Mapping[str, Any]] = {"steps": 4, "batch": 16, "candidates": 4, "beam": 4}

    batch: int = Field(default=50, ge=1)
    """Tasks on which every candidate is scored: the same ones in each step, drawn once."""
    candidates: int = Field(default=8, ge=1)
    """New candidates of a step, each written by a call of its own."""
    beam: int = Field(default=20, ge=1)
    """The number of candidates kept: the best ones."""


def search(s: BeamSettings, name: str, update: UpdateSeam) -> Method:
    """Write candidates after reading some of the tasks, score each on the same tasks, keep the best. An attempt is made
    with the best one."""
    attempt = each_once(answer(best_instruction))
    return Method(
        name=name,
        sample=drawn(s.steps, s.batch, anew=False),
        act=answer(best_instruction),
        attempt=attempt,
        reflect=demonstrations,
        update=update,
        accept=keep_best(attempt, s.beam),
        roles=("curator",),
        costs="a call for each candidate, and trying it on the batch",
    )
