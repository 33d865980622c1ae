"""Servers that all tests of the service's faces share; spaces and sessions separate the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from service_kit import LEARNING, Client, Service, serving_here
from service_model import Model, running_model

ADMIN = "admin-0123456789abcdef"


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    """The model server behind all services."""
    with running_model() as running:
        yield running


@pytest.fixture(scope="session")
def plain(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without keys."""
    with serving_here(model, tmp_path_factory.mktemp("plain") / "store") as service:
        yield service


@pytest.fixture(scope="session")
def keyed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with keys and a space `other`, which learns when a test starts a round. Its client has a key with all
    roles."""
    store = tmp_path_factory.mktemp("keyed") / "store"
    with serving_here(model, store, *LEARNING, "--space", "default", "--space", "other", "--key", ADMIN) as service:
        service.client = service.client.with_key(ADMIN)
        yield service


@pytest.fixture(scope="session")
def passing(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose clients send their own upstream key, and which trusts users and learns from them."""
    store = tmp_path_factory.mktemp("passing") / "store"
    options = ("--pass-key", "--trust-users", "--upstream-timeout", 1, "--max-read", 1, "--key", ADMIN)
    with serving_here(model, store, *LEARNING, *options) as service:
        service.client = service.client.with_headers(x_practicum_key=ADMIN)
        yield service


@pytest.fixture
def space(plain: Service) -> Client:
    """A new space of the service without keys."""
    return plain.client.new_space()


@pytest.fixture
def folder(plain: Service, space: Client) -> Path:
    """The folder of the new space, for commands."""
    return plain.store / "spaces" / space.space


@pytest.fixture(scope="session")
def untaught(plain: Service) -> Client:
    """A space shared by tests which teach nothing."""
    return plain.client.new_space()


@pytest.fixture
def locked(keyed: Service) -> Client:
    """A new space of the service with keys that learns, with a key that has all roles."""
    return keyed.client.new_space()
