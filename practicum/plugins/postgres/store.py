"""The kind of store `postgresql`: runs and services in a PostgreSQL database."""

from __future__ import annotations

from sqlalchemy import URL

from practicum.plugins.postgres.database import address, parse_url
from practicum.plugins.postgres.runs import PostgresqlRun, reserve
from practicum.plugins.postgres.service import SharedDatabase
from practicum.store.backend import Backend


class Postgresql:
    """See `store.backend.StoreKind`."""

    parse = staticmethod(parse_url)
    address = staticmethod(address)
    reserve = staticmethod(reserve)

    def open(self, url: URL, name: str, *, writer: bool, read_only: bool) -> Backend:
        """The run of this name."""
        return PostgresqlRun(url, name, writer=writer, read_only=read_only)

    def service(self, url: URL) -> SharedDatabase:
        """The tables of a service."""
        return SharedDatabase(url)


STORE = Postgresql()
