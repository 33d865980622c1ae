"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import postgres
import pytest
from databases import quick
from helpers import Launcher, launched
from needs import needs
from profiles import PROFILE
from sqlalchemy import make_url

from practicum.core.installation import HOME_VARIABLE, KEY_BYTES, KEY_FILE
from practicum.store.sqlite import SYNCHRONOUS_VARIABLE
from practicum.testing import ServerProcess, start_process

hypothesis.settings.load_profile(PROFILE)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for processes, kills and pauses."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """The folder of a PostgreSQL server is named before there are workers, which share it."""
    os.environ.pop("PRACTICUM_MODEL", None)
    postgres.shared_folder()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres.stop_shared()


def pytest_collection_finish() -> None:
    """Exclude the imported objects from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Databases do not wait for the disk, except in tests that are about durability (`@pytest.mark.durable`)."""
    os.environ[SYNCHRONOUS_VARIABLE] = "FULL" if item.get_closest_marker("durable") else "OFF"


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key of the installation is one of the tests: always the same, since prompts carry marks made with it."""
    home = tmp_path_factory.mktemp("home")
    (home / KEY_FILE).write_bytes(bytes(KEY_BYTES))
    (home / KEY_FILE).chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(home))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_databases() -> Iterator[None]:
    with quick():
        yield


@pytest.fixture
def postgresql(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a PostgreSQL database for one test, with its password."""
    needs("psycopg", "postgres")
    with postgres.database(postgres.server_url(), request.node.get_closest_marker("durable") is not None) as url:
        yield url


@pytest.fixture
def pgvector(postgresql: str) -> str:
    """The same as `postgresql`, for runs whose index is there, too."""
    psycopg = needs("psycopg", "postgres")
    with psycopg.connect(postgresql, autocommit=True) as db:
        db.execute("CREATE EXTENSION vector")
    return f"{postgresql}?index=pgvector"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest) -> str | None:
    """Where runs are kept: None for files, or the URL of a database. A test that takes it runs on both."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgresql")


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.slow])]
)  # fmt: skip
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The store and the folder of a service: a folder, and in the slow tests also a database."""
    url = tmp_path if request.param == "sqlite" else make_url(request.getfixturevalue("postgresql"))
    return {"store": url, "folder": tmp_path}


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts commands of the command line as processes."""
    with launched() as launcher:
        yield launcher


@pytest.fixture(scope="session")
def _fast_server() -> Iterator[ServerProcess]:
    with start_process() as process:
        yield process


@pytest.fixture
def fast_server(_fast_server: ServerProcess) -> ServerProcess:
    """A simulated server that answers at once, with nothing counted yet."""
    _fast_server.reset()
    return _fast_server
