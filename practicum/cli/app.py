"""`practicum`: runs the commands, and turns errors into one line and an exit code."""

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
    """Run a command. Exit with 0, 1 (failure), 2 (usage error), 130 (interrupted), 143 (SIGTERM) or 129 (SIGHUP)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    collect_rarely()
    # --debug may appear anywhere, also after the command.
    words = [a for a in arguments if a != "--debug"]
    try:
        code = _run(words, debug=len(words) < len(arguments))
    except BrokenPipeError:
        # The reader of the output (head, less) has exited, which is not a failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(exit_code(code) if isinstance(code, int) else 0)


def _run(words: list[str], debug: bool) -> object:
    """Run a command. Print an error as one line on standard error, and with --json also in the JSON object."""
    result: dict[str, Any] = {}
    token, failure = RESULT.set(result), None
    try:
        with any_console(), _warnings_on_one_line(), stopped_by(_interrupt):
            code = root()(words, prog_name="practicum", standalone_mode=False)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        code, failure = _explain(error)
    finally:
        RESULT.reset(token)
    if failure is not None and "--json" in words:
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
    """Print each warning of practicum as one line on standard error while the block runs."""
    with warnings.catch_warnings():
        show_others = warnings.showwarning

        def show(message: Warning | str, *place: Any, **kwargs: Any) -> None:
            if isinstance(message, PracticumWarning):
                from practicum.cli.output import print_error

                print_error(f"warning: {message}")
            else:
                show_others(message, *place, **kwargs)

        warnings.showwarning = show
        warnings.simplefilter("always", PracticumWarning)
        yield


def _interrupt() -> None:
    raise KeyboardInterrupt


def _explain(error: BaseException) -> tuple[int, ErrorBody | None]:
    """Return the exit code of an error, and the body of the error to print (None: print nothing)."""
    if isinstance(error, PracticumError):
        return error.exit_code, {**error.body(), "message": as_options(str(error))}
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return 130, error_body("run.interrupted", "interrupted")
    # Recognize typer's usage errors by their attributes, because their classes moved between releases.
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        if not hasattr(error, "format_message"):
            return code, error_body("run.interrupted", "interrupted") if code == 130 else None
        if type(error).__name__ == "NoArgsIsHelpError":
            return code, None  # the help was printed
        context = getattr(error, "ctx", None)
        message = " ".join(_wrong_option(error, context).replace("Value error, ", "").split())
        command = getattr(context, "command_path", "practicum")
        # For the command of an operation, use the error code of an invalid field over HTTP or MCP.
        operation = getattr(getattr(getattr(context, "command", None), "callback", None), "operation", None)
        invalid = "command.invalid" if operation is None else operation.form.INVALID
        return code, error_body(invalid, f"{message.rstrip('.')}; see {command} --help")
    if isinstance(error, ImportError | AttributeError):
        from practicum.core.requirements import unmet_requirements

        if unmet := unmet_requirements():
            return 1, error_body("package.unsuitable", "; ".join(unmet))
    text = f"{type(error).__name__}: {error} (this is a bug in practicum: pass --debug to see the traceback)"
    return 1, error_body("practicum.bug", text)


def _wrong_option(error: Any, context: Any) -> str:
    """Return the message of a typer error. If the error is an option that does not exist, the message suggests the
    closest option, or explains that this name is a positional argument."""
    name = str(getattr(error, "option_name", ""))
    if type(error).__name__ != "NoSuchOption" or context is None:
        return str(error.format_message())
    arguments = [p.name for p in context.command.params if p.param_type_name == "argument"]
    if name.lstrip("-").replace("-", "_") in arguments:
        places = " ".join(one.upper() for one in arguments).replace("WHERE", "SPACE")
        return f"{name} is a positional argument: pass the value without the name ({context.command_path} {places})"
    options = [option for p in context.command.params for option in p.opts if option.startswith("--")]
    close = get_close_matches(name, options, n=1)
    return f"No such option: {name}{f' (did you mean {close[0]}?)' if close else ''}"


if __name__ == "__main__":
    main()
