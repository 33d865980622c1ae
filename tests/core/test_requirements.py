"""What is missing is named with a command that installs it."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from refusals import refused

from practicum.cli.app import main
from practicum.core import requirements
from practicum.core.errors import UsageError
from practicum.core.requirements import pip_install, require, unmet_requirements
from practicum.models.registry import Models


def test_an_extra_is_installed_by_the_names_of_its_packages() -> None:
    assert pip_install("index") == "pip install 'numkong>=7.8'"
    assert pip_install("dspy") == "pip install 'dspy>=3.4' 'litellm<1.83' 'optuna>=3.4'"


def test_a_package_of_the_wrong_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unmet_requirements() == []

    def installed(name: str) -> str:
        return "3.1.0" if name == "openai" else metadata.version(name)

    monkeypatch.setattr(requirements, "version", installed)
    said = "openai 3.1.0 is installed, practicum needs >=3.40: pip install -U 'openai[aiohttp]>=3.40'"
    assert unmet_requirements() == [said]
    with refused("package.unsuitable"):
        Models().open("local")
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError) as caught:
        Models().open("http://127.0.0.1:9/v1#any")
    assert said in str(caught.value)


def test_a_database_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("practicum.plugins.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as ended:
        main(["key", "list", "--store", "postgresql://me@127.0.0.1:9/none"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "PostgreSQL" in said
    assert "pip install 'psycopg[binary]>=3.2'" in said
    assert said.count("\n") == 1


def test_a_package_that_holds_another_back_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        name = "gateway"
        requires = ("openai<3.0.0,>=2.20", "openai<1; extra == 'old'", "openai-agents<1", "openai>=2")

    monkeypatch.setattr(requirements, "version", lambda name: "2.54.0")
    monkeypatch.setattr(requirements, "distributions", lambda: [Other])
    with pytest.raises(UsageError) as caught:
        require("openai", "model 'x'")
    assert str(caught.value) == (
        "model 'x' cannot be used: openai 2.54.0 is installed, practicum needs >=3.40: "
        "pip install -U 'openai[aiohttp]>=3.40'; gateway needs openai<3.0.0,>=2.20: install the two in separate "
        "environments"
    )


def test_every_extra_that_a_message_names_exists() -> None:
    source = Path(requirements.__file__).parents[1]
    named = {
        extra
        for file in source.rglob("*.py")
        for extra in re.findall(r"pip_install\([\"'](\w+)[\"']\)", file.read_text(encoding="utf-8"))
    }
    assert {"local", "plots", "postgres", "serve"} <= named
    assert not [extra for extra in named if "practicum[" in pip_install(extra)]
