"""What methods with a bank of memories share: how a task is attempted with what is remembered of others, how often, and
how memories are made of it (`reasoning_bank`, `unified`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from practicum.blocks.act.scaling import By, Scaling, in_parallel, in_sequence
from practicum.blocks.act.show import Show, answer, noting
from practicum.blocks.update.memory_bank import Extract, Index
from practicum.engine.run import ActSeam
from practicum.methods.settings import Batched

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "routine": {"k": 1, "memories": 3},
    "standard": {"k": 3, "memories": 5},
    "critical": {"k": 5, "memories": 10},
}
"""Trade-offs of the specification (section "Practical trade-offs")."""


class MemorySettings(Batched):
    """Settings of methods with a bank of memories."""

    preset: Literal["routine", "standard", "critical"] | None = None
    """Settings for tasks of this weight: attempts, memories shown and, for unified, passes of reflection."""
    scaling: Literal["parallel", "sequential", "none"] = "parallel"
    """parallel: k attempts at once, and the best of them; sequential: one attempt, refined up to k times."""
    k: int | None = Field(default=None, ge=1, le=64)
    """scaling: attempts (3 where nothing is said), or passes after the first attempt (5)."""
    memories: int = Field(default=5, ge=1)
    """Memories shown with a task: the most similar ones."""
    warmth: float = Field(default=0.7, ge=0)
    """scaling: temperature of the attempts, which at 0 would all be the same."""
    choose: By = "judge"
    """parallel: who chooses where no score may be seen, as in evaluation; sequential: who says that it is done."""
    notes: bool = False
    """sequential: each pass leaves a note, which the next pass and the memories are made from."""
    items: int = Field(default=3, ge=1, le=10)
    """Most memories of one attempt."""
    extract: Extract = "all"
    """all: memories of every attempt that came to something else, failures included; chosen: of the chosen one only."""
    extraction: float = Field(default=1.0, ge=0)
    """Temperature at which memories are written."""
    index: Index = "memory"
    """What a memory is found by: its own words, or the task it was learned from."""
    consolidate: bool = False
    """Merge a new memory into an older one that says the same; else nothing is ever dropped."""
    threshold: float = Field(default=0.85, gt=0, le=1)
    """Cosine similarity from which two entries say the same."""

    REPLACES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "scaling": ("k", "warmth", "choose", "notes"),
        "preset": ("k", "memories", "passes"),
    }

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Of one attempt there is no choice, and it need not differ from another."""
        once = values.get("scaling", "parallel") == "parallel" and str({**_preset(values), **values}.get("k")) == "1"
        return ("choose", "warmth") if once else ()

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, values: Any) -> Any:
        """What is set by hand goes before what a preset says."""
        return {**_preset(values), **values} if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        given = self.model_fields_set
        if self.scaling == "none" and (unused := given & {"k", "warmth", "choose"}):
            raise ValueError(f"{', '.join(sorted(unused))} needs scaling=parallel or sequential")
        if unused := given & {*MemorySettings.unused(self.model_dump())}:
            raise ValueError(f"{', '.join(sorted(unused))} needs k=2 or more, or scaling=sequential")
        if self.consolidate and self.index == "task":
            raise ValueError("consolidate=true compares memories by what they are found by: it needs index=memory")
        if self.notes and self.scaling != "sequential":
            raise ValueError("notes=true needs scaling=sequential: attempts at once do not read each other's")
        return self

    @property
    def attempts(self) -> int:
        """Most attempts at a task."""
        if self.scaling == "none":
            return 1
        return (self.k or 3) if self.scaling == "parallel" else 1 + (self.k or 5)

    @property
    def act_roles(self) -> tuple[str, ...]:
        """Roles that one `act` asks: a judge about each of several attempts."""
        return ("judge",) if self.choose == "judge" and self.attempts > 1 else ()

    @property
    def act_calls(self) -> int:
        """The most model calls of one `act`."""
        return self.attempts * (1 + len(self.act_roles))


def _preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the preset among these settings says."""
    chosen = dict(PRESETS.get(str(values.get("preset")), {}))
    if values.get("scaling") == "none":
        chosen.pop("k", None)
    return chosen


def acting(s: MemorySettings, show: Show, *, blind: bool) -> ActSeam:
    """One attempt, or as many as the settings ask for. A `blind` one is a prediction that counts."""
    warmth = s.warmth if s.attempts > 1 else None
    if s.scaling == "sequential":
        return in_sequence(answer(noting(show) if s.notes else show), Scaling(s.k or 5, warmth, s.choose, blind))
    return in_parallel(answer(show), Scaling(s.attempts, warmth, s.choose, blind))
