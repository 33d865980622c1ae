"""The contract of every registered plug-in: one suite for each kind.

Agents, engines, stores and indexes have suites of behaviour, which run over all that are registered: see
`tests/plugins/ray`, `tests/store` and `tests/plugins/index`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import typer
from helpers import run_command

from practicum.agents.kinds import AGENTS, AgentKind, AgentOptions
from practicum.cli.tree import COMMANDS
from practicum.core.errors import PracticumError, UsageError
from practicum.core.plugins import Group
from practicum.engine.workers import ENGINES
from practicum.methods import METHODS, build, read_settings, setting_docs
from practicum.retrieval.search import INDEXES
from practicum.session.registries import REGISTRIES
from practicum.session.trackers import TRACKERS
from practicum.store.backend import STORES, store_at
from practicum.tasks.formats import FORMATS, ServedFormat
from practicum.tasks.scoring.registry import SCORERS, AnswerScorer, load_scorer

GROUPS: tuple[Group[Any], ...] = (
    METHODS, AGENTS, SCORERS, STORES, INDEXES, ENGINES, COMMANDS, TRACKERS, REGISTRIES, FORMATS,
)  # fmt: skip


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.noun)
def test_a_plugin_loads_or_names_its_extra_and_an_unknown_one_is_refused(group: Group[Any]) -> None:
    for name in group.registered():
        code = None
        try:
            assert group.load(name) is not None
        except PracticumError as error:
            code = error.code
        assert code in (None, "extra.missing"), name
    with pytest.raises(UsageError) as caught:
        group.load("no such name")
    assert caught.value.code.endswith((".unknown", ".unknown_format"))


def test_plugins_are_listed_and_no_name_is_registered_twice(tmp_path: Path) -> None:
    assert [plugin for group in GROUPS for plugin in group.refused()] == []
    listed = run_command(["bench", "plugins", "--json"], tmp_path).json["plugins"]
    registered = {(group.noun, name) for group in GROUPS for name in group.registered()}
    assert {(each["kind"], each["name"]) for each in listed} >= registered


def test_a_method_builds_with_its_defaults_and_documents_each_setting() -> None:
    for name in METHODS.names():
        assert build(name, {}).name == name
        assert all(text for _, text in setting_docs(name).values()), name
        with pytest.raises(UsageError) as caught:
            read_settings(name, {"no_such_setting": 1})
        assert caught.value.code == "settings.unknown"


@pytest.mark.parametrize("name", [*AGENTS.registered()])
def test_a_kind_of_agent_refuses_an_empty_argument(name: str) -> None:
    kind = AGENTS.load(name)
    if isinstance(kind, AgentKind):
        with pytest.raises(PracticumError):
            kind.make("", AgentOptions("", 10, 60.0, "off", None))
        assert kind.scorer is None or kind.scorer in SCORERS.names()


@pytest.mark.parametrize("name", [*STORES.registered()])
def test_a_store_reads_urls_of_its_scheme_and_shows_no_password(name: str) -> None:
    try:
        kind = STORES.load(name)
    except PracticumError as error:
        pytest.skip(str(error))
    url = kind.parse(f"{name}://someone:secret@localhost/place")
    assert STORES.load(kind.address(url).partition("://")[0]) is kind
    assert "secret" not in kind.address(url)
    assert kind.parse(kind.address(url)).host == "localhost"
    for wrong in (f"{name}://", "elsewhere://localhost/place", f"{name}://localhost/place?index=none"):
        with pytest.raises(UsageError) as caught:
            kind.parse(wrong)
        assert caught.value.code == "store.invalid_address"
    # The URL may name the driver.
    assert store_at(f"{name}://someone@localhost/place") == store_at(f"{name}+driver://someone@localhost/place")


def test_commands_scorers_trackers_and_formats_have_the_interface_of_their_kind() -> None:
    for name in COMMANDS.registered():
        command = COMMANDS.load(name)
        assert command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command), name
    for name in SCORERS.registered():
        scorer = load_scorer(name, None)
        assert isinstance(scorer, AnswerScorer), name
        assert scorer.name == name
    for name in TRACKERS.registered():
        assert {"name", "group"} <= {*inspect.signature(TRACKERS.load(name)).parameters}, name
    for name in FORMATS.registered():
        format_ = FORMATS.load(name)
        assert format_.about, name
        if not isinstance(format_, ServedFormat):
            assert format_.scorer in SCORERS.names(), name
            assert format_.instructions, name
            assert not format_.fits({}), name
