"""One PostgreSQL database for all tests of this folder, since a database and its tables take most of a test's time."""

from __future__ import annotations

from collections.abc import Iterator

import postgres
import pytest
from needs import needs


@pytest.fixture(scope="session")
def shared_postgresql() -> Iterator[str]:
    needs("psycopg", "postgres")
    with postgres.database(postgres.server_url()) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def shared_url(request: pytest.FixtureRequest) -> str | None:
    """None for files, or the URL of the shared database."""
    return None if request.param == "sqlite" else request.getfixturevalue("shared_postgresql")
