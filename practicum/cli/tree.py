"""Tree of commands. A command is imported and its options are built only when the command runs or its help is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from practicum.cli.options import CommandOption, info_of, parameters_of
from practicum.core.errors import PracticumError, UsageError
from practicum.core.plugins import Group, called
from practicum.core.words import quantity
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    from practicum.serve.api import Operation

START: Mapping[str, Mapping[str, str]] = {
    "Learn and answer": {"demo": "demo:demo", "learn": "learn:learn", "run": "run:run"},
    "Measure": {"eval": "eval:eval_", "compare": "compare:compare"},
    "Serve": {"serve": "serve:serve", "mcp": "mcp:mcp"},
    "Look at a space": {"show": "show:show", "view": "view:view", "export": "export:export"},
    "Decide": {"review": "review:review"},
    "Help": {"help": "help:help_"},
}
"""Commands of `practicum --help` by panel: name → `module:function` in `practicum.cli`."""

GROUPS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "space": ("Change or inspect one space.", {
        "resume": "learn:resume", "edit": "edit:edit", "import": "export:import_", "name": "versions:name",
        "rollback": "versions:rollback", "forget": "forget:forget", "diff": "versions:diff",
        "monitor": "monitor:monitor", "dynamics": "dynamics:dynamics", "pools": "pools:pools",
    }),
    "space memory": ("List, search, add and remove the memories of a space.", {
        "list": "memory:list_", "search": "memory:search", "add": "memory:add", "remove": "memory:remove",
        "reembed": "memory:reembed",
    }),
    "key": ("Make, list and remove the keys of a service, also while the service runs.", {
        "add": "key:add", "list": "key:list_", "remove": "key:remove",
    }),
    "bench": ("Choose a method, prepare tasks, and measure.", {
        "advise": "advise:advise", "tasks": "tasks:tasks", "methods": "methods:methods", "plugins": "plugins:plugins",
        "paper": "bench_paper:paper", "overload": "bench:overload", "retrieval": "bench:retrieval",
        "robustness": "bench:robustness",
    }),
}  # fmt: skip
"""Group → its one-line help, and its commands: name → `module:function` in `practicum.cli`."""

PLACES: Mapping[str, str] = {
    **{name: place for commands in START.values() for name, place in commands.items()},
    **{f"{group} {name}": place for group, (_, commands) in GROUPS.items() for name, place in commands.items()},
}
"""All commands of practicum: path → `module:function` in `practicum.cli`."""

COMMANDS: Group[Any] = Group("practicum.commands", "command", called, dict.fromkeys(path.split()[0] for path in PLACES))
"""Commands of other packages. A package registers a function with typer's options, or a `typer.Typer`, under the name
of the command."""

ALL = "help_all"
"""Name of the parameter of --help-all, and its key in the `meta` of a command's context."""


OPERATED, OPERATING = "space", "Operations on a space in a folder, or at the address of a service"
"""Name of the group that has the operations of a space, and the heading above the operations in the help of this
group."""


def operations() -> Mapping[str, Operation]:
    """Return the operations of a space, by the path of their command."""
    from practicum.cli.operations import by_command

    return {f"{OPERATED} {name}": operation for name, operation in by_command().items()}


def function_of(path: str, *, at_service: bool = False) -> Any:
    """Return the function of a command. Some commands have two functions: one for a folder, and one for a space at the
    address of a service. `at_service`: return the second function."""
    if path in PLACES and not at_service:
        module, _, attribute = PLACES[path].partition(":")
        return getattr(import_module(f"practicum.cli.{module}"), attribute)
    from practicum.cli.operations import command_of

    return command_of(operations()[path])


def summary_of(path: str) -> str:
    """Return the one-line summary of a command."""
    if path not in PLACES:
        return operations()[path].summary
    return (getdoc(function_of(path)) or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")


def sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each group with the summaries of its commands. For a plug-in that cannot be used, the summary is the reason
    why the plug-in cannot be used."""
    for panel, commands in START.items():
        yield panel, [(name, summary_of(name)) for name in commands]
    for group, (about, commands) in GROUPS.items():
        paths = [f"{group} {name}" for name in commands]
        if group == OPERATED:
            paths += [path for path in operations() if path not in PLACES]
        yield about.rstrip("."), [(path, summary_of(path)) for path in paths]
    yield "Plug-ins", [
        (f"{path}", about) for name in COMMANDS.registered() for path, about in _of_plugin(name)
    ]  # fmt: skip


def _of_plugin(name: str) -> Iterator[tuple[str, str]]:
    try:
        command = _plugin(name)
    except PracticumError as error:
        yield name, f"cannot be used: {error}"
        return
    for path, one in [(name, command), *((f"{name} {below}", one) for below, one in _commands_of(command).items())]:
        yield path, " ".join((one.help or "").split()).partition(". ")[0].rstrip(".")


def _commands_of(command: Any) -> Mapping[str, Any]:
    """Return the commands of a group by name; none if `command` is not a group."""
    return getattr(command, "commands", {})


def _plugin(name: str) -> Any:
    """Load a command that a package registers."""
    registered = COMMANDS.load(name)
    if not isinstance(registered, typer.Typer):
        return _built(registered, name)
    registered._add_completion = False
    command = get_command(registered)
    command.name = name
    return command


class Command(TyperCommand):
    """Command with two helps: --help shows the most important options, --help-all shows all options."""

    later: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = {}
    """Defaults to show in the help of options whose default is None."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown: Any = copy(self)
        shown.params = [copy(parameter) for parameter in self.params]
        for parameter in shown.params:
            parameter.default = self.defaults.get(parameter.name) or parameter.default
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        hidden = [] if ctx.meta.get(ALL) else [p for p in shown.params if p.name in self.later]
        for parameter in (*hidden, self.get_help_option(ctx)):
            parameter.hidden = True
        shown.epilog = f"--help-all shows {quantity(len(hidden), 'more option')}." if hidden else None
        super(Command, shown).format_help(ctx, formatter)


class Tree(TyperGroup):
    """Group of commands at `path`. The group imports a command when the command is used."""

    path = ""

    def list_commands(self, ctx: Any) -> list[str]:
        start = f"{self.path} ".lstrip()
        paths = (*PLACES, *GROUPS, *(operations() if self.path == OPERATED else ()))
        below = [path.removeprefix(start) for path in paths if path.startswith(start)]
        return [*dict.fromkeys(path.split()[0] for path in below), *(() if self.path else COMMANDS.registered())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        path = f"{self.path} {cmd_name}".strip()
        if path in PLACES:
            return build(path)
        if path in GROUPS:
            return group(path, GROUPS[path][0])
        if self.path == OPERATED and path in operations():
            return build(path)
        return _plugin(cmd_name) if not self.path and cmd_name in COMMANDS.registered() else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, Any, list[str]]:
        path = f"{self.path} {args[0]}"
        at_service = any(word.startswith(ADDRESSES) for word in args[1:])
        if self.path == OPERATED and at_service and path in operations():
            return args[0], build(path, at_service=True), args[1:]
        if (command := self.get_command(ctx, args[0])) is None:
            raise UsageError("command.invalid", f"no command named {args[0]!r:.80}{_suggestion(self.path, args[0])}")
        return args[0], command, args[1:]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        if self.path:
            rows = [(name, self._summary(name)) for name in self.list_commands(ctx)]
            own = [row for row in rows if f"{self.path} {row[0]}" in (*PLACES, *GROUPS)]
            write(formatter, [("Commands", own), (OPERATING, [row for row in rows if row not in own])])
        else:
            write(formatter, [(panel, [(name, summary_of(name)) for name in names]) for panel, names in START.items()])
        write(formatter, [("Options", [record for p in self.get_params(ctx) if (record := p.get_help_record(ctx))])])
        if not self.path:
            formatter.write_paragraph()
            formatter.write_text("practicum help lists all commands, including the groups space, key and bench.")

    def _summary(self, name: str) -> str:
        path = f"{self.path} {name}"
        return GROUPS[path][0].rstrip(".") if path in GROUPS else summary_of(path)


def write(formatter: Any, parts: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Write lists of names with their summaries, aligned in two columns."""
    width = max((len(name) for _, rows in parts for name, _ in rows), default=0)
    for title, rows in parts:
        if rows:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), about) for name, about in rows])


def _suggestion(group: str, name: str) -> str:
    """Return the end of the error message for the unknown command `name`. This text suggests the command with the same
    name in another group, or the command with the closest name."""
    paths = [*PLACES, *GROUPS, *COMMANDS.registered(), *(operations() if group == OPERATED else ())]
    by_name: dict[str, list[str]] = {}
    for path in sorted(paths, key=lambda path: not path.startswith(group)):
        by_name.setdefault(path.split()[-1], []).append(path)
    within = [last for last, same_name in by_name.items() if group and same_name[0].startswith(group)]
    close = [name] if name in by_name else get_close_matches(name, within, n=1) or get_close_matches(name, by_name, n=1)
    if not close:
        return f": practicum {f'{group} --help' if group else 'help'} lists all commands"
    return f": did you mean {' or '.join(f'practicum {path}' for path in by_name[close[0]])}?"


def build(path: str, *, at_service: bool = False) -> Any:
    """Build a command of practicum with its options. See `function_of` for `at_service`."""
    return _built(function_of(path, at_service=at_service), path)


def _built(function: Any, path: str) -> Any:
    """Build the command at `path` from its function."""
    parameters = parameters_of(function)
    options = {p.name: info for p in parameters if isinstance(info := info_of(p), CommandOption)}
    later = frozenset(name for name, info in options.items() if not info.first)
    if later:
        show = Option(False, "--help-all", is_eager=True, hidden=True, callback=_show_all)
        parameters.append(Parameter(ALL, Parameter.KEYWORD_ONLY, default=show, annotation=bool))

    @wraps(function)
    def command(**arguments: Any) -> Any:
        arguments.pop(ALL, None)
        for value in arguments.values():
            if isinstance(value, Path) and value.parts[:1] in (("http:",), ("https:",)):
                address = str(value).replace(":/", "://", 1)
                raise UsageError(
                    "run.not_found",
                    f"{address} is the address of a service, but `practicum {path}` takes a folder or a file "
                    "(practicum space --help lists the commands that take an address)",
                )
        return function(**arguments)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    # Join the lines of each paragraph, because typer keeps line breaks.
    command.__doc__ = "\n\n".join(" ".join(part.split()) for part in (getdoc(function) or "").split("\n\n"))
    app = _app()
    app.command(path.split()[-1], cls=Command)(command)
    built: Any = get_command(app)
    built.later, built.defaults = later, {name: info.shown for name, info in options.items()}
    return built


def _show_all(ctx: typer.Context, requested: bool) -> None:
    if requested:
        ctx.meta[ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


def group(path: str, about: str, **kwargs: Any) -> Any:
    """Build the group of commands at `path` ("": the root, which has all commands)."""
    app = _app(cls=Tree, name=path.split()[-1] if path else None, help=about, **kwargs)
    app.callback()(_options if not path else _nothing)
    tree: Any = get_command(app)
    tree.path = path
    return tree


def root() -> Any:
    """Build the root of the tree, with all commands."""
    about = "Agents that learn from experience by changing their context, never their weights."
    return group("", about, add_completion=True)


def _app(**kwargs: Any) -> typer.Typer:
    return typer.Typer(
        **{"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": "rich", **kwargs}
    )


def _nothing() -> None:
    return


def _print_version(requested: bool) -> None:
    if requested:
        from practicum import __version__

        typer.echo(__version__)
        raise typer.Exit


def _options(
    debug: bool = Option(False, "--debug", help="Show the traceback of an error."),  # read by `main`
    version: bool = Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    return
