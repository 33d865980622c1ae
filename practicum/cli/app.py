"""`practicum`: the commands put together, and errors turned into one clear line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer

from practicum.cli.console import RESULT, any_console
from practicum.cli.options import Learning, as_options
from practicum.cli.signals import exit_code, stopped_by
from practicum.core.errors import ErrorBody, PracticumError, PracticumWarning, error_body
from practicum.core.gc import collect_rarely
from practicum.core.plugins import Group, called

PANELS: dict[str, dict[str, str]] = {
    "Learn and answer": {
        "demo": "demo:demo", "tasks": "tasks:tasks", "advise": "advise:advise", "methods": "methods:methods",
        "plugins": "plugins:plugins",
        "learn": "learn:learn", "resume": "learn:resume", "run": "run:run", "serve": "serve:serve", "key": "key:app",
        "space": "space:app", "mcp": "mcp:mcp",
    },
    "Look at a run": {
        "show": "show:show", "view": "view:view", "diff": "context:diff", "monitor": "monitor:monitor",
        "dynamics": "dynamics:dynamics", "pools": "pools:pools", "export": "context:export",
    },
    "Change a run": {
        "review": "review:review", "edit": "edit:edit", "import": "context:import_", "memory": "memory:app",
        "name": "name:name", "forget": "context:forget", "rollback": "context:rollback",
    },
    "Measure": {"eval": "eval:eval_", "compare": "compare:compare", "bench": "bench:app"},
}  # fmt: skip
"""The commands in the order of the help, each with the module below `practicum.cli` that has it."""

COMMANDS: Group[Any] = Group(
    "practicum.commands", "command", called, {name: None for commands in PANELS.values() for name in commands}
)
"""Packages register a function with typer's options, or a `typer.Typer`, under the name of the command."""


def make_app(only: str | None = None) -> typer.Typer:
    """The commands put together. If `only` is the name of a command, no other is imported."""
    app = typer.Typer(
        help="Agents that learn from experience by changing what is in their context, never their weights.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    for panel, commands in PANELS.items():
        for name, place in commands.items():
            if only in COMMANDS.core and name != only:
                continue
            module, _, attribute = place.partition(":")
            command = getattr(import_module(f"practicum.cli.{module}"), attribute)
            if isinstance(command, typer.Typer):
                app.add_typer(command, rich_help_panel=panel)
            else:
                kind = Learning if name in ("learn", "compare") else None
                app.command(name, rich_help_panel=panel, cls=kind)(command)
    if only not in COMMANDS.core:
        _add_plugins(app, only)
    return app


def _add_plugins(app: typer.Typer, only: str | None) -> None:
    """Add the commands of plug-ins. One that does not load is left out with a line on standard error, unless it is the
    one that the user wants: then its error ends the command."""
    registered = COMMANDS.registered()
    for name in [only] if only is not None and only in registered else registered:
        try:
            command = COMMANDS.load(name)
        except PracticumError as error:
            if name == only:
                raise
            typer.echo(f"practicum: the command {name} is left out: {error}", err=True)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel="Plug-ins")
        else:
            app.command(name, rich_help_panel="Plug-ins")(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from practicum import __version__

        typer.echo(__version__)
        raise typer.Exit


def _options(
    debug: bool = typer.Option(False, "--debug", help="Show a traceback if something fails."),  # read by `main`
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    return


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with 0, 1 (a failure), 2 (wrong use) or 130 (interrupted; 143 by SIGTERM,
    129 by SIGHUP)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    collect_rarely()
    # --debug may stand anywhere, also behind the command.
    given = [a for a in arguments if a != "--debug"]
    try:
        code = _run(given, debug=len(given) < len(arguments))
    except BrokenPipeError:
        # The reader of the output has left (head, less), which is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(exit_code(code) if isinstance(code, int) else 0)


def _run(given: list[str], debug: bool) -> object:
    """Run a command. An error is one line on standard error, and with --json also part of the JSON object."""
    result: dict[str, Any] = {}
    held, failure = RESULT.set(result), None
    try:
        with any_console(), _warnings_on_one_line(), stopped_by(_interrupt):
            code = make_app(*given[:1])(given, prog_name="practicum", standalone_mode=False)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        code, failure = _explain(error)
    finally:
        RESULT.reset(held)
    if failure is not None and "--json" in given:
        result["error"] = failure
    if result or failure is not None:
        from practicum.cli.output import print_error, print_json

        if result:
            print_json(result)
        if failure is not None:
            print_error(failure["message"])
    return code


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    """While the block runs, a warning of practicum is one line on standard error."""
    with warnings.catch_warnings():
        show_others = warnings.showwarning

        def show(message: Warning | str, *place: Any, **how: Any) -> None:
            if isinstance(message, PracticumWarning):
                from practicum.cli.output import print_error

                print_error(f"warning: {message}")
            else:
                show_others(message, *place, **how)

        warnings.showwarning = show
        warnings.simplefilter("always", PracticumWarning)
        yield


def _interrupt() -> None:
    raise KeyboardInterrupt


def _explain(error: BaseException) -> tuple[int, ErrorBody | None]:
    """The exit code of an error, and what is printed of it."""
    if isinstance(error, PracticumError):
        return error.exit_code, {**error.body(), "message": as_options(str(error))}
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return 130, error_body("run.interrupted", "interrupted")
    # Usage errors of typer are told by what they carry: their classes moved from one release to the next.
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        if not hasattr(error, "format_message"):
            return code, error_body("run.interrupted", "interrupted") if code == 130 else None
        if type(error).__name__ == "NoArgsIsHelpError":
            return code, None  # the help was printed
        message = error.format_message().replace("Value error, ", "")
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "practicum")
        # An operation refuses a wrong option as it refuses a wrong field on every other face.
        operation = getattr(getattr(getattr(context, "command", None), "callback", None), "operation", None)
        invalid = "command.invalid" if operation is None else operation.form.INVALID
        return code, error_body(invalid, f"{message.rstrip('.')}; see {command} --help")
    if isinstance(error, ImportError | AttributeError):
        from practicum.core.requirements import unmet_requirements

        if unmet := unmet_requirements():
            return 1, error_body("package.unsuitable", "; ".join(unmet))
    text = f"{type(error).__name__}: {error} (this is a bug in practicum; --debug shows where)"
    return 1, error_body("practicum.bug", text)


if __name__ == "__main__":
    main()
