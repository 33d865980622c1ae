"""`practicum`: the commands put together, and errors turned into one clear line and an exit code."""

from __future__ import annotations

import os
import sys

import typer

from practicum.cli import (
    bench,
    bench_mael,
    compare,
    context,
    demo,
    dynamics,
    eval,
    learn,
    memory,
    methods,
    monitor,
    pools,
    run,
    tasks,
)
from practicum.core.errors import PracticumError
from practicum.core.gc import collect_rarely

app = typer.Typer(
    help="Agents that learn from experience by changing what is in their context, never their weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("learn")(learn.learn)
app.command("resume")(learn.resume)
app.command("run")(run.run)
app.command("eval")(eval.evaluate)
app.command("compare")(compare.compare)
app.command("dynamics")(dynamics.dynamics)
app.command("monitor")(monitor.monitor)
app.command("memory")(memory.memory)
app.command("pools")(pools.pools)
app.command("show")(context.show)
app.command("diff")(context.diff)
app.command("export")(context.export)
app.command("import")(context.import_)
app.command("forget")(context.forget)
app.command("rollback")(context.rollback)
app.command("methods")(methods.methods)
app.command("tasks")(tasks.tasks)
bench.app.command("mael")(bench_mael.mael)
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        from practicum import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show a traceback when something fails."),
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    # Both are seen to elsewhere: the first by `main`, the second before any command is looked for.
    return


def main(arguments: list[str] | None = None) -> None:
    """Run a command; leave with 0, 1 (a failure), 2 (wrong use) or 130 (interrupted)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    collect_rarely()
    debug = "--debug" in arguments
    # The switch may stand anywhere, also behind the command.
    arguments = [a for a in arguments if a != "--debug"]
    try:
        code = app(arguments, standalone_mode=False)
    except PracticumError as error:
        code = _failed(str(error), error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        code = _failed("interrupted", 130, debug)
    except BrokenPipeError:
        # Whoever read our output has gone (head, less); that is no failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = _unforeseen(error, debug)
    sys.exit(code if isinstance(code, int) else 0)


def _unforeseen(error: Exception, debug: bool) -> int:
    # Known by what they carry: the classes of typer and click moved from one release to the next.
    code, words = getattr(error, "exit_code", None), getattr(error, "format_message", None)
    if isinstance(code, int) and words is None:
        return _failed("interrupted", code, debug) if code == 130 else code
    if isinstance(code, int) and words is not None:
        where = getattr(getattr(error, "ctx", None), "command_path", "practicum")
        if type(error).__name__ == "NoArgsIsHelpError":
            print(words(), file=sys.stderr)
            return code
        return _failed(f"{words().rstrip('.')}; see {where} --help", code, debug)
    return _failed(f"{type(error).__name__}: {error} (this is a fault of practicum; --debug shows where)", 1, debug)


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"practicum: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
