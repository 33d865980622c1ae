"""The operations of a space as commands, made from their table: `practicum space NAME SPACE …`.

SPACE is the address of a service, or the folder of a run or a store. The first field of an operation can be given by
its position, the others are options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer, confirm
from practicum.core.errors import UsageError
from practicum.core.settings import HELPS
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    from practicum.serve.answers import Answer
    from practicum.serve.api import Operation
    from practicum.serve.transport import Transport

Where = Annotated[str, Argument(metavar="SPACE", help="The address of a service, or the folder of a run or a store.")]
Space = Annotated[str | None, opt.option("--space")]
Key = Annotated[str | None, opt.option("--key", envvar="PRACTICUM_KEY")]
User = Annotated[str | None, opt.option("--user")]


ELSEWHERE: Mapping[str, str] = {
    "review": "review", "decide": "review", "export_user": "export", "forget_user": "space forget",
    "keys": "key list", "add_key": "key add", "remove_key": "key remove",
}  # fmt: skip
"""The operations that a command of another name does, each with that command."""


def table() -> Mapping[str, Operation]:
    """The operations by name. Raises UsageError if the extra `serve` is missing."""
    try:
        from practicum.serve.operations import OPERATIONS
    except ImportError as error:
        from practicum.core.requirements import pip_install

        raise UsageError("extra.missing", f"this needs: {pip_install('serve')} ({error})") from error
    return OPERATIONS


def by_command() -> dict[str, Operation]:
    """The operations that have a command of their own, by its name."""
    return {one.name.replace("_", "-"): one for one in table().values() if one.name not in ELSEWHERE}


def command_of(operation: Operation) -> Callable[..., None]:
    """The function of the command, with its options. It has its `operation`, by which wrong options are refused."""
    named = operation.form.model_fields

    def run(
        where: str, space: str | None, key: str | None, json_: bool, user: str | None = None, yes: bool = False,
        **given: Any,
    ) -> None:  # fmt: skip
        if operation.question:
            confirm(operation.question.format(**given), yes)
        if "user" in named:
            given, user = {**given, "user": user}, None
        if "space" in named:
            given["space"] = space
        values = {name: value for name, value in given.items() if value is not None and value is not False}
        answer = performed(operation, where, space, key, user, values)
        out = Printer(json_)
        out.result(answer.as_json())
        if not json_:
            out.print(answer.as_text())

    parameters = [Parameter("where", Parameter.KEYWORD_ONLY, annotation=Where)]
    for number, field in enumerate(operation.fields):
        kind = _TYPES.get(field.control, int if field.whole else float)
        if field.control == "choice":
            kind = Literal[field.choices]
        if number == 0 and field.control != "check":
            info: Any = Argument(metavar=field.name.upper(), help=field.about)
        else:
            name = f"--{field.name.replace('_', '-')}"
            info = opt.option(name, help=HELPS.get(name, field.about))
        needed, check = field.required, field.control == "check"
        annotation: Any = Annotated[kind if needed or check else kind | None, info]
        default = Parameter.empty if needed else False if check else None
        parameters.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    if "user" not in named and operation.role in ("ask", "report") and not operation.whole:
        parameters.append(Parameter("user", Parameter.KEYWORD_ONLY, default=None, annotation=User))
    shared = [("space", None, Space), ("key", None, Key), ("json_", False, opt.Json)]
    if operation.question:
        shared.insert(0, ("yes", False, opt.Yes))
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=kind) for name, value, kind in shared
    ]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.operation = operation.name, operation.about, operation  # type: ignore[attr-defined]
    return run


_TYPES: Mapping[str, Any] = {"line": str, "text": str, "check": bool, "choices": list[str]}
"""The types of options by the control of their field, but for numbers and choices."""


def _transport(where: str, space: str | None, key: str | None) -> Transport:
    """The way to a space. Raises UsageError if there is none."""
    from practicum.serve.transport import ServiceTransport, StoreTransport
    from practicum.store.database import Store
    from practicum.store.folder import SPACES, located, read_elsewhere

    if where.startswith(ADDRESSES):
        return ServiceTransport(where, space, key)
    folder, name = (Path(where), None) if "://" in where else located(Path(where))
    if (strange := "://" in where) and not where.startswith("postgresql"):
        raise UsageError("run.not_found", f"{where} is neither a folder nor an address (http://host:port)")
    if strange or read_elsewhere(folder) is not None:
        raise UsageError(
            "store.unsupported", f"{where} is in a database: give the address of the service (practicum serve {where})"
        )
    if (chosen := space or name) is not None:
        # An agent's memory is made by its first request, but a name that is typed must exist.
        Store.read(folder / SPACES / chosen).close()
    return StoreTransport(folder, chosen or "default")


def perform_at(name: str, where: str, space: str | None, key: str | None, /, **given: Any) -> Answer:
    """The answer of an operation, by its name. Values that are None are left out."""
    return performed(table()[name], where, space, key, None, given)


def require_none(where: str, local: Mapping[str, Any]) -> None:
    """Raises UsageError for options that are given and that the service at an address does not take."""
    if named := [name for name, value in local.items() if value]:
        raise UsageError(
            "settings.unused",
            f"--{named[0].replace('_', '-')} is for a folder, and {where} is the address of a service: leave it out",
        )


def require_user(where: str, space: str | None) -> None:
    """Raises UsageError for what only goes with --user."""
    if where.startswith(ADDRESSES):
        raise UsageError("settings.missing", f"{where} is the address of a service: give --user, or a folder")
    if space is not None:
        raise UsageError("settings.unused", "--space is for --user: of a store with many spaces, this one alone")


def folder_of(where: str, space: str | None) -> Path:
    """The folder of a run, or that of a space in a store."""
    from practicum.store.folder import SPACES

    return Path(where) if space is None else Path(where) / SPACES / space


def performed(
    operation: Operation, where: str, space: str | None, key: str | None, user: str | None, given: Mapping[str, Any]
) -> Answer:
    """The answer of an operation."""
    import asyncio

    async def work() -> Answer:
        async with _transport(where, space, key) as transport:
            return await transport.perform(operation, given, user=user)

    return asyncio.run(work())
