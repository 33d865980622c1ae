"""Servers that all tests of the service's faces share; spaces and sessions keep the tests apart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from service_kit import LEARNING, Client, Service, new_space, serving
from service_model import Model, running_model

ADMIN = "admin-0123456789abcdef"


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    """The model server behind all services."""
    with running_model() as running:
        yield running


@pytest.fixture(scope="session")
def plain(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without keys, as it is by default."""
    with serving(model, tmp_path_factory.mktemp("plain") / "store") as service:
        yield service


@pytest.fixture(scope="session")
def keyed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with keys and a space `other`, which learns when a test says so. Its client has the key that may do
    everything."""
    store = tmp_path_factory.mktemp("keyed") / "store"
    spaces = ("--space", "default", "--space", "other")
    with serving(model, store, *LEARNING, *spaces, keys=ADMIN) as service:
        service.client = service.client.with_key(ADMIN)
        yield service


@pytest.fixture(scope="session")
def passing(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose clients send their own upstream key, and which trusts and learns from what users ask."""
    store = tmp_path_factory.mktemp("passing") / "store"
    options = ("--pass-key", "--trust-users", "--upstream-timeout", 2, "--max-read", 1)
    with serving(model, store, *LEARNING, *options, keys=ADMIN) as service:
        service.client = service.client.with_headers(x_practicum_key=ADMIN)
        yield service


@pytest.fixture
def space(plain: Service) -> Client:
    """A new space of the service without keys."""
    return new_space(plain.client)


@pytest.fixture
def folder(plain: Service, space: Client) -> Path:
    """Where the new space is, for commands."""
    return plain.store / "spaces" / space.space


@pytest.fixture(scope="session")
def untaught(plain: Service) -> Client:
    """A space that is shared by tests which teach nothing."""
    return new_space(plain.client)


@pytest.fixture(scope="session")
def shared(plain: Service) -> Client:
    """A space that is shared by tests which look at their own interaction alone."""
    return new_space(plain.client)


@pytest.fixture
def locked(keyed: Service) -> Client:
    """A new space of the service with keys that learns, asked with the key that may do everything."""
    return new_space(keyed.client)
