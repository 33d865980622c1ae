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
    """Build a validator for a setting that is a number or a word from `words`. An invalid value gives a single error,
    which names `words`, and describes the number as `number`."""

    def read(value: Any, reader: Callable[[Any], Any]) -> Any:
        try:
            return reader(value)
        except ValidationError:
            raise PydanticCustomError("number_or_word", f"Input should be {words} or {number}") from None

    return WrapValidator(read)


SameFrom = Annotated[
    Literal["auto"] | Annotated[float, Field(gt=0, le=1)], number_or("auto", "a number above 0 and up to 1")
]
"""Type of a setting that holds a `Threshold`: "auto", or a number above 0 and up to 1."""


class GateSettings(BaseModel):
    """Settings that every method has, including methods that users write. The text under each setting is its
    description."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gate: bool = False
    """Keep a delta only if the context is not worse on the validation tasks with the delta than without it, by a paired
    sequential test."""
    gate_alpha: float = Field(default=0.05, gt=0, lt=1)
    """gate: the test drops at most this share of the deltas that do not make the context worse."""

    ONE_TASK: ClassVar[Mapping[str, Any]] = {"gate": None}
    """Values to set for learning from a single query. The value None removes the setting."""

    TRACES: ClassVar[Mapping[str, Any] | None] = {}
    """Values to set for learning from stored traces, whose tasks cannot be tried again. None: the method cannot learn
    from traces."""

    REQUIRES: ClassVar[tuple[str, ...]] = ()
    """Packages that the method imports. The extra that installs them has the name of the first package."""

    SMALL: ClassVar[Mapping[str, Any]] = {}
    """Defaults that differ in the profile `small`: the settings with which small models learned best."""

    NEEDS_LABELS: ClassVar[bool] = False
    """Whether the method needs labels (right answers) to learn."""

    NO_GATE: ClassVar[str] = ""
    """Reason why the method supports no gate; empty if the method supports a gate."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (needs("gate_alpha", gate=True, code="settings.unused"),)
    """Combinations of settings that are refused: settings that exclude each other, and settings without an effect.
    `clashes` adds the combinations of the base classes."""

    @classmethod
    def clashes(cls) -> Iterator[Clash]:
        """Yield the clashes of this class and of its base classes."""
        for kind in cls.__mro__:
            yield from vars(kind).get("CLASHES", ())

    @classmethod
    def without_effect(cls, values: Mapping[str, Any]) -> set[str]:
        """Return the names of the settings in `values` that have no effect in combination with the other values. Values
        may be texts."""
        settings = cls.model_construct(cls.model_fields.keys() & values.keys(), **_readable(cls, values))
        holding = (clash for clash in cls.clashes() if clash.unused and clash.holds(settings))
        return {name for clash in holding for name in settings.were_set(*clash.unused)}

    @classmethod
    def replaced(cls, changes: Mapping[str, Any]) -> set[str]:
        """Return the names of the old settings to remove when a run is resumed with these changes, because the changes
        give the old settings another meaning."""
        return set()

    @classmethod
    def outside(cls, values: Mapping[str, Any]) -> Iterator[str]:
        """Yield a description of each action outside of the run that is caused by these values, such as "read FILE" if
        a value names a file."""
        yield from ()

    def were_set(self, *names: str) -> tuple[str, ...]:
        """Return the names, out of `names`, of settings that were set explicitly."""
        return tuple(name for name in names if name in self.model_fields_set)

    @model_validator(mode="after")
    def _refuse_clashes(self) -> Self:
        for clash in self.clashes():
            if clash.holds(self):
                error = clash.error(self)
                raise PydanticCustomError(error.code, str(error), dict(error.fields))
        return self


class RetrievalSettings(GateSettings):
    """Settings of methods whose runs retrieve entries. `practicum.methods.build` copies `retrieval` to
    `Method.retrieval`."""

    retrieval: Retrieval = DEFAULT
    """The similarity of an entry and a query, by which entries are retrieved. cosine: the cosine of the two embeddings;
    words: the share of the query's words that the entry has; mixed: a weighted mean of cosine and words."""


@cache
def small_settings(kind: type[GateSettings]) -> type[GateSettings]:
    """Return a class with the settings of `kind` and the defaults of the profile `small`. `were_set` does not count
    these defaults."""
    fields: dict[str, Any] = {}
    for name, default in kind.SMALL.items():
        info = copy(kind.model_fields[name])
        info.default = default
        fields[name] = (info.annotation, info)
    return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **fields) if fields else kind


class MethodSettings(GateSettings):
    """Settings of every built-in method."""

    online: bool = False
    """Take the tasks as a stream: attempt each task with the lessons from earlier tasks, then learn from the
    attempt."""

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
    """offline: the number of epochs. In an epoch, every task is learned from once."""
    batch: int = Field(default=1, ge=1)
    """The number of tasks that a step attempts at once, before the context changes."""


class CandidateSettings(MethodSettings):
    """Settings of methods that try several candidates for the instructions on the same tasks."""

    TRACES: ClassVar[Mapping[str, Any] | None] = None

    warmth: float = Field(default=1.0, ge=0)
    """The temperature for writing instructions."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash({"online": True}, "candidates are tried on the same tasks, more than once: leave out online"),
    )


class PlaybookSettings(MethodSettings, RetrievalSettings):
    """Settings of methods that grow a playbook with a reflector and a curator."""

    epochs: int = Field(default=1, ge=1)
    """offline: the number of epochs. In an epoch, every task is learned from once."""
    steps: int | None = Field(default=None, ge=1)
    """The number of steps after which learning ends, in any number of epochs (RCL: 30); none: learning ends after
    `epochs` epochs."""
    rounds: int = Field(default=3, ge=0)
    """The maximum number of rounds of reflection on one attempt (paper: 5; 1 extracts too little, 10 can harm); 0: a
    single reflection, without the refinement that `refine` describes."""
    refine: Refine = "retry"
    """retry: after a failure, the agent tries the task again with the reflection; critique: the reflector improves its
    own lesson, without another try."""
    learn_from: LearnFrom = "all"
    """all: reflect on failures and successes; failures: reflect only on failures, while a success just votes for the
    entries that it used."""
    lessons: Literal["all", "confirmed"] = "all"
    """all: keep the insights of all rounds; confirmed: keep only insights with which the next try succeeded (for weak
    models)."""
    rules_shown: bool = True
    """Whether the reflector reads the playbook. Set it to false for a weak model, which copies rules of the playbook
    into its insight."""
    reflector: bool = True
    """Whether a reflector turns attempts into lessons; false: the curator reads the raw attempts (the ablation of ACE's
    table 3)."""
    curator: Literal["edits", "append", "rewrite"] = "edits"
    """edits: a model writes small edits; append: each lesson becomes an entry, without a call; rewrite: a model
    rewrites the whole playbook (ACE, table 18)."""
    threshold: SameFrom = "auto"
    """The smallest cosine similarity at which two entries of a section count as the same; auto: the value that was
    measured for the embedder."""
    dedupe: DedupeWhen = "proactive"
    """When entries with the same meaning are merged. proactive: after each delta; lazy: only when the playbook exceeds
    its budget; never: not merged."""
    budget: int = Field(default=80_000, ge=1)
    """The maximum number of tokens of the playbook (ACE, table 21: budgets from 10,000 to 100,000 behave alike)."""
    harmful: int = Field(default=3, ge=0)
    """An entry whose harmful votes exceed its helpful votes by this number or more is retired at once; 0: harmful
    entries are retired only when the playbook exceeds its budget."""

    TRACES: ClassVar[Mapping[str, Any] | None] = {"rounds": 0}

    SMALL: ClassVar[Mapping[str, Any]] = {"rounds": 1, "learn_from": "failures", "lessons": "confirmed"}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash({"steps": ON}, "steps and epochs both set the end of learning: pass only one of the two", ("epochs",)),
        Clash({"steps": ON, "online": True}, "a stream ends after its last task: leave out steps", ("steps",)),
        Clash(
            lambda s: s.lessons == "confirmed" and (s.refine != "retry" or not s.rounds),
            "lessons=confirmed needs refine=retry and one round or more to confirm a lesson", ("lessons",),
        ),
    )  # fmt: skip

    @property
    def only_confirmed(self) -> bool:
        """Whether only confirmed insights are kept. False if no task is tried again, because then no insight can be
        confirmed."""
        return self.lessons == "confirmed" and bool(self.rounds) and not self.whole_step

    @property
    def curating(self) -> Literal["edits", "append", "rewrite"]:
        """Kind of update that turns lessons into edits (see the setting `curator`)."""
        return self.curator

    @property
    def whole_step(self) -> bool:
        """Whether reflection needs all attempts of a step, so that it begins only after the last attempt ends."""
        return False


class WidePlaybookSettings(PlaybookSettings, Batched):
    """Settings of methods that grow a playbook from many attempts at once."""

    batch: int = Field(default=40, ge=1)
    """The number of tasks that a step attempts at once, before the context changes."""


def _readable(kind: type[GateSettings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are valid for their settings, converted to the types of the settings."""
    read: dict[str, Any] = {}
    for name in kind.model_fields.keys() & values.keys():
        with suppress(ValidationError):
            read[name] = _reader(kind, name).validate_python(values[name])
    return read


@cache
def _reader(kind: type[GateSettings], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(kind.model_fields[name].rebuild_annotation())
