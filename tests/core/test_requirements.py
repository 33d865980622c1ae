"""A missing package is named with a command that installs it."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import run_command
from refusals import refused

from practicum.core import requirements
from practicum.core.errors import UsageError
from practicum.core.requirements import pip_install, unmet_requirements
from practicum.models.registry import Models


def test_an_extra_is_installed_by_the_names_of_its_packages() -> None:
    assert pip_install("index") == "pip install 'numkong>=7.8'"
    assert pip_install("dspy") == "pip install 'dspy>=3.4' 'litellm<1.83' 'optuna>=3.4'"


def test_a_package_of_the_wrong_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unmet_requirements() == []

    def installed(name: str) -> str:
        return "3.1.0" if name == "openai" else metadata.version(name)

    monkeypatch.setattr(requirements, "_SUITABLE", set())
    monkeypatch.setattr(requirements, "version", installed)
    older = SimpleNamespace(name="older", requires=["openai<3.2", "openai-agents"])
    monkeypatch.setattr(requirements, "distributions", lambda: [older])
    line = "openai 3.1.0 is installed, but practicum needs >=3.40: pip install -U 'openai[aiohttp]>=3.40'"
    assert unmet_requirements() == [line]
    with refused("package.unsuitable") as caught:
        Models().open("local")
    assert f"{line}; older needs openai<3.2: " in str(caught.value)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError) as missing:
        Models().open("http://127.0.0.1:9/v1#any")
    assert line in str(missing.value)


def test_a_database_without_its_package_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("practicum.plugins.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    done = run_command(["key", "list", "--store", "postgresql://me@127.0.0.1:9/none"], tmp_path)
    assert (done.code, "PostgreSQL" in done.line) == (2, True)
    assert "pip install 'psycopg[binary]>=3.2'" in done.line
