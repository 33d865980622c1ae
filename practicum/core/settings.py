"""Settings, each declared once: a field of a model, `name: Annotated[type, Setting(...)] = default`.

The options of the command line, the keywords of Python functions, what a resume may change, what a run that was made
elsewhere may say, and docs/settings.md are derived from the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel


HELPS: Mapping[str, str] = {
    "--a-minute": "Requests that a key may send a minute.",
    "--context": "The context: a run, RUN@NAME, or a playbook file.",
    "--entry": "An entry, by its id.",
    "--fields": "Names of fields in task files, as input=question,target=answer.",
    "--format": "The format of the file.",
    "--grant": "A role: ask, report or review; of a key also admin (everything). Repeatable.",
    "--json": "Print one JSON object on standard output.",
    "--key": "The key of the service; serve takes several, each for all spaces (KEY) or for one (SPACE=KEY).",
    "--learner": "The model that learns from outcomes.",
    "--log": "Where it is also reported: wandb, mlflow or otel; by serve: json or otel. Repeatable.",
    "--methods": "Methods, as a,b,c.",
    "--out": "The folder of the results (default: a new one).",
    "--output": "The file or folder to write.",
    "--plot": "Draw pictures (PNG): the file, or the folder of several.",
    "--port": "The port to listen on; 0: a free one.",
    "--runs-at-once": "Runs that are open at a time.",
    "--section": "The section of the entries.",
    "--seed-playbook": "Start from a playbook file or from another run.",
    "--seeds": "Runs of each kind, each with another seed; a claim needs three.",
    "--space": "The space, by its name.",
    "--store": "The store: a folder, or postgresql://USER@HOST/DATABASE.",
    "--tag": "A tag of tasks (meta.tags).",
    "--target": "The right answer.",
    "--task": "A task, by its id.",
    "--tasks": "The file of tasks.",
    "--test": "Held-out tasks, which give the score; of a space: those it holds out.",
    "--trust": "The trust level of what is read, such as own or foreign.",
    "--trust-run": "Trust the agent, scorer and models that a run from another machine names.",
    "--user": "The end user, by the id that requests have.",
    "--val": "Validation tasks, which choose the best context or try edits.",
    "--version": "The version, or its name (default: the last).",
    "--yes": "Do not ask whether to go on.",
}
"""The helps of options that several commands have, by name. An option means the same on each."""


class Panel(StrEnum):
    """Groups of options in helps and of settings on the page, in their order."""

    TASKS = "Tasks and scores"
    METHOD = "Method"
    MODEL = "Agent and models"
    CLUSTER = "Cluster"
    BUDGET = "Budget"
    SERVICE = "Service"
    LEARNING = "Learning"
    ROLLOUT = "Rollout"
    OUTPUT = "Output"


class Resume(StrEnum):
    """When a resume may change a setting."""

    FREE = "yes"
    """At any time; no result depends on it."""

    LATER = "yes, for later calls"
    """At any time; kept results stay as they are."""

    NO_ANSWER = "while no answer of the role is kept"
    NO_ATTEMPT = "while no attempt is kept"
    NOTHING = "while no result is kept"
    NEVER = "no"


Use = Literal["attempts", "tools", "learning", "training", "traces", "cluster", "budget"]
"""What uses a setting: each attempt; attempts of agents with tools alone; learning alone, also from one query; learning
from a list of tasks alone; learning from traces; a cluster; the budget of a run."""


@dataclass(frozen=True)
class Setting:
    """What is said about a setting.

    `help` is one sentence, with the unit. `note` is more, for the page and the docstring. `option` are the names on the
    command line where they differ from the field's; None: no option. `accepts` is the type that a Python caller may
    give, and `typed` the type that is typed, where they differ from the field's. `inert`: it runs nothing, calls no
    server and opens no file, whatever its value is, so a run that was made elsewhere may set it. `first`: short helps
    show it.
    """

    help: str
    panel: Panel
    _: KW_ONLY
    unit: str = ""
    option: str | None = ""
    metavar: str = ""
    accepts: Any = None
    typed: Any = None
    resume: Resume = Resume.NEVER
    use: Use = "attempts"
    inert: bool = False
    first: bool = False
    note: str = ""


@dataclass(frozen=True)
class SettingField:
    """A setting with its name, type, default and bounds. `least` is None where there is none, or where it is open."""

    name: str
    type: Any
    default: Any
    setting: Setting
    least: float | None = None
    most: float | None = None

    @property
    def inner(self) -> Any:
        """The type without None."""
        kinds = [kind for kind in get_args(self.type) if kind is not NoneType]
        return kinds[0] if get_origin(self.type) in (Union, UnionType) and len(kinds) == 1 else self.type

    @property
    def choices(self) -> tuple[str, ...]:
        """The values, if they are few."""
        return get_args(self.inner) if get_origin(self.inner) is Literal else ()

    @property
    def options(self) -> tuple[str, ...]:
        """The names on the command line, as typer takes them. A flag that is on by default turns off."""
        setting = self.setting
        if setting.option is None:
            return ()
        no = " /--no-" if self.inner is bool and self.default is True else "--"
        return (setting.option,) if setting.option else (no + self.name.replace("_", "-"),)

    @property
    def option(self) -> str:
        """The name on the command line, as messages give it."""
        return self.options[0].split("/")[-1 if self.default is True else 0] if self.options else f"`{self.name}`"

    @property
    def help(self) -> str:
        """The help, with the choices that it does not name."""
        named = all(choice in self.setting.help for choice in self.choices)
        return self.setting.help if named else f"{self.setting.help.rstrip('.')}: {', '.join(self.choices)}."


def settings_of(model: type[BaseModel]) -> Mapping[str, SettingField]:
    """The settings of a model by name, in their order."""
    found: dict[str, SettingField] = {}
    for name, field in model.model_fields.items():
        for setting in field.metadata:
            if isinstance(setting, Setting):
                least, most = (
                    next((getattr(part, bound) for part in field.metadata if hasattr(part, bound)), None)
                    for bound in ("ge", "le")
                )
                default = None if field.is_required() else field.get_default(call_default_factory=True)
                found[name] = SettingField(name, field.annotation, default, setting, least, most)
    return found
