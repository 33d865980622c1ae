"""`practicum key`: the keys of the learning service, made, listed and removed; also while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.cli.serve import place
from practicum.core.errors import UsageError
from practicum.core.words import quantity

if TYPE_CHECKING:
    from practicum.serve.access import Grant
    from practicum.store.database import Database

Name = Annotated[str, Argument(help="The name of the key, such as that of who gets it.")]
StorePlace = Annotated[
    str, opt.option("--store", envvar="PRACTICUM_STORE", show_envvar=False, metavar="PLACE", help=opt.HELPS["--store"])
]
Space = Annotated[str, opt.option(show_default=False)]


def add(
    name: Name,
    grant: list[str] = opt.option(..., metavar="ROLE"),
    store: StorePlace = "practicum-store",
    space: Space = "",
    days: int | None = Option(None, min=1, max=36_500, help="Days until it expires (default: it does not)."),
    a_minute: int | None = opt.option(None, min=1, max=10_000_000),
    json_: opt.Json = False,
) -> None:
    """Make a key and print it, once.

    The store has only its digest. The store is made if it does not exist.
    """
    from practicum.serve import access

    with _opened(store, make=True) as database:
        key = access.add_key(database, name, space, grant, days, a_minute)
        made = next(one for one in access.stored_keys(database) if (one.name, one.space) == (name, space))
    out = Printer(json_)
    out.result({**made.as_json(), "key": key})
    if not json_:
        out.print(key, soft_wrap=True)
    until = f"; it expires at {_time(made.expires)}" if made.expires else ""
    out.print(f"key {name} for {_spaces(made)}: {', '.join(made.named)}{until}; it is not shown again")


def list_(store: StorePlace = "practicum-store", json_: opt.Json = False) -> None:
    """List the keys, with their roles and when they expire.

    The store does not have the keys themselves.
    """
    from practicum.serve.access import stored_keys

    with _opened(store) as database:
        grants = stored_keys(database)
    out = Printer(json_)
    out.result({"keys": [grant.as_json() for grant in grants]})
    rows = [(g.name, g.space or "all", ", ".join(g.named), _end(g), g.a_minute) for g in grants]
    if rows:
        out.table(("key", "space", "roles", "expires", "a minute"), rows, text=("key", "space", "roles", "expires"))
    out.print(quantity(len(rows), "key"))


def remove(
    name: Name, store: StorePlace = "practicum-store", space: Space = "", json_: opt.Json = False
) -> None:  # fmt: skip
    """Remove a key.

    Requests with it are refused within a second, and sessions that signed in with it end.
    """
    from practicum.serve.access import remove_key

    with _opened(store) as database:
        remove_key(database, name, space)
    out = Printer(json_)
    out.result({"name": name, "space": space})
    out.print(f"the key {name} is removed")


@contextmanager
def _opened(store: str, *, make: bool = False) -> Iterator[Database]:
    """What a service keeps, also while it is at work."""
    from practicum.store.database import Database
    from practicum.store.folder import DATABASE_FILE

    where, folder = place(store)
    if isinstance(where, Path) and not make and not (where / DATABASE_FILE).exists():
        raise UsageError(
            "store.not_found", f"there is no store {where}: give --store, or make the first key (practicum key add)"
        )
    database = Database.at(where, folder, create=make)
    try:
        yield database
    finally:
        database.close()


def _spaces(grant: Grant) -> str:
    return f"space {grant.space}" if grant.space else "all spaces"


def _end(grant: Grant) -> str | None:
    if grant.expires is None:
        return None
    return f"{_time(grant.expires)}{' (expired)' if grant.expired else ''}"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
