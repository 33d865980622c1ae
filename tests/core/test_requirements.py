"""A package of the wrong version is named with a command that installs it."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
from refusals import refused

from practicum.core import requirements
from practicum.core.errors import UsageError
from practicum.core.requirements import unmet_requirements
from practicum.models.registry import Models


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
