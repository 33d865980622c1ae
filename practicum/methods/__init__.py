"""Registry of methods: methods of the core, and of installed packages, including practicum's plug-ins.

A method is a module, or any object, with a class `Settings` and a function `method(settings) -> Method`. Packages
register methods in the entry point group `practicum.methods`. A package may also register a plain `Method`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, ValidationError

from practicum.core.codes import CODES
from practicum.core.errors import UsageError
from practicum.core.plugins import OWN, Group, package_of
from practicum.core.types import Profile
from practicum.core.words import closest
from practicum.engine.loop import Method
from practicum.methods.blocks.sample import ENDLESS, first_steps
from practicum.methods.settings import GateSettings, PlaybookSettings, RetrievalSettings, small_settings

NAMES = (
    "none", "icl", "episodes", "ace", "combee", "naive", "top_k", "summarized", "rcl", "reasoning_bank", "unified",
    "mael",
)  # fmt: skip
"""Names of the core's methods."""


def _missing_parts(plugin: Any) -> Sequence[str]:
    if isinstance(plugin, Method):
        return []
    parts = {"Settings": isinstance(getattr(plugin, "Settings", None), type), "method": hasattr(plugin, "method")}
    return [name for name, present in parts.items() if not present]


METHODS: Group[Any] = Group(
    "practicum.methods",
    "method",
    _missing_parts,
    {name: f"practicum.methods.{name}" for name in NAMES},
    unknown="method.unknown",
)
"""Methods by name. A package registers a module or object with `Settings` and `method(settings)`, or a Method."""


def is_own(name: str) -> bool:
    """Return whether the method belongs to practicum, in the core or in a plug-in."""
    entry = METHODS.registered().get(name)
    return name in NAMES or (entry is not None and package_of(entry) == OWN)


def settings_of(name: str, profile: Profile = "full") -> type[GateSettings]:
    """Return the settings class of a method, with the defaults of a profile. Raises UsageError for an unknown name."""
    kind: type[GateSettings] = _recipe(name).Settings
    return small_settings(kind) if profile == "small" else kind


def read_settings(name: str, values: Mapping[str, Any], profile: Profile = "full") -> GateSettings:
    """Validate the settings of a method. A value that is a text is parsed as the type of its setting. Raises UsageError
    for an invalid value."""
    kind = settings_of(name, profile)
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise _refusal(name, kind, error) from error


def missing_extra(name: str) -> str:
    """Return "" if all packages that the method imports are installed, else the name of the extra that installs
    them."""
    required = settings_of(name).REQUIRES
    return required[0] if any(find_spec(package) is None for package in required) else ""


def build(name: str, settings: Mapping[str, Any] | GateSettings) -> Method:
    """Build a method from its settings, which are plain values or an already validated object. Raises UsageError if a
    value is invalid."""
    read = settings if isinstance(settings, GateSettings) else read_settings(name, settings)
    steps = read.steps if isinstance(read, PlaybookSettings) else None
    built = _recipe(name).method(read.model_copy(update={"epochs": ENDLESS}) if steps else read)
    if not isinstance(built, Method):
        raise UsageError(
            "plugin.invalid", f"method {name!r}: its function `method` returned {type(built).__name__}, not a Method"
        )
    if isinstance(read, RetrievalSettings):
        built = replace(built, retrieval=read.retrieval)
    return replace(built, sample=first_steps(built.sample, steps)) if steps else built


def override_settings(name: str, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Apply `changes` to the settings of a run, and return the result. Settings of the run that the changes replace
    (see `GateSettings.replaced`), or that have no effect after the changes, are removed."""
    kind = settings_of(name)
    replaced = kind.replaced(changes)
    values = {**{setting: value for setting, value in settings.items() if setting not in replaced}, **changes}
    unused = kind.without_effect(values) - kind.without_effect(settings) - changes.keys()
    return {setting: value for setting, value in values.items() if setting not in unused}


def for_one_task(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return these settings, changed for learning from a single query. As in a stream, the agent answers the query
    before the method learns from the answer."""
    changed = override_settings(name, values, settings_of(name).ONE_TASK)
    return {setting: value for setting, value in changed.items() if value is not None}


def for_traces(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return these settings, changed for learning from stored traces. If `values` has neither `epochs` nor `steps`,
    learning takes one epoch. Raises UsageError if the method cannot learn from traces."""
    kind = settings_of(name)
    if kind.TRACES is None:
        raise UsageError(
            "method.unsuitable", f"method {name} cannot learn from stored traces: choose another method, such as combee"
        )
    once = {"epochs": 1} if "epochs" in kind.model_fields and "steps" not in values else {}
    return {**once, **values, **kind.TRACES}


def about(name: str) -> str:
    """Return the idea and the paper of a method: the first paragraph of the method's docstring."""
    return " ".join((_recipe(name).__doc__ or "").split("\n\n")[0].split())


def setting_docs(name: str, profile: Profile = "full") -> dict[str, tuple[Any, str]]:
    """Return the default and the description of each setting of a method, by the name of the setting."""
    settings = settings_of(name, profile)
    texts: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        if issubclass(kind, BaseModel) and kind.__module__ != BaseModel.__module__:
            texts.update(_texts_of(kind))
    fields = settings.model_fields.items()
    return {field: (info.default, info.description or texts.get(field, "")) for field, info in fields}


@cache
def _texts_of(kind: type) -> dict[str, str]:
    """Return the docstrings under the attributes of a class, by attribute. Without the source of the class, the result
    is empty. Pydantic could read these docstrings too (`use_attribute_docstrings`), but at every import, which takes a
    tenth of a second."""
    try:
        (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return {}
    lines = getattr(parsed, "body", [])
    return {
        line.target.id: inspect.cleandoc(text.value.value)
        for line, text in pairwise(lines)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _recipe(name: str) -> Any:
    """Return the object with the method's `Settings` and `method`."""
    if name.startswith("python:"):
        return SimpleNamespace(Settings=GateSettings, __doc__="")  # a Method that was passed as an object
    plugin = METHODS.load(name)
    if isinstance(plugin, Method):
        return SimpleNamespace(Settings=GateSettings, method=lambda settings: plugin, __doc__="")
    return plugin


def _refusal(name: str, kind: type[GateSettings], error: ValidationError) -> UsageError:
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        fields = kind.model_fields
        listed = f"practicum bench methods {name} lists all settings"
        text = f"method {name} has no setting `{field}`{closest(field, fields)}: {listed}"
        return UsageError("settings.unknown", text, setting=field, method=name, valid=[*fields])
    if not field:
        text = f"method {name}: {first['msg'].removeprefix('Value error, ')}"
        if first["type"] in CODES:
            return UsageError(first["type"], text, method=name, **first.get("ctx", {}))
        return UsageError("settings.invalid", text, method=name)
    text = f"setting {field}={first['input']!r} of method {name}: {first['msg']}"
    return UsageError("settings.invalid", text, setting=field, method=name)
