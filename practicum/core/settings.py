"""Settings, each declared once as a field of a model: `name: Annotated[type, Setting(...)] = default`.

The command-line options, the keyword arguments of Python functions, the settings that may change on resume or come from
a run on another machine, and reference/settings of the manual are derived from the fields.
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
    "--per-minute": "Requests per minute that a key may send.",
    "--context": "The context: a run, RUN@NAME, or a playbook file.",
    "--entry": "Id of an entry.",
    "--fields": "Field names in task files, such as input=question,target=answer.",
    "--format": "The format of the file.",
    "--grant": "A role: ask, report or review; for a key also admin (everything). Repeatable.",
    "--json": "Print one JSON object on standard output.",
    "--key": "Key of the service. serve takes several keys, each for all spaces (KEY) or for one space (SPACE=KEY).",
    "--learner": "The model that learns from outcomes.",
    "--log": "Tracker or log to report to: wandb, mlflow or otel; for serve: json or otel. Repeatable.",
    "--methods": "Methods, such as a,b,c.",
    "--out": "Folder of the results (default: a new folder).",
    "--output": "The file or folder to write.",
    "--plot": "Draw plots (PNG): the file, or the folder for several plots.",
    "--port": "The port to listen on; 0: any free port.",
    "--runs-at-once": "Runs that are executed concurrently.",
    "--section": "The section of the entries.",
    "--seed-playbook": "Start from a playbook file or from another run.",
    "--seeds": "Runs of each variant, with different seeds; a claim needs three.",
    "--space": "Name of the space.",
    "--store": "The store: a folder, or postgresql://USER@HOST/DATABASE.",
    "--tag": "A tag of tasks (meta.tags).",
    "--target": "The right answer.",
    "--task": "Id of a task.",
    "--tasks": "The task file.",
    "--test": "Held-out tasks for the score: a task file, or a space with held-out tasks.",
    "--trust": "Trust level of the tasks or traces, such as own or foreign.",
    "--trust-run": "Trust the agent, scorer and models that a run from another machine names.",
    "--user": "Id of the end user, as in requests.",
    "--val": "Validation tasks, to choose the best context or to test edits.",
    "--version": "Number or name of the version (default: the last).",
    "--yes": "Continue without asking for confirmation.",
}
"""Help texts of options that several commands have, by name. An option has the same meaning in each command."""


class Panel(StrEnum):
    """Groups of options in help texts, and of settings on the page reference/settings, in this order."""

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
    """Conditions under which a resume may change a setting."""

    FREE = "yes"
    """At any time; no result depends on the setting."""

    LATER = "yes, for later calls"
    """At any time; stored results are unchanged."""

    NO_ANSWER = "until an answer of the role is stored"
    NO_ATTEMPT = "until an attempt is stored"
    NOTHING = "until a result is stored"
    NEVER = "no"


Use = Literal["attempts", "tools", "learning", "training", "traces", "cluster", "budget", "batches"]
"""Part of practicum that uses a setting. attempts: each attempt. tools: only attempts of agents with tools. learning:
only learning, including from one query. training: only learning from a list of tasks. traces: learning from traces.
cluster: a cluster. budget: the budget of a run. batches: learning and evaluation that may take hours."""


@dataclass(frozen=True)
class Setting:
    """Description of a setting.

    `help` is one sentence, with the unit. `note` is additional text, for the page reference/settings and the docstring.
    `option` has the names on the command line, if they differ from the field's name; if it is None, the setting has no
    option. `accepts` is the type for Python callers, and `typed` the type on the command line, if they differ from the
    field's type. `inert` means that no value of the setting runs a program, calls a server or opens a file, so a run
    from another machine may set it. `first` means that short help texts show the setting.
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
    """A setting with its name, type, default and bounds. `least` and `most` are the inclusive bounds; None without an
    inclusive bound."""

    name: str
    type: Any
    default: Any
    setting: Setting
    least: float | None = None
    most: float | None = None

    @property
    def inner(self) -> Any:
        """The type; for an optional setting, the type without None."""
        kinds = [kind for kind in get_args(self.type) if kind is not NoneType]
        return kinds[0] if get_origin(self.type) in (Union, UnionType) and len(kinds) == 1 else self.type

    @property
    def choices(self) -> tuple[str, ...]:
        """Valid values of a literal type; empty for other types."""
        return get_args(self.inner) if get_origin(self.inner) is Literal else ()

    @property
    def options(self) -> tuple[str, ...]:
        """Names on the command line, as typer expects them. A flag that is on by default has an option to turn it
        off."""
        setting = self.setting
        if setting.option is None:
            return ()
        no = " /--no-" if self.inner is bool and self.default is True else "--"
        return (setting.option,) if setting.option else (no + self.name.replace("_", "-"),)

    @property
    def option(self) -> str:
        """Name on the command line, as used in messages."""
        return self.options[0].split("/")[-1 if self.default is True else 0] if self.options else f"`{self.name}`"

    @property
    def help(self) -> str:
        """Help text. If the text does not mention every choice, a list of all choices follows the text."""
        named = all(choice in self.setting.help for choice in self.choices)
        return self.setting.help if named else f"{self.setting.help.rstrip('.')}: {', '.join(self.choices)}."


def settings_of(model: type[BaseModel]) -> Mapping[str, SettingField]:
    """Return the settings of a model by name, in the order of declaration."""
    settings: dict[str, SettingField] = {}
    for name, field in model.model_fields.items():
        for setting in field.metadata:
            if isinstance(setting, Setting):
                least, most = (
                    next((getattr(part, bound) for part in field.metadata if hasattr(part, bound)), None)
                    for bound in ("ge", "le")
                )
                default = None if field.is_required() else field.get_default(call_default_factory=True)
                settings[name] = SettingField(name, field.annotation, default, setting, least, most)
    return settings
