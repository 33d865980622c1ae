"""Dynamic Cheatsheet: one sheet of strategies, written anew as a whole after each task (Suzgun et al., 2025).

It has two forms: cumulative, and retrieval and synthesis, where a sheet is written for each task from attempts at
similar tasks. Deviations: each attempt is shown with the feedback that learning may see (`--no-labels` is the paper's
setting); the length of the sheet is bounded, because a small model writes until it is cut off; worked examples show
what a sheet looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, full_view
from practicum.blocks.attempt.attempt import once
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.cheatsheet import (
    append_attempts,
    attempts_as_lessons,
    rewrite_cheatsheet,
    synthesized_cheatsheet,
)
from practicum.engine.loop import Method
from practicum.methods.settings import Batched


class Settings(Batched):
    """Settings of Dynamic Cheatsheet."""

    form: Literal["cumulative", "synthesis"] = "cumulative"
    """cumulative: rewrite the sheet after each step; synthesis: write one for each task, from similar attempts."""
    k: int = Field(default=3, ge=1)
    """synthesis: the number of attempts that a sheet is written from."""

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        return {} if values.get("form") == "synthesis" else {"k": "needs form=synthesis"}


def method(s: Settings) -> Method:
    """Attempt with the sheet, then rewrite it."""
    whole = s.form == "cumulative"
    act = answer(full_view if whole else synthesized_cheatsheet(WRITER, s.k))
    return Method(
        name="dynamic_cheatsheet",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=attempts_as_lessons,
        update=rewrite_cheatsheet(WRITER) if whole else append_attempts,
        accept=always,
        roles=("curator",),
        act_roles=() if whole else ("curator",),
        act_calls=1 if whole else 2,
        costs="one call a step",
    )


WRITER = """\
You keep the cheatsheet of an agent: what helps it with the tasks to come. From the attempts you are shown keep \
strategies that work, solutions and facts that can be used again, and mistakes to avoid. Judge for yourself what in an \
attempt is right. Write the whole cheatsheet anew: what is not in your new version is lost, so carry over all that is \
still of use, make it shorter where you can, and put what matters most first."""
