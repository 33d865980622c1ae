"""`practicum space name`: names of versions, such as "prod", which stand for them in every command."""

from __future__ import annotations

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError


def name(
    run: opt.RunFolder,
    name: str | None = Argument(None, help="A name, such as prod (default: list the names)."),
    version: str | None = Argument(None, help="The version, or a name that it has (default: the last)."),
    delete: bool = Option(False, "--delete", help="Take the name away; its version stays."),
    json_: opt.Json = False,
) -> None:
    """Name a version, list the names, or delete one.

    A name stands for its version: RUN@prod, --version prod.
    """
    from practicum.store.database import Store, as_stored
    from practicum.store.names import delete_name, name_version, read_names

    if delete and (name is None or version is not None):
        raise UsageError("settings.conflict", "--delete takes one name away: give the name alone")
    out = Printer(json_)
    if name is None:
        with Store.read(run) as store:
            names = read_names(store)
        out.result({"run": str(run), "names": names})
        for one, number in names.items():
            out.item(f"{one}: version {number}")
        if not names:
            out.print(f"no version of {run} has a name: practicum space name {run} prod")
        return
    with as_stored(run), Store.beside(run) as store:
        if delete:
            delete_name(store, name)
        else:
            number = name_version(store, name, version)
        out.result({"run": str(run), "names": read_names(store)})
    out.print(f"{name} names no version of {run} now" if delete else f"{name} is version {number} of {run}")
