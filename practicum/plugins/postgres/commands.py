"""`practicum store`: runs in a PostgreSQL database: copied there and back, connected to, listed, removed."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import Printer, confirm
from practicum.core.words import quantity

app = typer.Typer(
    name="store",
    help="Where runs are kept: in files, or in a PostgreSQL database (postgresql://USER@HOST/DATABASE).",
    no_args_is_help=True,
)


RUN_NAME = Argument(..., help="The name of a run there (practicum store list).")


@app.command()
def copy(
    run: opt.RunFolder,
    folder: Path = Argument(..., metavar="TO", help="The folder of the copy, which is made."),
    store: opt.StoreUrl = None,
    json_: opt.Json = False,
) -> None:
    """Copy a run into a database (--store) or into a file, and compare the copy with it. Nobody can write to the run
    meanwhile."""
    from practicum.store.copy import copy_run
    from practicum.store.database import Store, as_stored

    with as_stored(run), Store.open(run) as source:
        copied = copy_run(source, folder, store or None)
    out = Printer(json_)
    out.result({"run": str(run), "copy": str(folder), "rows": copied.rows, "version": copied.version})
    for table, rows in copied.rows.items():
        out.item(f"{table}: {quantity(rows, 'row')}, the same")
    out.print(f"version {copied.version} of {folder} is the same: {quantity(copied.entries, 'entry')}")


@app.command()
def connect(
    url: str = Argument(..., help="The database, as postgresql://USER@HOST/DATABASE."),
    name: str = RUN_NAME,
    folder: Path = Argument(..., help="A new folder for it on this machine."),
    json_: opt.Json = False,
) -> None:
    """Make a folder for a run that another machine made in a database. Every command takes this folder."""
    from practicum.store.database import Store

    with Store.connect(folder, url, name):
        pass
    out = Printer(json_)
    out.result({"run": str(folder), "name": name})
    out.print(f"{folder} is the run {name}: practicum show {folder}")


@app.command("list")
def list_(
    url: str = Argument(..., envvar="PRACTICUM_STORE", show_envvar=False, help="The database."),
    json_: opt.Json = False,
) -> None:
    """List the runs of a database."""
    from practicum.plugins.postgres.database import parse_url
    from practicum.plugins.postgres.store import PostgresqlBackend
    from practicum.store.database import Database

    out, found = Printer(json_), Database(Path(), PostgresqlBackend(parse_url(url), create=False)).names()
    out.result({"runs": found})
    for name in found:
        out.item(name)


@app.command()
def remove(
    url: str = Argument(..., help="The database, as postgresql://USER@HOST/DATABASE."),
    name: str = RUN_NAME,
    yes: opt.Yes = False,
    json_: opt.Json = False,
) -> None:
    """Remove a run from a database, for good and for every machine. Folders that name it can be deleted then. Nobody
    can write to the run meanwhile."""
    from tempfile import TemporaryDirectory

    from practicum.plugins.postgres.database import parse_url
    from practicum.plugins.postgres.store import PostgresqlBackend
    from practicum.store.copy import sizes
    from practicum.store.database import Database

    with TemporaryDirectory(prefix="practicum-") as folder:
        database = Database(Path(folder), PostgresqlBackend(parse_url(url), create=False))
        where = database.backend.name
        with database.named(name).leased() as store:
            rows = sizes(store)
            confirm(f"Remove the run {name} from {where} ({quantity(sum(rows.values()), 'row')}), for good?", yes)
            store.remove()
    out = Printer(json_)
    out.result({"name": name, "rows": rows})
    for table, count in rows.items():
        out.item(f"{table}: {quantity(count, 'row')}")
    out.print(f"the run {name} is removed from {where}; its bytes may stay in the server's files and backups")
