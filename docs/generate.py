"""Generate the reference of the manual from the code: mkdocs runs this script at each build (see mkdocs.yml).

Every page comes from the table that the code itself uses, so nothing is written twice. A public name, command, option,
setting or field without a description stops the build."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import griffe
import mkdocs_gen_files
import typer
from pydantic import BaseModel

import practicum
from practicum import methods
from practicum.cli import tree
from practicum.core.codes import CODES
from practicum.core.counts import Count
from practicum.core.metrics import METRICS, MetricKind
from practicum.core.settings import Panel, SettingField
from practicum.methods.describe import anatomy
from practicum.serve.access import ROLES
from practicum.serve.api import OPERATIONS, Operation
from practicum.serve.settings import SETTINGS as SERVICE_SETTINGS
from practicum.session.config import SETTINGS as RUN_SETTINGS


class Undocumented(Exception):
    """A public name has no description."""


def required(text: str | None, name: str) -> str:
    """Return a description on one line. Raise Undocumented if it is empty."""
    if not (text or "").strip():
        raise Undocumented(f"{name} has no description: write its docstring or help")
    return " ".join(str(text).split())


def cell(value: object) -> str:
    """Return a value as the text of a table cell."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"
    yield ""


# ---- Command line


def commands() -> Iterator[str]:
    """Yield the page of all commands with their arguments and options."""
    yield "# Command line\n"
    yield (
        "Every command, with all of its arguments and options. Every command takes `--json`: it then prints one JSON "
        "object on standard output, and everything else on standard error. `practicum --install-completion` installs "
        "completion for your shell.\n"
    )
    yield from table(("exit code", "meaning"), (
        (0, "success, also when a budget stopped the run"), (1, "failure"), (2, "wrong input or options"),
        ("130, 143, 129", "stopped by Ctrl-C, by SIGTERM (containers send it), by SIGHUP (the terminal was closed)"),
    ))  # fmt: skip
    for heading, rows in tree.sections():
        yield f"## {heading}\n"
        for path, _ in rows:
            yield from command(path)


def command(path: str) -> Iterator[str]:
    """Yield the section of one command."""
    built = find(path)
    if hasattr(built, "commands"):
        return
    yield f"### practicum {path}\n"
    yield "\n\n".join(" ".join(part.split()) for part in required_help(built.help, path).split("\n\n")) + "\n"
    arguments = [one for one in built.params if one.param_type_name == "argument"]
    options = [one for one in built.params if one.param_type_name == "option" and one.name not in ("help", tree.ALL)]
    names = {one.name: (one.metavar or one.name).upper() for one in arguments}
    usage = " ".join(names[one.name] if one.required else f"[{names[one.name]}]" for one in arguments)
    yield f"```text\npracticum {path} {usage}{' [OPTIONS]' if options else ''}\n```\n"
    rows = [(f"`{names[one.name]}`", required(one.help, f"{path} {one.name}"), "") for one in arguments]
    for one in options:
        spelled = " / ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        default = one.default if not callable(one.default) else None
        shown = f"`{default}`" if default not in (None, False, True, (), [], "") else ""
        rows.append((spelled, required(one.help, f"{path} {spelled}"), shown))
    if rows:
        yield from table(("name", "description", "default"), rows)


def required_help(text: str | None, path: str) -> str:
    """Return the help of a command. Raise Undocumented if it has none."""
    required(text, f"practicum {path}")
    return str(text)


def find(path: str) -> Any:
    """Return the command of a path, of practicum or of a plug-in."""
    built: Any = tree.root()
    for name in path.split():
        built = built.get_command(typer.Context(built), name)
    return built


# ---- Settings


def settings() -> Iterator[str]:
    """Yield the page of all settings of runs and services."""
    yield "# Settings\n"
    yield (
        "Every setting with its option on the command line and its keyword in Python. An empty default is None. The "
        "last column says when `practicum space resume` may change it. The settings of a method (`--set NAME=VALUE`, "
        "`settings={...}`) are on [the page of methods](methods.md).\n"
    )
    yield "## Settings of a run\n"
    yield from panels(RUN_SETTINGS.values(), resumes=True)
    yield "## Settings of a service\n"
    yield "Options of `practicum serve`.\n"
    yield from panels(SERVICE_SETTINGS.values(), resumes=False)


def panels(fields: Iterable[SettingField], *, resumes: bool) -> Iterator[str]:
    """Yield a table for each panel of settings."""
    every = [*fields]
    for panel in Panel:
        if rows := [setting_row(field, resumes=resumes) for field in every if field.setting.panel is panel]:
            yield f"### {panel}{'' if resumes else ' (service)'}\n"
            yield from table(
                ("option", "keyword", "default", "unit", "description", *(("resume",) if resumes else ())), rows
            )


def setting_row(field: SettingField, *, resumes: bool) -> tuple[object, ...]:
    """Return the table row of one setting."""
    default = f"`{field.default}`" if field.default not in (None, "", {}, (), []) else ""
    text = f"{required(field.help, field.name)} {field.setting.note}".strip()
    row = (f"`{field.option}`" if field.options else "", f"`{field.name}`", default, field.setting.unit, text)
    return (*row, field.setting.resume) if resumes else row


# ---- Methods


def all_methods() -> Iterator[str]:
    """Yield the page of all methods with their seams, costs and settings."""
    yield "# Methods and their settings\n"
    yield (
        "Every method with its paper, the blocks in its seams, its costs and its settings. `--set NAME=VALUE` gives a "
        "setting on the command line, `settings={...}` in Python. [Which method](../learn/methods.md) says when to use "
        "which. `practicum bench methods NAME` prints the same for the settings that you give.\n"
    )
    for name in methods.METHODS.names():
        one = anatomy(name, {})
        yield f"## {name}\n"
        yield required(one.about, name) + "\n"
        if one.paper:
            yield f"Paper: {one.paper}.\n"
        if one.costs:
            yield f"Costs in addition to the attempts: {one.costs}.\n"
        yield from table(("seam", "block"), [(seam, f"`{block}`") for seam, block in one.seams.items()])
        small = methods.setting_docs(name, "small")
        rows = [
            (f"`{setting}`", f"`{default}`", "" if small[setting][0] == default else f"`{small[setting][0]}`",
             required(meaning, f"{name}.{setting}"))
            for setting, (default, meaning) in methods.setting_docs(name).items()
        ]  # fmt: skip
        if rows:
            yield from table(("setting", "default", "with `--profile small`", "description"), rows)


# ---- HTTP and MCP


def http() -> Iterator[str]:
    """Yield the page of the operations over HTTP."""
    yield "# HTTP API\n"
    yield (
        "The operations of a service. `GET /openapi.json` returns the same as an OpenAPI 3.1 document. The paths of "
        "OpenAI's and Anthropic's protocols are on the page of [the proxy](../serve/proxy.md). A request names its key "
        "as `Authorization: Bearer KEY`. An error has the status, and a body with a stable [code](errors.md).\n"
    )
    for one in OPERATIONS.values():
        yield f"## {one.label}\n"
        yield f"`{one.verb} {one.path}`, role `{one.role}`{', for a key of all spaces' if one.whole else ''}.\n"
        yield required(one.about, one.name) + "\n"
        yield from form(one)
        yield "Answer:\n"
        yield from model(one.answer)


def form(one: Operation) -> Iterator[str]:
    """Yield the table of an operation's fields."""
    rows = [
        (f"`{field.name}`", "required" if field.required else f"`{field.default}`" if field.default else "",
         f"{required(field.about, f'{one.name}.{field.name}')}{one_of(field.choices)}")
        for field in one.fields
    ]  # fmt: skip
    if rows:
        yield from table(("field", "default", "description"), rows)


def one_of(choices: Sequence[str]) -> str:
    """Return the choices of a field as the end of its description."""
    return f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""


def model(kind: type[BaseModel]) -> Iterator[str]:
    """Yield the table of a model's fields."""
    schema = kind.model_json_schema(mode="serialization")
    rows = [
        (f"`{name}`", type_of(field), field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]
    yield from table(("field", "type", "description"), rows)


def type_of(schema: dict[str, Any]) -> str:
    """Return a JSON schema's type in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"array of {type_of(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def mcp() -> Iterator[str]:
    """Yield the page of the tools over MCP."""
    yield "# MCP tools\n"
    yield (
        "The tools that `practicum mcp` and `/mcp` of a service offer to a client whose roles allow them. Each takes "
        "the fields of the [operation](http.md) of the same name.\n"
    )
    for role in ROLES:
        members = [one for one in OPERATIONS.values() if one.role == role]
        rows = [
            (f"[`{one.name}`](http.md#{one.label.replace(' ', '-')})", f"{one.summary}.", one.advice) for one in members
        ]
        yield f"## Role {role}\n"
        yield from table(("tool", "description", "when an agent calls it"), rows)


# ---- Errors, counters, metrics


def errors() -> Iterator[str]:
    """Yield the page of error codes and counters."""
    yield "# Errors and counters\n"
    yield (
        "Each error has a stable code: compare codes in programs, not sentences. Python: `error.code`, `error.fields` "
        "and `str(error)` of a `practicum.PracticumError`. Command line: with `--json` the object has `error` with "
        "`code`, `message` and `fields`. HTTP: `error.code` in the body. MCP: `error` in the structured content. "
        "[When a run stops](../learn/reading.md#when-a-run-stops) says how to continue.\n"
    )
    for group, codes in groupby(sorted(CODES.items()), lambda item: item[0].partition(".")[0]):
        yield f"## {group}\n"
        yield from table(
            ("code", "meaning and what to do"), [(f"`{code}`", required(text, code)) for code, text in codes]
        )
    yield "## Counters\n"
    yield (
        "A report lists these under `counted:`, and under `errors` with `--json`. Counters with `!` need your "
        "attention.\n"
    )
    rows = [(f"`{count}`", "!" if count.attention else "", required(count.meaning, count)) for count in sorted(Count)]
    yield from table(("counter", "", "meaning"), rows)


def metrics() -> Iterator[str]:
    """Yield the page of metrics."""
    groups = {
        "series": "A run, by step", "progress": "A run at work", "comparison": "A comparison, by variant",
        "service": "A service",
    }  # fmt: skip
    yield "# Metrics\n"
    yield (
        "Metrics of a run by step are in `practicum space monitor RUN --json` at `GROUP.by_step.NAME`, and in "
        "OpenTelemetry as `practicum.GROUP.NAME`. Trackers send the metrics of a run at work, with `_` for `.`. "
        "Metrics of a comparison are columns of its tables, and in `report.json` at `variants[].NAME`. Prometheus "
        "reads the metrics of a service at `/metrics`.\n"
    )
    for group, members in groupby(METRICS.values(), lambda one: "service" if one.group == "service" else one.kind):
        yield f"## {groups[group]}\n"
        yield from table(("name", "unit", "labels", "description"), map(metric_row, members))


def metric_row(metric: MetricKind) -> tuple[object, ...]:
    """Return the table row of one metric."""
    name = metric.name
    if metric.group == "service":
        name = metric.prometheus + ("_total" if metric.kind == "counter" else "")
    kind = "" if metric.kind in ("series", "progress") else f" ({metric.kind})"
    return (
        f"`{name}`",
        metric.unit + kind,
        ", ".join(f"`{label}`" for label in metric.labels),
        required(metric.about, name),
    )


# ---- Python


def python() -> Iterator[str]:
    """Yield the page of the Python API, which mkdocstrings fills."""
    yield "# Python API\n"
    yield (
        "Everything on this page is imported from `practicum`. `learn`, `resume`, `evaluate`, `compare` and `ask` are "
        "coroutines: `practicum.run_sync` runs one from synchronous code. All signatures are typed.\n"
    )
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Types": []}
    package = griffe.load("practicum", resolve_aliases=True)
    for name in practicum.__all__:
        value = getattr(practicum, name)
        if inspect.ismodule(value):
            continue
        documented = package[name]
        required(documented.docstring and documented.docstring.value, f"practicum.{name}")
        kind = "Classes" if inspect.isclass(value) else "Functions" if inspect.isroutine(value) else "Types"
        kinds[kind].append(documented.canonical_path)
    for heading, members in kinds.items():
        yield f"## {heading}\n"
        for path in members:
            yield f"::: {path}\n    options: {{show_root_full_path: false, heading_level: 3}}\n"
    yield "## Trackers\n\n::: practicum.plugins.trackers"
    yield "    options: {show_root_heading: false, members: [Wandb, Mlflow, Otel]}\n"


PAGES = {
    "commands": commands, "settings": settings, "methods": all_methods, "http": http, "mcp": mcp, "python": python,
    "errors": errors, "metrics": metrics,
}  # fmt: skip


def main() -> None:
    """Write every page of the reference."""
    for name, page in PAGES.items():
        with mkdocs_gen_files.open(f"reference/{name}.md", "w") as file:
            file.write("\n".join(page()) + "\n")


main()
