"""Settings of methods with a memory bank (`reasoning_bank`, `unified`), and the act of these methods: one or several
attempts at a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from practicum.core.clashes import Clash, needs
from practicum.engine.loop import ShowSeam
from practicum.methods.blocks.memory import Extract, Index
from practicum.methods.blocks.scaling import By, Scaling, Until, in_parallel, in_sequence
from practicum.methods.blocks.show import ActWithNote, answer, noting
from practicum.methods.settings import Batched, RetrievalSettings, SameFrom


class MemorySettings(Batched, RetrievalSettings):
    """Settings of methods with a memory bank."""

    preset: Literal["routine", "standard", "critical"] | None = None
    """routine, standard, critical: set the number of attempts, the number of memories shown and, for unified, the
    number of passes over the bullets, by the importance of the tasks."""
    scaling: Literal["parallel", "sequential", "none"] = "parallel"
    """parallel: the best of k concurrent attempts; sequential: one attempt, refined k times; none: one attempt."""
    k: int | None = Field(default=None, ge=0, le=64)
    """parallel: the number of attempts (default 3); sequential: the number of passes after the first attempt (default
    5; 0: no pass)."""
    until: Until = "k"
    """sequential: the condition that ends the passes. k: all `k` passes are made; judge: a judge accepts the answer;
    score: the score says that the answer is right, if learning may see scores; agreement: a pass gives the same answer
    as the attempt before this pass."""
    memories: int = Field(default=5, ge=1)
    """The number of memories shown with a task: the most similar ones."""
    warmth: float = Field(default=0.7, ge=0)
    """parallel, sequential: the temperature of the attempts. At temperature 0 all attempts would be equal."""
    choose: By = "judge"
    """parallel: the way to choose an attempt if the choice may not see scores. judge: a judge chooses; agreement: the
    answer that most attempts gave is chosen."""
    notes: bool = False
    """sequential: each pass leaves a note for the next pass and for the extraction of memories."""
    contrast: bool = True
    """parallel: contrast the attempts at a task with each other. The contrast is used to extract memories, and to
    choose among equally good attempts."""
    items: int = Field(default=3, ge=1, le=10)
    """The maximum number of memories extracted from one attempt."""
    extract: Extract = "all"
    """all: extract memories from one attempt for each different outcome, failures included; successes: only from
    successes; chosen: only from the chosen attempt."""
    extraction: float = Field(default=1.0, ge=0)
    """The temperature for extracting memories."""
    index: Index = "memory"
    """The text by which a memory is retrieved. memory: the text of the memory; task: the task that the memory was
    learned from."""
    consolidate: bool = False
    """Merge a new memory into an older memory with the same meaning; false: memories are never merged or retired."""
    threshold: SameFrom = "auto"
    """The smallest cosine similarity at which two entries count as the same; auto: measured for the embedder."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "routine": {"k": 1, "memories": 3, "passes": 3},
        "standard": {"k": 3, "memories": 5, "passes": 3},
        "critical": {"k": 5, "memories": 10, "passes": 5},
    }
    """Presets of the specification (section "Practical trade-offs"); a method ignores the values of settings that it
    does not have. `k` is the number of parallel attempts. With sequential scaling, a preset `k` of 1 means no pass
    after the first attempt, and any other preset `k` means the default of 5 passes."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        needs("k", "warmth", scaling=("parallel", "sequential")),
        Clash({"k": 0, "scaling": "parallel"}, "k=0 needs scaling=sequential: parallel makes one attempt or more"),
        needs("until", scaling="sequential"),
        needs("choose", "contrast", scaling="parallel"),
        Clash({"scaling": "parallel", "k": 1}, "{names} needs k=2 or more", ("choose", "contrast")),
        Clash({"scaling": "sequential", "k": 0}, "until needs k=1 or more: with k=0 no pass is made", ("until",)),
        Clash(
            {"consolidate": True, "index": "task"},
            "consolidate=true compares the texts of memories: it needs index=memory",
        ),
        Clash(
            {"notes": True}, "notes=true needs scaling=sequential: parallel attempts do not read each other's notes",
            ("notes",), unless={"scaling": "sequential"},
        ),
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, values: Any) -> Any:
        """Add the settings of the preset. Explicit values take precedence, and preset settings without an effect are
        left out."""
        if not isinstance(values, Mapping):
            return values
        preset, unused = cls._preset(values), cls.without_effect(values)
        own = {name: value for name, value in preset.items() if name in cls.model_fields and name not in unused}
        return {**own, **values}

    @classmethod
    def without_effect(cls, values: Mapping[str, Any]) -> set[str]:
        """Return the names of the settings without effect, among `values` and the settings of the preset that `values`
        names."""
        return super().without_effect({**cls._preset(values), **values})

    @classmethod
    def _preset(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the preset that these values name."""
        chosen = dict(cls.PRESETS.get(str(values.get("preset")), {}))
        scaling = {"scaling": cls.model_fields["scaling"].default, **chosen, **values}["scaling"]
        if scaling != "parallel" and chosen.pop("k", None) == 1 and scaling == "sequential":
            chosen["k"] = 0
        return chosen

    @classmethod
    def replaced(cls, changes: Mapping[str, Any]) -> set[str]:
        """Return the settings that the changes replace: `preset` replaces all settings that the preset sets, and
        `scaling` replaces the number and the temperature of attempts."""
        of_scaling = {"k", "warmth"} if "scaling" in changes else set()
        return of_scaling | cls.PRESETS.get(str(changes.get("preset")), {}).keys()

    @property
    def attempts(self) -> int:
        """Maximum number of attempts at a task."""
        match self.scaling:
            case "none":
                return 1
            case "parallel":
                return 3 if self.k is None else self.k
            case "sequential":
                return 1 + (5 if self.k is None else self.k)

    @property
    def temperature(self) -> float | None:
        """Temperature of the attempts. None: the temperature of the run."""
        return None if self.scaling == "none" else self.warmth

    @property
    def act_roles(self) -> tuple[str, ...]:
        """Roles that one `act` asks in addition to the agent: the judge, if a judge chooses an attempt or ends the
        passes."""
        judging = self.until == "judge" if self.scaling == "sequential" else self.choose == "judge"
        return ("judge",) if judging and self.attempts > 1 else ()

    def noting(self, show: ShowSeam) -> ShowSeam:
        """Return the show seam, with a request for a note if passes leave notes."""
        return noting(show) if self.notes else show

    @property
    def act_calls(self) -> int:
        """Maximum number of model calls of one `act`."""
        return self.attempts * (1 + len(self.act_roles))


def acting(s: MemorySettings, show: ShowSeam, *, blind: bool) -> ActWithNote:
    """Build an act of one or several attempts. With `blind`, no score influences the choice among attempts, as in
    evaluation."""
    act = answer(show)
    if s.scaling == "sequential" and s.attempts > 1:
        # If memories are extracted only from the chosen attempt, the attempts between the first and the chosen attempt
        # need no outcome.
        label: Literal["all", "ends"] = "ends" if s.extract == "chosen" else "all"
        return in_sequence(act, Scaling(s.attempts - 1, s.temperature, blind=blind, until=s.until, label=label))
    return in_parallel(act, Scaling(s.attempts, s.temperature, s.choose, blind, s.contrast))
