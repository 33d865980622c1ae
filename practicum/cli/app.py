"""`practicum`: the commands put together, and errors turned into one clear line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer

from practicum.cli import (
    advise,
    bench,
    compare,
    context,
    demo,
    dynamics,
    edit,
    eval,
    feedback,
    key,
    learn,
    mcp,
    memory,
    methods,
    monitor,
    name,
    pools,
    review,
    run,
    serve,
    show,
    store,
    tasks,
    view,
)
from practicum.cli.options import Learning, as_options
from practicum.cli.output import print_error
from practicum.cli.signals import exit_code, stopped_by
from practicum.core.errors import PracticumError
from practicum.core.gc import collect_rarely
from practicum.core.requirements import unmet_requirements

app = typer.Typer(
    help="Agents that learn from experience by changing what is in their context, never their weights.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
PANELS: dict[str, tuple[Any, ...]] = {
    "Learn and answer": (
        demo.demo,
        tasks.tasks,
        advise.advise,
        methods.methods,
        learn.learn,
        learn.resume,
        run.run,
        serve.serve,
        key.app,
        feedback.feedback,
        mcp.mcp,
    ),
    "Look at a run": (
        show.show,
        view.view,
        context.diff,
        monitor.monitor,
        dynamics.dynamics,
        pools.pools,
        context.export,
    ),
    "Change a run": (
        review.review,
        edit.edit,
        context.import_,
        memory.app,
        name.name,
        context.forget,
        context.rollback,
        store.app,
    ),
    "Measure": (eval.eval_, compare.compare, bench.app),
}
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            kind = Learning if command in (learn.learn, compare.compare) else None
            app.command(command.__name__.rstrip("_"), rich_help_panel=panel, cls=kind)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from practicum import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
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
    try:
        # --debug may stand anywhere, also behind the command.
        with stopped_by(_interrupt):
            code = app([a for a in arguments if a != "--debug"], prog_name="practicum", standalone_mode=False)
    except BrokenPipeError:
        # The reader of the output has left (head, less), which is no failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in arguments:
            traceback.print_exc()
        code, message = _explain(error)
        if message:
            print_error(message)
    sys.exit(exit_code(code) if isinstance(code, int) else 0)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _explain(error: BaseException) -> tuple[int, str]:
    """The exit code and the line that stand for an error."""
    if isinstance(error, PracticumError):
        return error.exit_code, as_options(str(error))
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return 130, "interrupted"
    # Usage errors of typer are told by what they carry: their classes moved from one release to the next.
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        if not hasattr(error, "format_message"):
            return code, "interrupted" if code == 130 else ""
        if type(error).__name__ == "NoArgsIsHelpError":
            return code, ""  # the help was printed
        message = error.format_message().replace("Value error, ", "")
        command = getattr(getattr(error, "ctx", None), "command_path", "practicum")
        return code, f"{message.rstrip('.')}; see {command} --help"
    if isinstance(error, ImportError | AttributeError) and (unmet := unmet_requirements()):
        return 1, "; ".join(unmet)
    return 1, f"{type(error).__name__}: {error} (this is a bug in practicum; --debug shows where)"


if __name__ == "__main__":
    main()
