"""Command `practicum store`: copy, connect, list and remove runs in a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer, confirm
from practicum.core.words import quantity

app = typer.Typer(
    name="store",
    help="Manage where runs are stored: in files, or in a PostgreSQL database (postgresql://USER@HOST/DATABASE).",
    no_args_is_help=True,
)


RUN_NAME = Argument(..., help="Name of a run in the database, as listed by practicum store list.")


@app.command()
def copy(
    run: opt.RunFolder,
    folder: Path = Argument(..., metavar="TO", help="Folder of the copy. It is created."),
    store: opt.StoreUrl = None,
    json_: opt.Json = False,
) -> None:
    """Copy a run into a database (--store) or into a file, and compare the copy with the original. The run is locked
    against writes during the copy."""
    from practicum.store.copy import copy_run
    from practicum.store.database import Store, as_stored

    with as_stored(run), Store.open(run) as source:
        copied = copy_run(source, folder, store or None)
    out = Printer(json_)
    out.result({"run": str(run), "copy": str(folder), "rows": copied.rows, "version": copied.version})
    for table, rows in copied.rows.items():
        out.item(f"{table}: {quantity(rows, 'row')}, identical")
    out.print(f"version {copied.version} of {folder} equals the original: {quantity(copied.entries, 'entry')}")


@app.command()
def connect(
    url: str = Argument(..., help="URL of the database: postgresql://USER@HOST/DATABASE."),
    name: str = RUN_NAME,
    folder: Path = Argument(..., help="New folder for the run on this machine."),
    json_: opt.Json = False,
) -> None:
    """Create a local folder for a run that another machine created in a database. All commands accept this folder."""
    from practicum.store.database import Store

    with Store.connect(folder, url, name):
        pass
    out = Printer(json_)
    out.result({"run": str(folder), "name": name})
    out.print(f"{folder} is the run {name}: practicum show {folder}")


@app.command("list")
def list_(
    url: str = Argument(..., envvar="PRACTICUM_STORE", show_envvar=False, help="URL of the database."),
    json_: opt.Json = False,
) -> None:
    """List the runs of a database."""
    from practicum.plugins.postgres.database import parse_url
    from practicum.plugins.postgres.store import PostgresqlBackend
    from practicum.store.database import Database

    out, names = Printer(json_), Database(Path(), PostgresqlBackend(parse_url(url), create=False)).names()
    out.result({"runs": names})
    for name in names:
        out.item(name)


@app.command()
def remove(
    url: str = Argument(..., help="URL of the database: postgresql://USER@HOST/DATABASE."),
    name: str = RUN_NAME,
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Remove a run permanently from a database, for every machine. The local folders of the run can then be deleted.
    The run is locked against writes during the removal."""
    from tempfile import TemporaryDirectory

    from practicum.plugins.postgres.database import parse_url
    from practicum.plugins.postgres.store import PostgresqlBackend
    from practicum.store.copy import sizes
    from practicum.store.database import Database

    with TemporaryDirectory(prefix="practicum-") as folder:
        database = Database(Path(folder), PostgresqlBackend(parse_url(url), create=False))
        address = database.backend.name
        with database.named(name).leased() as store:
            rows = sizes(store)
            confirm(f"Remove the run {name} from {address} permanently ({quantity(sum(rows.values()), 'row')})?", yes)
            store.remove()
    out = Printer(json_)
    out.result({"name": name, "rows": rows})
    for table, count in rows.items():
        out.item(f"{table}: {quantity(count, 'row')}")
    out.print(f"removed the run {name} from {address}; its data may remain in the server's files and backups")
