"""Options of commands: options of settings, built from the fields that declare them, and options that commands share.

`@settings("seed", "timeout")` adds options of settings to a command. The fields of the settings are imported when the
command is built (`cli.tree`), so the help of other commands does not import them. An option that is not passed is None:
the setting keeps its value in the run, or in a new run has the default of its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from typer import Argument
from typer.models import OptionInfo

from practicum.core.settings import HELPS, Panel, Setting, SettingField
from practicum.core.trust import LEVELS, Trust

DECIDE, ONLY, TRY = "Decide", "Filters", "Try edits"
PANELS = (None, DECIDE, ONLY, TRY, *Panel)
"""Groups of options, in the order of the help."""


class CommandOption(OptionInfo):
    """Option of a command. `first`: whether --help lists the option (--help-all lists all options). `shown`: the
    default that the help shows if the real default is None. An option without a help text gets the text for its name
    from `HELPS`."""

    def __init__(
        self, default: Any, names: tuple[str, ...], panel: str | None, first: bool, shown: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(default=default, param_decls=names, rich_help_panel=panel, **kwargs)
        self.first, self.shown = first, shown


def option(default: Any = ..., *names: str, panel: str | None = None, first: bool = True, **kwargs: Any) -> Any:
    """Declare an option of a command. `kwargs` are passed to typer."""
    return CommandOption(default, names, panel, first, **kwargs)


task, method = partial(option, panel=Panel.TASKS), partial(option, panel=Panel.METHOD)
budget, output = partial(option, panel=Panel.BUDGET), partial(option, panel=Panel.OUTPUT)


RunFolder = Annotated[Path, Argument(help="The folder of the run.")]
Json = Annotated[bool, output("--json", help=HELPS["--json"])]
Fields = Annotated[str | None, task(first=False)]
Out = Annotated[Path | None, output("--out")]
StoreUrl = Annotated[
    str | None,
    output("--store", first=False, envvar="PRACTICUM_STORE", show_envvar=False, metavar="PLACE", help=HELPS["--store"]),
]
TrustRun = Annotated[bool, task("--trust-run", first=False)]
Yes = Annotated[bool, option("--yes", "-y", help=HELPS["--yes"])]
Log = Annotated[list[str], output("--log", first=False, metavar="NAME")]
SeedPlaybook = Annotated[Path | None, method(first=False)]
TrustFilter = Annotated[
    Trust | None,
    option("--only-trust", panel=ONLY, metavar="NAME", help=f"Only this trust level: {', '.join(LEVELS)}."),
]


def method_names(start: str = "") -> list[str]:
    """Return the names of methods that begin with `start`, methods of installed packages included."""
    from practicum.methods import METHODS

    return [name for name in METHODS.names() if name.startswith(start)]


def _method_setting(name: str, kind: Any, help: str, least: float | None = None, **kwargs: Any) -> SettingField:
    return SettingField(name, kind, None, Setting(help, Panel.METHOD, **kwargs), least)


METHOD_SETTINGS: Mapping[str, SettingField] = {
    field.name: field
    for field in (
        _method_setting("epochs", int, "Passes over the tasks.", 1, first=True),
        _method_setting("steps", int, "Total number of learning steps, over all epochs.", 1),
        _method_setting(
            "batch", str, "Tasks per step; each step may change the context; combee: also auto.", option="--batch-size"
        ),
        _method_setting("online", bool, "Predict each task before learning from it, and score the prediction."),
        _method_setting("asynchronous", bool, "combee: steps do not wait for slow attempts."),
        _method_setting(
            "staleness",
            int,
            "combee --asynchronous: maximum number of versions that a delta may lag behind the context.",
        ),
        _method_setting(
            "scaling", Literal["parallel", "sequential", "none"], "Memory methods: how the k attempts are made."
        ),
        _method_setting("k", int, "Attempts at each task; sequential: refinements after the first attempt.", 0),
        _method_setting(
            "preset", Literal["routine", "standard", "critical", "specification"], "Memory methods: preset settings."
        ),
    )
}
"""Settings of methods that have an option of the same name. All other settings of methods are passed with `--set`."""


@cache
def all_settings() -> Mapping[str, SettingField]:
    """Return the settings of a run and of its method, by name."""
    from practicum.session.config import SETTINGS

    return {**SETTINGS, **METHOD_SETTINGS}


KEYWORDS = (
    "approve_better", "baseline", "every", "fields", "format", "judge_again", "learn", "methods", "out", "plot", "port",
    "reason", "repeat", "seeds", "sweep", "target", "tasks", "test", "trace_fields", "trust", "trust_run",
    "trust_scores", "val",
)  # fmt: skip
"""Further keywords of the library that are options of at least one command."""

RENAMED = {"seed_context": "--seed-playbook", "from_traces": "--from-traces"}
"""Keyword of the library → the option for this keyword, if the option has a different name."""


def as_options(text: str) -> str:
    """Replace settings in a message of the library by command-line options. Messages write a setting as `max_usd` or
    `max_usd=N`, and a setting of a method as `settings: rounds=0`."""

    def replaced(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"] or ""
        field = all_settings().get(name)
        if field is not None and field.options:
            _, slash, off = field.options[0].partition("/")
            if slash and value == "False":
                return off
            shown = field.option
        elif name in RENAMED or name in KEYWORDS:
            shown = RENAMED.get(name) or "--" + name.replace("_", "-")
        else:
            return match[0]
        return f"{shown} {value.removeprefix('True')}".rstrip()

    text = re.sub(r"`settings: ([^`]+)`", r"--set \1", text)
    return re.sub(r"`(?P<name>\w+)(?:=(?P<value>[^`]+))?`", replaced, text)


C = TypeVar("C", bound=Callable[..., Any])
Where = Callable[[Setting], bool]


def settings(
    *names: str, where: Where | None = None, but: tuple[str, ...] = (), begins: bool = False,
    fields: Callable[[], Mapping[str, SettingField]] = all_settings, **defaults: Any,
) -> Callable[[C], C]:  # fmt: skip
    """Add options of settings to a command, which receives the values as keywords. The settings are `names`, the
    settings for which `where` is true (except `but`), and the keys of `defaults`. The values of `defaults` replace the
    defaults of the fields. `begins`: the command begins runs, so its help shows the defaults of the fields.
    """

    def parameters() -> list[Parameter]:
        by_name = fields()
        chosen = [
            name for name, field in by_name.items()
            if where is not None and name not in (*METHOD_SETTINGS, *but) and field.options and where(field.setting)
        ]  # fmt: skip
        selection = dict.fromkeys((*chosen, *names, *defaults))
        return [parameter(by_name[name], defaults.get(name), show_default=begins) for name in selection]

    def decorate(command: C) -> C:
        command.settings = parameters  # type: ignore[attr-defined]
        return command

    return decorate


def parameter(field: SettingField, default: Any = None, *, show_default: bool = False) -> Parameter:
    """Return the parameter of a command for a setting."""
    setting = field.setting
    plain = field.choices or field.inner in (str, int, float, bool)
    kind = setting.typed or (field.inner if plain else str)
    metavar = {int: "N", float: "X", bool: None, list[str]: "TEXT"}.get(kind, "NAME" if field.choices else "TEXT")
    info = option(
        *field.options, panel=setting.panel, first=setting.first, min=field.least, max=field.most, help=field.help,
        shown=field.default if show_default and plain and not isinstance(field.default, bool) else None,
        metavar=setting.metavar or metavar, autocompletion=method_names if field.name == "method" else None,
    )  # fmt: skip
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind | None, info])


def parameters_of(command: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a command and of its settings, in the order of the panels."""
    from_settings: list[Parameter] = command.settings() if hasattr(command, "settings") else []
    names = {p.name for p in from_settings}
    own = [
        p for p in signature(command, eval_str=True).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name not in names
    ]  # fmt: skip
    for p in own:
        if isinstance(info := info_of(p), OptionInfo) and info.help is None:
            texts = (*(info.param_decls or ()), info.default, f"--{p.name.replace('_', '-')}")
            info.help = next((HELPS[text] for text in texts if isinstance(text, str) and text in HELPS), None)
    return [p.replace(kind=p.KEYWORD_ONLY) for p in sorted((*own, *from_settings), key=_panel_index)]


def _panel_index(parameter: Parameter) -> int:
    panel = getattr(info_of(parameter), "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


def info_of(parameter: Parameter) -> Any:
    """Return the typer declaration of a parameter: from the annotation of the parameter, or from the default."""
    return next(iter(getattr(parameter.annotation, "__metadata__", ())), parameter.default)
