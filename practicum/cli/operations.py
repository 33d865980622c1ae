"""Commands of the operations of a space, built from the table of operations: `practicum space NAME SPACE …`.

SPACE is the address of a service, or the folder of a run or a store. The first field of an operation is a positional
argument, the other fields are options.
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
"""Operation → its command, for operations whose command has a different name or is in another group."""


def table() -> Mapping[str, Operation]:
    """Return the operations by name. Raise UsageError if the extra `serve` is not installed."""
    try:
        from practicum.serve.operations import OPERATIONS
    except ImportError as error:
        from practicum.core.requirements import pip_install

        raise UsageError(
            "extra.missing", f"the operations of a space need: {pip_install('serve')} ({error})"
        ) from error
    return OPERATIONS


def by_command() -> dict[str, Operation]:
    """Return the operations that have a command in `practicum space`, by the name of the command."""
    return {one.name.replace("_", "-"): one for one in table().values() if one.name not in ELSEWHERE}


def command_of(operation: Operation) -> Callable[..., None]:
    """Return the function of an operation's command, with the command's options. The attribute `operation` of the
    function determines the error code for invalid options (see `cli.app`)."""
    named = operation.form.model_fields

    def run(
        where: str, space: str | None, key: str | None, json_: bool, user: str | None = None, yes: bool = False,
        **fields: Any,
    ) -> None:  # fmt: skip
        if operation.question:
            confirm(operation.question.format(**fields), yes)
        if "user" in named:
            fields, user = {**fields, "user": user}, None
        if "space" in named:
            fields["space"] = space
        values = {name: value for name, value in fields.items() if value is not None and value is not False}
        answer = perform(operation, where, space, key, user, values)
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
"""Form control of a field → type of the option for the field. The types of numbers and single choices depend on the
field."""


def _transport(where: str, space: str | None, key: str | None) -> Transport:
    """Open the transport to a space. Raise UsageError if `where` is neither an address nor a folder with a space."""
    from practicum.serve.transport import ServiceTransport, StoreTransport
    from practicum.store.database import Store
    from practicum.store.folder import SPACES, located, read_elsewhere

    if where.startswith(ADDRESSES):
        return ServiceTransport(where, space, key)
    folder, name = (Path(where), None) if "://" in where else located(Path(where))
    if (is_database := "://" in where) and not where.startswith("postgresql"):
        raise UsageError("run.not_found", f"{where} is neither a folder nor an address (http://host:port)")
    if is_database or read_elsewhere(folder) is not None:
        raise UsageError(
            "store.unsupported",
            f"{where} is in a database: start a service (practicum serve {where}) and pass the service's address",
        )
    if (chosen := space or name) is not None:
        # The first request of an agent creates a missing space. But a space that the user names must exist already.
        Store.read(folder / SPACES / chosen).close()
    return StoreTransport(folder, chosen or "default")


def perform_at(name: str, where: str, space: str | None, key: str | None, /, **values: Any) -> Answer:
    """Perform an operation by its name and return its answer. Values that are None are omitted."""
    return perform(table()[name], where, space, key, None, values)


def require_none(where: str, local: Mapping[str, Any]) -> None:
    """Raise UsageError if the user passed one of the options in `local`, which apply to folders only."""
    if named := [name for name, value in local.items() if value]:
        raise UsageError(
            "settings.unused",
            f"--{named[0].replace('_', '-')} applies to folders only, but {where} is the address of a service: omit "
            "the option",
        )


def require_user(where: str, space: str | None) -> None:
    """Raise UsageError for an address or a --space, which require --user."""
    if where.startswith(ADDRESSES):
        raise UsageError(
            "settings.missing",
            f"{where} is the address of a service: pass --user, or pass a folder in place of the address",
        )
    if space is not None:
        raise UsageError("settings.unused", "--space needs --user: pass both, or pass only the folder of the space")


def folder_of(where: str, space: str | None) -> Path:
    """Return the folder of a run, or the folder of a space in a store."""
    from practicum.store.folder import SPACES

    return Path(where) if space is None else Path(where) / SPACES / space


def perform(
    operation: Operation, where: str, space: str | None, key: str | None, user: str | None, values: Mapping[str, Any]
) -> Answer:
    """Perform an operation and return its answer."""
    import asyncio

    async def work() -> Answer:
        async with _transport(where, space, key) as transport:
            return await transport.perform(operation, values, user=user)

    return asyncio.run(work())
