"""Every method by name: a module with `Settings` and `method(settings)`, read when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
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

from practicum.core.errors import UsageError
from practicum.engine.loop import Method


class MethodSettings(BaseModel):
    """What every method can be set to. The line under a setting says what it does."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    online: bool = False
    """Take the tasks as a stream: predict each with what is known so far, then learn from it."""

    gate: bool = False
    """Keep a delta only if it is not worse on the validation tasks, by a paired sequential test."""
    gate_alpha: float = Field(default=0.05, gt=0, lt=1)
    """gate: the share of deltas that are not worse which its test may drop."""

    ALONE: ClassVar[Mapping[str, Any]] = {"online": True, "epochs": None, "gate": None, "gate_alpha": None}
    """What settings become, or that they are left out (None), where one task comes by itself."""

    TRACED: ClassVar[Mapping[str, Any] | None] = {}
    """What settings become where stored traces are read and nothing is tried again; None where a method cannot learn
    from attempts that it did not make."""

    NEEDS: ClassVar[tuple[str, ...]] = ()
    """Packages that a run cannot do without; they come with the extra that is named as the first one."""

    GIVE_WAY: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Settings of a run that go when another value of the named one is put over them: they belong to the old one."""

    @classmethod
    def idle(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Settings that have no effect beside these values. A run's own ones go when such values are put over them."""
        return ()


Number = Annotated[int, Field(ge=1)]
"""A whole number from 1 on, as one of the things a setting takes."""


_SWITCH = TypeAdapter(bool)


def is_off(value: Any) -> bool:
    """Whether a setting that is true or false, or the text of one, is false."""
    try:
        return not _SWITCH.validate_python(value)
    except ValidationError:
        return False


def number_or(words: str) -> WrapValidator:
    """For a setting that takes a number from 1 on, or one of these words in its place: one line of error for all."""

    def read(value: Any, reader: ValidatorFunctionWrapHandler) -> Any:
        try:
            return reader(value)
        except ValidationError:
            raise PydanticCustomError(
                "number_or_word", f"Input should be {words} or a whole number from 1 on"
            ) from None

    return WrapValidator(read)


class Batched(MethodSettings):
    """Settings of methods that go through the tasks in batches."""

    epochs: int = Field(default=1, ge=1)
    """Times the tasks are gone through (offline)."""
    batch: int = Field(default=1, ge=1)
    """Tasks attempted at once before the context changes."""


class WideBatches(Batched):
    """Settings of methods that learn from many attempts at once."""

    batch: int = Field(default=40, ge=1)
    """Tasks attempted at once before the context changes."""


NAMES = (
    "none", "icl", "episodes", "ace", "combee", "naive", "top_k", "summarized", "rcl", "reasoning_bank", "unified",
    "mael", "dynamic_cheatsheet", "reflexion", "expel", "tf_grpo", "opro", "ape", "protegi", "evoprompt", "textgrad",
    "gepa", "mipro",
)  # fmt: skip


def settings_of(name: str) -> type[MethodSettings]:
    """The settings class of a method. Raises UsageError for an unknown name."""
    kind: type[MethodSettings] = _module(name).Settings
    return kind


def validated(name: str, values: Mapping[str, Any]) -> MethodSettings:
    """The settings of a method; texts are read as the setting's type. Raises UsageError naming what is wrong."""
    kind = settings_of(name)
    try:
        settings = kind.model_validate(dict(values))
    except ValidationError as error:
        raise UsageError(_explained(name, kind, error)) from error
    if settings.online and "epochs" in settings.model_fields_set and getattr(settings, "epochs", 1) > 1:
        raise UsageError("online learning sees each task once: leave out --epochs")
    if "gate_alpha" in settings.model_fields_set and not settings.gate:
        raise UsageError("gate_alpha is for gate=true: set that too, or leave it out")
    return settings


def kept(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a run keeps them: those that were given, as the method read them, in plain values."""
    read = validated(name, values).model_dump(mode="json")
    return {setting: read[setting] for setting in values}


def lacking(name: str) -> str:
    """The extra this method cannot run without, where a package of it is not installed; else ""."""
    needs = settings_of(name).NEEDS
    return needs[0] if any(find_spec(package) is None for package in needs) else ""


def build(name: str, values: Mapping[str, Any]) -> Method:
    """A method with these settings. Raises UsageError naming what is wrong."""
    made: Method = _module(name).method(validated(name, values))
    return made


def over(name: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings with others over them."""
    kind = settings_of(name)
    gone = {old for new in given for old in kind.GIVE_WAY.get(new, ())}
    made = {**{setting: value for setting, value in settings.items() if setting not in gone}, **given}
    idle = {*kind.idle(made)} - given.keys()
    return {setting: value for setting, value in made.items() if setting not in idle}


def alone(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings for one task that comes by itself: it is predicted, then learned from, as in a stream. What is
    about many tasks is left out."""
    made = {**values, **settings_of(name).ALONE}
    return {setting: value for setting, value in made.items() if value is not None}


def traced(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings where stored traces are read: each once, if nothing else is said. Raises UsageError where the
    method cannot learn from them."""
    kind = settings_of(name)
    if kind.TRACED is None:
        raise UsageError(f"method {name} cannot learn from stored traces: take another one, such as combee")
    once = {"epochs": 1} if "epochs" in kind.model_fields else {}
    return {**once, **values, **kind.TRACED}


def about(name: str) -> str:
    """The first paragraph of a method's page: what it is and where it comes from."""
    return " ".join((_module(name).__doc__ or "").split("\n\n")[0].split())


def described(name: str) -> dict[str, tuple[Any, str]]:
    """Each setting of a method: its default and what it does."""
    return {field: (info.default, info.description or "") for field, info in settings_of(name).model_fields.items()}


def _module(name: str) -> Any:
    if name not in NAMES:
        raise UsageError(f"unknown method {name!r}: known are {', '.join(NAMES)}")
    return import_module(f"practicum.methods.{name}")


def _explained(name: str, kind: type[MethodSettings], error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"method {name} has no setting {field!r}: it has {', '.join(kind.model_fields)}"
    if not field:
        return f"method {name}: {first['msg'].removeprefix('Value error, ')}"
    return f"setting {field}={first['input']!r} of method {name}: {first['msg']}"
