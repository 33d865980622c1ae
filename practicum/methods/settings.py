"""Settings of methods: the common settings, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from practicum.core.clashes import ON, Clash, needs
from practicum.methods.blocks.attempt import Refine
from practicum.methods.blocks.dedupe import DedupeWhen
from practicum.methods.blocks.reflect import LearnFrom
from practicum.retrieval.search import DEFAULT, Retrieval

Number = Annotated[int, Field(ge=1)]
"""Whole number of at least 1."""


def number_or(words: str, number: str = "a whole number of at least 1") -> WrapValidator:
    """Build a validator for a setting that is a number or one of these words, with one error line for both."""

    def read(value: Any, reader: Callable[[Any], Any]) -> Any:
        try:
            return reader(value)
        except ValidationError:
            raise PydanticCustomError("number_or_word", f"Input should be {words} or {number}") from None

    return WrapValidator(read)


SameFrom = Annotated[
    Literal["auto"] | Annotated[float, Field(gt=0, le=1)], number_or("auto", "a number above 0 and up to 1")
]
"""Type of a setting whose value is a `Threshold`."""


class GateSettings(BaseModel):
    """Settings of every method, including a user's own. The text under a setting describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gate: bool = False
    """Keep a delta only if it is not worse on the validation tasks, by a paired sequential test."""
    gate_alpha: float = Field(default=0.05, gt=0, lt=1)
    """gate: the test drops at most this share of the deltas that are not worse."""

    ONE_TASK: ClassVar[Mapping[str, Any]] = {"gate": None}
    """Changes of the settings to learn from a single query; None removes a setting."""

    TRACES: ClassVar[Mapping[str, Any] | None] = {}
    """Changes of the settings to learn from stored traces, where no task is retried; None: the method cannot learn from
    traces."""

    REQUIRES: ClassVar[tuple[str, ...]] = ()
    """Packages that the method imports. The extra that installs them has the name of the first package."""

    SMALL: ClassVar[Mapping[str, Any]] = {}
    """Defaults that differ in the profile `small`: the settings with which small models learned best."""

    NEEDS_LABELS: ClassVar[bool] = False
    """Whether the method cannot learn without labels."""

    NO_GATE: ClassVar[str] = ""
    """Reason why the method does not support a gate; empty if it does."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (needs("gate_alpha", gate=True, code="settings.unused"),)
    """Settings that exclude each other or have no effect. The clashes of base classes are refused too."""

    @classmethod
    def clashes(cls) -> Iterator[Clash]:
        """Yield the clashes of this class and of its base classes."""
        for kind in cls.__mro__:
            yield from vars(kind).get("CLASHES", ())

    @classmethod
    def without_effect(cls, values: Mapping[str, Any]) -> set[str]:
        """Return the names of the values that have no effect together with the others. Values may be texts."""
        settings = cls.model_construct(cls.model_fields.keys() & values.keys(), **_readable(cls, values))
        holding = (clash for clash in cls.clashes() if clash.unused and clash.holds(settings))
        return {name for clash in holding for name in settings.were_set(*clash.unused)}

    @classmethod
    def replaced(cls, changes: Mapping[str, Any]) -> set[str]:
        """Return the settings to remove from a run when it is resumed with these changes, because their meaning
        changes."""
        return set()

    @classmethod
    def outside(cls, values: Mapping[str, Any]) -> Iterator[str]:
        """Yield actions outside of the run that these values lead to, such as "read FILE" for the name of a file."""
        yield from ()

    def were_set(self, *names: str) -> tuple[str, ...]:
        """Return the named settings that were set explicitly."""
        return tuple(name for name in names if name in self.model_fields_set)

    @model_validator(mode="after")
    def _refuse_clashes(self) -> Self:
        for clash in self.clashes():
            if clash.holds(self):
                error = clash.error(self)
                raise PydanticCustomError(error.code, str(error), dict(error.fields))
        return self


class RetrievalSettings(GateSettings):
    """Settings of methods whose runs retrieve entries. `practicum.methods.build` gives them to the Method."""

    retrieval: Retrieval = DEFAULT
    """The similarity by which entries are retrieved. cosine: of their vectors; words: the share of the query's words;
    mixed: both."""


@cache
def small_settings(kind: type[GateSettings]) -> type[GateSettings]:
    """Return the same settings with the defaults of the profile `small`. These defaults do not count as set."""
    fields: dict[str, Any] = {}
    for name, default in kind.SMALL.items():
        info = copy(kind.model_fields[name])
        info.default = default
        fields[name] = (info.annotation, info)
    return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **fields) if fields else kind


class MethodSettings(GateSettings):
    """Settings of every built-in method."""

    online: bool = False
    """Take the tasks as a stream: predict each with the lessons so far, then learn from it."""

    ONE_TASK: ClassVar[Mapping[str, Any]] = {**GateSettings.ONE_TASK, "online": True, "epochs": None, "steps": None}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash(
            {"online": True, "epochs": lambda n: n > 1}, "a stream shows each task once: leave out epochs", ("epochs",),
            code="settings.conflict",
        ),
    )  # fmt: skip


class Batched(MethodSettings):
    """Settings of methods that take the tasks in batches."""

    epochs: int = Field(default=1, ge=1)
    """The number of times that all tasks are learned from (offline)."""
    batch: int = Field(default=1, ge=1)
    """Tasks attempted at once before the context changes."""


class CandidateSettings(MethodSettings):
    """Settings of methods that try candidates on the same tasks."""

    TRACES: ClassVar[Mapping[str, Any] | None] = None

    warmth: float = Field(default=1.0, ge=0)
    """The temperature for writing instructions."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash({"online": True}, "candidates are tried on the same tasks, more than once: leave out online"),
    )


class PlaybookSettings(MethodSettings, RetrievalSettings):
    """Settings of methods that grow a playbook with a reflector and a curator."""

    epochs: int = Field(default=1, ge=1)
    """The number of times that all tasks are learned from (offline)."""
    steps: int | None = Field(default=None, ge=1)
    """The number of steps, over any number of epochs (RCL: 30); none: `epochs` sets the end."""
    rounds: int = Field(default=3, ge=0)
    """The maximum number of reflections on one attempt (paper: 5; 1 extracts too little, 10 can harm); 0: one
    reflection, after the attempt."""
    refine: Refine = "retry"
    """retry: try again with the reflection after a failure; critique: the reflector improves its own lesson."""
    learn_from: LearnFrom = "all"
    """all: also reflect on successes; failures: a success only votes for the entries that it used."""
    lessons: Literal["all", "confirmed"] = "all"
    """all: the insights of all rounds; confirmed: only insights with which the next try succeeded (for weak models)."""
    rules_shown: bool = True
    """Whether the reflector reads the playbook; a weak model copies its rules into the insight."""
    reflector: bool = True
    """Whether a reflector is used between attempt and curator (the ablation of table 3)."""
    curator: Literal["edits", "append", "rewrite"] = "edits"
    """edits: small deltas by a model; append: each lesson is an entry, no call; rewrite: the whole playbook (table
    18)."""
    threshold: SameFrom = "auto"
    """The smallest cosine similarity at which two entries of a section count as the same; auto: measured for the
    embedder."""
    dedupe: DedupeWhen = "proactive"
    """proactive: after each delta; lazy: only when the playbook exceeds its budget; never."""
    budget: int = Field(default=80_000, ge=1)
    """The maximum number of tokens of the playbook (paper: 10,000 to 100,000 behave alike, table 21)."""
    harmful: int = Field(default=3, ge=0)
    """An entry whose harmful votes exceed its helpful votes by this number is deleted at once; 0: only over the
    budget."""

    TRACES: ClassVar[Mapping[str, Any] | None] = {"rounds": 0}

    SMALL: ClassVar[Mapping[str, Any]] = {"rounds": 1, "learn_from": "failures", "lessons": "confirmed"}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash({"steps": ON}, "steps and epochs both set the end of learning: pass only one of the two", ("epochs",)),
        Clash({"steps": ON, "online": True}, "a stream ends with its tasks: leave out steps", ("steps",)),
        Clash(
            lambda s: s.lessons == "confirmed" and (s.refine != "retry" or not s.rounds),
            "lessons=confirmed needs refine=retry and at least one round, or no lesson is ever confirmed", ("lessons",),
        ),
    )  # fmt: skip

    @property
    def only_confirmed(self) -> bool:
        """Whether only confirmed insights count. Insights are confirmed only if tasks are tried again."""
        return self.lessons == "confirmed" and bool(self.rounds) and not self.whole_step

    @property
    def curating(self) -> Literal["edits", "append", "rewrite"]:
        """Update that turns lessons into edits."""
        return self.curator

    @property
    def whole_step(self) -> bool:
        """Whether reflection needs all runs of a step, and so cannot begin before the last of them ends."""
        return False


class WidePlaybookSettings(PlaybookSettings, Batched):
    """Settings of methods that grow a playbook from many attempts at once."""

    batch: int = Field(default=40, ge=1)
    """Tasks attempted at once before the context changes."""


def _readable(kind: type[GateSettings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that fit their settings, converted to their types."""
    read: dict[str, Any] = {}
    for name in kind.model_fields.keys() & values.keys():
        with suppress(ValidationError):
            read[name] = _reader(kind, name).validate_python(values[name])
    return read


@cache
def _reader(kind: type[GateSettings], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(kind.model_fields[name].rebuild_annotation())
