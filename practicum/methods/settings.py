"""Settings of methods: what they have in common, and the types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError


class GateSettings(BaseModel):
    """The settings that also a Method of the user's own has. The text under a setting describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    gate: bool = False
    """Keep a delta only if it is not worse on the validation tasks, by a paired sequential test."""
    gate_alpha: float = Field(default=0.05, gt=0, lt=1)
    """gate: the share of deltas that are not worse but that the test may drop."""

    ONE_TASK: ClassVar[Mapping[str, Any]] = {"gate": None, "gate_alpha": None}
    """Changes of the settings to learn from a single query; None removes a setting."""

    TRACES: ClassVar[Mapping[str, Any] | None] = {}
    """Changes of the settings to learn from stored traces, where nothing is tried again; None if the method cannot."""

    REQUIRES: ClassVar[tuple[str, ...]] = ()
    """Packages that the method imports. The extra that installs them is named as the first one."""

    REPLACES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Settings of a run that are removed when another value of the named setting overrides the run's."""

    NEEDS_LABELS: ClassVar[bool] = False
    """Whether the method cannot learn without labels."""

    NO_GATE: ClassVar[str] = ""
    """Why the method takes no gate; empty if it does."""

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Settings that have no effect beside these values."""
        return ()


class MethodSettings(GateSettings):
    """The settings that every built-in method has."""

    online: bool = False
    """Take the tasks as a stream: predict each with what is known so far, then learn from it."""

    ONE_TASK: ClassVar[Mapping[str, Any]] = {**GateSettings.ONE_TASK, "online": True, "epochs": None}


class Batched(MethodSettings):
    """Settings of methods that take the tasks in batches."""

    epochs: int = Field(default=1, ge=1)
    """How often all tasks are learned from (offline)."""
    batch: int = Field(default=1, ge=1)
    """Tasks attempted at once before the context changes."""


class WideBatches(Batched):
    """Settings of methods that learn from many attempts at once."""

    batch: int = Field(default=40, ge=1)
    """Tasks attempted at once before the context changes."""


Number = Annotated[int, Field(ge=1)]
"""A whole number from 1 on."""


def number_or(words: str) -> WrapValidator:
    """For a setting that is a number from 1 on or one of these words: one line of error for both."""

    def read(value: Any, reader: ValidatorFunctionWrapHandler) -> Any:
        try:
            return reader(value)
        except ValidationError:
            raise PydanticCustomError(
                "number_or_word", f"Input should be {words} or a whole number from 1 on"
            ) from None

    return WrapValidator(read)


_SWITCH = TypeAdapter(bool)


def is_off(value: Any) -> bool:
    """Whether the value of a switch, or its text, is false."""
    try:
        return not _SWITCH.validate_python(value)
    except ValidationError:
        return False
