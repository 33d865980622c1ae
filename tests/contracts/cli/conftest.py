"""Fixtures of the contract tests of the command line. Runs are made once, and copied by tests that change them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .kit import Model, Shell, new_workshop, serving

INSTRUCTIONS = "You send repairs to a bench of the workshop."
FIRST = f"""learn train.jsonl --test test.jsonl --before --method ace --epochs 2 --choices auto
    --model scripted:script.jsonl --instructions "{INSTRUCTIONS}" --out runs/first"""
BANK = f"""learn train.jsonl --method reasoning_bank --k 2 --choices auto --model scripted:bank.jsonl
    --instructions "{INSTRUCTIONS}" --out runs/bank"""


@pytest.fixture(scope="session")
def _workshop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, dict[str, Any], dict[str, Any]]:
    shell = new_workshop(tmp_path_factory.mktemp("workshop"))
    return shell, shell.json(FIRST), shell.json(BANK)


@pytest.fixture
def workshop(_workshop: tuple[Shell, Any, Any]) -> Shell:
    """The folder of the quickstart, with its runs `runs/first` (ACE) and `runs/bank` (ReasoningBank). Only to look at:
    tests that change a run copy it."""
    return _workshop[0]


@pytest.fixture
def first(_workshop: tuple[Any, dict[str, Any], Any]) -> dict[str, Any]:
    """The output of `learn … --out runs/first --json`."""
    return _workshop[1]


@pytest.fixture
def bank(_workshop: tuple[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The output of `learn … --out runs/bank --json`."""
    return _workshop[2]


@pytest.fixture
def shell(workshop: Shell, tmp_path: Path) -> Shell:
    """A copy of the workshop for one test, which may change it."""
    return workshop.copied(tmp_path)


@pytest.fixture(scope="session")
def _server() -> Iterator[Model]:
    with serving() as model:
        yield model


@pytest.fixture
def model(_server: Model) -> Model:
    """A model server that has been asked nothing yet."""
    _server.reset()
    return _server
