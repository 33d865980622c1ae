"""`practicum key`: makes, lists and removes the keys of a service, in the store of the service or through the running
service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.operations import Key, perform_at
from practicum.cli.output import Printer
from practicum.cli.serve import place
from practicum.core.errors import UsageError
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    from practicum.serve.answers import Answer
    from practicum.store.database import Database

Name = Annotated[str, Argument(help="The name of the key, such as the name of the person who uses the key.")]
StorePlace = Annotated[
    str, opt.option("--store", envvar="PRACTICUM_STORE", show_envvar=False, metavar="PLACE", help=opt.HELPS["--store"])
]
Space = Annotated[str, opt.option(show_default=False)]


def add(
    name: Name,
    grant: list[str] = opt.option(..., metavar="ROLE"),
    store: StorePlace = "practicum-store",
    space: Space = "",
    days: int | None = Option(None, min=1, max=36_500, help="Days until the key expires (default: never)."),
    per_minute: int | None = opt.option(None, min=1, max=10_000_000),
    key: Key = None,
    json_: opt.Json = False,
) -> None:
    """Make a key and print it, once.

    The store keeps only a digest of the key, so the key cannot be printed again. The store is created if it does not
    exist. If --store is the address of a service, the service makes the key.
    """
    if store.startswith(ADDRESSES):
        fields = {"name": name, "space": space, "roles": grant, "days": days, "per_minute": per_minute}
        _print(perform_at("add_key", store, None, key, **fields), json_)
        return
    from practicum.serve.access import add_key
    from practicum.serve.answers import CreatedKey

    with _opened(store, make=True) as database:
        stored, text = add_key(database, name, space, grant, days, per_minute)
    _print(CreatedKey(**stored.as_json(), key=text), json_)


def list_(store: StorePlace = "practicum-store", key: Key = None, json_: opt.Json = False) -> None:
    """List the keys, with their roles and expiry times.

    The keys themselves are not stored, only their digests.
    """
    if store.startswith(ADDRESSES):
        _print(perform_at("keys", store, None, key), json_)
        return
    from practicum.serve.access import stored_keys
    from practicum.serve.answers import KeyList, KeyRow

    with _opened(store) as database:
        grants = stored_keys(database)
    _print(KeyList(keys=[KeyRow(**grant.as_json()) for grant in grants]), json_)


def remove(
    name: Name, store: StorePlace = "practicum-store", space: Space = "", key: Key = None, json_: opt.Json = False
) -> None:
    """Remove a key.

    Within a second, requests with the key are refused and sessions that signed in with the key end.
    """
    if store.startswith(ADDRESSES):
        _print(perform_at("remove_key", store, None, key, name=name, space=space), json_)
        return
    from practicum.serve.access import remove_key
    from practicum.serve.answers import KeyRemoved

    with _opened(store) as database:
        remove_key(database, name, space)
    _print(KeyRemoved(name=name, space=space), json_)


def _print(answer: Answer, as_json: bool) -> None:
    out = Printer(as_json)
    out.result(answer.as_json())
    if not as_json:
        out.print(answer.as_text(), soft_wrap=True)


@contextmanager
def _opened(store: str, *, make: bool = False) -> Iterator[Database]:
    """Open the database of a store, even if a service has the database open. Close the database after the block.
    `make`: create the store if the store does not exist."""
    from practicum.store.database import Database
    from practicum.store.folder import DATABASE_FILE

    where, folder = place(store)
    if isinstance(where, Path) and not make and not (where / DATABASE_FILE).exists():
        raise UsageError(
            "store.not_found", f"no store in {where}: pass --store, or create it with the first key (practicum key add)"
        )
    database = Database.at(where, folder, create=make)
    try:
        yield database
    finally:
        database.close()
