"""`practicum`: the commands put together, and errors turned into one clear line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import typer

from practicum.cli.console import RESULT, any_console
from practicum.cli.options import as_options
from practicum.cli.signals import exit_code, stopped_by
from practicum.cli.tree import root
from practicum.core.errors import ErrorBody, PracticumError, PracticumWarning, error_body
from practicum.core.gc import collect_rarely


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
            code = root()(given, prog_name="practicum", standalone_mode=False)
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
        context = getattr(error, "ctx", None)
        message = " ".join(_wrong_option(error, context).replace("Value error, ", "").split())
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


def _wrong_option(error: Any, context: Any) -> str:
    """The message of an error of typer. For an option that does not exist it names the closest one, or says that the
    value of this name is an argument."""
    name = str(getattr(error, "option_name", ""))
    if type(error).__name__ != "NoSuchOption" or context is None:
        return str(error.format_message())
    arguments = [p.name for p in context.command.params if p.param_type_name == "argument"]
    if name.lstrip("-").replace("-", "_") in arguments:
        places = " ".join(one.upper() for one in arguments).replace("WHERE", "SPACE")
        return f"{name} is an argument, given without its name: {context.command_path} {places}"
    options = [option for p in context.command.params for option in p.opts if option.startswith("--")]
    close = get_close_matches(name, options, n=1)
    return f"No such option: {name}{f' (did you mean {close[0]}?)' if close else ''}"


if __name__ == "__main__":
    main()
