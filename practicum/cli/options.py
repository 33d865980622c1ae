"""The options that several commands share: each is declared here once, with its help and its panel.

`@settings("seed", "timeout")` gives a command options of a run. One that is not given is None, and then the run's own
value counts, or the default in `session.config.Config`, which the help of `Learning` commands shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from typer import Argument, Option
from typer.core import TyperCommand
from typer.models import ParameterInfo

from practicum.core.trust import LEVELS

WHAT, MODEL, METHOD, BUDGET, OUTPUT = "Tasks and scores", "Agent and models", "Method", "Budget", "Output"
CLUSTER = "Cluster"
DECIDE, ONLY, TRY = "Decide", "Only some", "Try"
PANELS = (None, DECIDE, ONLY, TRY, WHAT, METHOD, MODEL, CLUSTER, BUDGET, OUTPUT)
what = partial(Option, rich_help_panel=WHAT)
method = partial(Option, rich_help_panel=METHOD)
budget = partial(Option, rich_help_panel=BUDGET)
output = partial(Option, rich_help_panel=OUTPUT)

RunFolder = Annotated[Path, Argument(help="The run's folder.")]
Json = Annotated[bool, output("--json", help="Print one JSON object on standard output.")]
Fields = Annotated[str | None, what(help="Names of fields in the task files, as input=question,target=answer.")]
Out = Annotated[Path | None, output("--out", help="Folder of the run (default: a new one under ./runs).")]
StoreUrl = Annotated[
    str | None,
    output(
        "--store",
        envvar="PRACTICUM_STORE",
        show_envvar=False,
        metavar="URL",
        help="Keep it in a database, postgresql://USER@HOST/DATABASE (default: PRACTICUM_STORE, else a file).",
    ),
]
TrustRun = Annotated[
    bool, what("--trust-run", help="Obey a run that was made elsewhere: its agent, scorer, models and the like.")
]
trust_filter = partial(Option, "--trust", metavar="NAME", help=f"Only what rests on this: {', '.join(LEVELS)}.")
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask whether to go on.")]
Log = Annotated[
    list[str],
    output("--log", metavar="NAME", help="Send the run to wandb, mlflow or otel; repeatable (docs/monitor.md)."),
]
BenchFolder = Annotated[Path | None, output("--out", help="Folder of the results; the same command continues there.")]


def method_names(start: str = "") -> list[str]:
    """The names of methods that begin so, those of installed packages included."""
    from practicum.methods import METHODS

    return [name for name in METHODS.names() if name.startswith(start)]


def _option(panel: str, type_: Any, *names: str, **how: Any) -> Any:
    if "metavar" not in how:
        how["metavar"] = {int: "N", float: "X", str: "TEXT"}.get(type_)
    return Annotated[type_ | None, Option(*names, rich_help_panel=panel, **how)]


def _choice(panel: str, help: str, *choices: str) -> Any:
    return _option(panel, Literal[choices], metavar="NAME", help=f"{help}: {', '.join(choices)}.")


SETTINGS: dict[str, Any] = {
    "redact": _option(
        WHAT, str, metavar="KINDS", help="Placeholders for secrets,emails,cards,ibans,ids,phones,ips (or all)."
    ),
    "redact_map": _option(WHAT, str, metavar="FILE", help="Keep the redacted values here; tools then get them back."),
    "scorer": _option(WHAT, str, help="exact, numeric, tests, ... (see docs/tasks.md) or module:function."),
    "choices": _option(WHAT, str, help="The possible answers: a,b,c; @FILE of lines; auto: the targets of the tasks."),
    "no_labels": _option(WHAT, bool, "--no-labels", help="Learning sees neither targets nor scores."),
    "judged": _option(WHAT, bool, "--judge", help="Without labels or scores: a judge's verdict is the feedback."),
    "validate_every": _option(WHAT, int, min=1, help="Steps between two validations."),
    "method": _option(METHOD, str, autocompletion=method_names, help="One of those that `practicum methods` lists."),
    "set_": _option(METHOD, list[str], "--set", metavar="NAME=VALUE", help="A setting of the method; repeatable."),
    "epochs": _option(METHOD, int, min=1, help="Passes over the tasks."),
    "steps": _option(METHOD, int, min=1, help="Steps of learning, through as many epochs as they take."),
    "batch": _option(METHOD, str, "--batch-size", help="Tasks attempted before the context changes; combee: or auto."),
    "online": _option(METHOD, bool, "--online", help="Each task is predicted first and then learned from."),
    "asynchronous": _option(METHOD, bool, "--asynchronous", help="combee: a step does not wait for slow attempts."),
    "staleness": _option(METHOD, int, help="combee --asynchronous: versions a delta may be behind."),
    "scaling": _choice(METHOD, "Memory methods: how a task is tried k times", "parallel", "sequential", "none"),
    "k": _option(METHOD, int, min=0, help="Attempts at each task, or passes after the first attempt."),
    "preset": _choice(METHOD, "Memory methods: settings by name", "routine", "standard", "critical", "specification"),
    "profile": _choice(MODEL, "Prompts and forms for capable or for small models", "full", "small"),
    "sections": _option(METHOD, str, help="Sections of the playbook: a file of NAME: DESCRIPTION lines, or a,b,c."),
    "review": _choice(METHOD, "Which edits wait for practicum review", "none", "foreign", "all"),
    "trust_tools": _option(METHOD, bool, "--trust-tools", help="What tools return is as trusted as your tasks."),
    "seed": _option(METHOD, int, help="The seed of every random choice."),
    "model": _option(MODEL, str, help="openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or local:PATH."),
    "role": _option(MODEL, list[str], metavar="ROLE=MODEL", help="For agent, reflector, curator, judge or state."),
    "price": _option(
        MODEL, list[str], metavar="in=X,out=X", help="USD per million tokens, cached=X too; 'NAME in=…' for one model."
    ),
    "api_key_env": _option(
        MODEL, str, metavar="NAME", help="For a model at an address: the environment variable with its key."
    ),
    "agent": _option(MODEL, str, help="chat, tools:module:name, appworld:URL, command:PROGRAM or module:function."),
    "instructions": _option(MODEL, str, help="Text, or @FILE, that the agent sees with each task."),
    "reasoning": _option(MODEL, bool, "--reasoning", help="The chat agent writes its reasoning before the answer."),
    "no_reasoning": _option(MODEL, bool, "--no-reasoning", help="The chat agent writes the answer only."),
    "max_turns": _option(MODEL, int, min=1, help="Agents with tools: model calls in one attempt."),
    "tool_timeout": _option(MODEL, float, help="Agents with tools: seconds that a tool may take."),
    "guard_tools": _choice(
        MODEL, "Agents with tools: calls that carry text of strangers alone", "off", "refuse", "ask"
    ),
    "temperature": _option(MODEL, float, min=0.0, help="The sampling temperature of every role."),
    "max_output_tokens": _option(
        MODEL, int, min=1, help="Tokens that one call may write (default: 4096; profile small: 1024)."
    ),
    "timeout": _option(MODEL, float, help="Seconds that one try of a call may take."),
    "max_reply_mb": _option(MODEL, float, help="Megabytes of a reply; a larger one is a failed call."),
    "model_options": _option(
        MODEL, str, metavar="JSON", help='More for every request: {"extra_body": {…}, "headers": {NAME: "env:NAME"}}.'
    ),
    "retries": _option(MODEL, int, min=0, help="How often a failed call is sent again."),
    "structure": _choice(MODEL, "How models are asked for JSON", "native", "tool", "prompted", "grammar"),
    "window": _option(MODEL, int, help="Tokens that fit into the model's context window."),
    "embedder": _option(MODEL, str, help="wordllama, granite, or one of pydantic-ai (openai:text-embedding-3-small)."),
    "engine": _choice(CLUSTER, "Where attempts are made: in this process, or on a cluster of Ray", "local", "ray"),
    "ray_address": _option(
        CLUSTER, str, metavar="HOST:PORT", help="The cluster's head, or auto (default: a Ray of this machine)."
    ),
    "resources": _option(
        CLUSTER, str, metavar="cpu=X,gpu=X", help="What an attempt takes; memory=4gb, image=NAME and others too."
    ),
    "concurrency": _option(MODEL, int, min=1, help="Calls in flight at one endpoint."),
    "max_calls": _option(BUDGET, int, min=1, help="Stop before more model calls than this."),
    "max_tokens": _option(BUDGET, int, min=1, help="Stop before more tokens than this."),
    "max_usd": _option(BUDGET, float, help="Stop before it costs more US dollars than this."),
    "max_minutes": _option(BUDGET, float, help="Stop after this many minutes of work."),
}
"""Options of a run by parameter name; `inputs.config_values` makes fields of `Config` from them."""

MODELS = (
    "redact", "redact_map", "scorer", "choices", "model", "role", "price", "api_key_env", "profile", "agent",
    "instructions", "reasoning", "max_turns", "tool_timeout", "guard_tools", "temperature", "max_output_tokens",
    "timeout", "max_reply_mb", "model_options", "structure", "embedder",
)  # fmt: skip
ATTEMPTS = (*MODELS, "no_reasoning", "method", "scaling", "k", "preset", "set_", "seed", "max_calls", "max_tokens")
ON_CLUSTER = ("engine", "ray_address", "resources")
LIMITS = ("max_calls", "max_tokens", "max_usd", "max_minutes")

RENAMED = {
    "attempts": "--retries", "labels=False": "--no-labels", "reasoning=False": "--no-reasoning", "judged": "--judge",
    "batch": "--batch-size", "settings": "--set", "prices": "--price", "roles": "--role",
    "seed_context": "--seed-playbook",
}  # fmt: skip
"""Options whose names are not those of the settings."""

KEYWORDS = (
    "approve_better", "baseline", "before", "every", "fields", "format", "from_traces", "judge_again",
    "learn", "methods", "out", "plot", "port", "reason", "repeat", "seeds", "sweep", "target", "tasks", "test",
    "trust", "trust_run", "trust_scores", "val",
)  # fmt: skip
"""Further keywords of the library that are options of one command or another."""


def as_options(text: str) -> str:
    """A message of the library with the options of the command line: it writes settings as `max_usd` or `max_usd=N`,
    and those of a method as `settings: rounds=0`."""

    def option(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"] or ""
        if renamed := RENAMED.get(found[0].strip("`")):
            return renamed
        if name not in SETTINGS and name not in KEYWORDS and name not in RENAMED:
            return found[0]
        return f"{RENAMED.get(name) or '--' + name.replace('_', '-')} {value.removeprefix('True')}".rstrip()

    text = re.sub(r"`settings: ([^`]+)`", r"--set \1", text)
    return re.sub(r"`(?P<name>\w+)(?:=(?P<value>[^`]+))?`", option, text)


C = TypeVar("C", bound=Callable[..., Any])


def settings(*names: str, **defaults: Any) -> Callable[[C], C]:
    """Give a command these options of a run, which it takes as keywords; those in `defaults` have a default."""

    def decorate(command: C) -> C:
        own = [p for p in signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        given = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=SETTINGS[name])
            for name in (*names, *defaults)
        ]
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in sorted((*own, *given), key=_panel_number)]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def _panel_number(parameter: Parameter) -> int:
    info = parameter.default if isinstance(parameter.default, ParameterInfo) else parameter.annotation.__metadata__[0]
    return PANELS.index(info.rich_help_panel)


class Learning(TyperCommand):
    """A command that begins runs: its help shows the defaults of `Config`. The import of that takes a while, so it is
    made when the help is asked for.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from practicum.session.config import Config

        defaults = {name: field.get_default(call_default_factory=True) for name, field in Config.model_fields.items()}
        defaults["retries"] = defaults["attempts"] - 1
        for parameter in self.params:
            if parameter.default is None and defaults.get(parameter.name):
                parameter.default = defaults[parameter.name]
        super().format_help(ctx, formatter)
