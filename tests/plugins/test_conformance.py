"""What every plug-in that is registered must keep, whoever wrote it: one suite for each kind.

Agents, engines, stores and indexes have suites of behaviour of their own, which run over all that are registered: see
`tests/plugins/ray`, `tests/store` and `tests/plugins/index`.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
import typer

from practicum.agents.kinds import AGENTS, AgentKind, AgentOptions
from practicum.cli.plugins import plugins
from practicum.cli.tree import COMMANDS
from practicum.core.errors import PracticumError, UsageError
from practicum.core.plugins import Group
from practicum.engine.workers import ENGINES
from practicum.methods import METHODS, build, read_settings, setting_docs
from practicum.retrieval.search import INDEXES
from practicum.session.trackers import TRACKERS
from practicum.store.backend import STORES, store_at
from practicum.tasks.formats import FORMATS, ServedFormat
from practicum.tasks.scoring.registry import SCORERS, AnswerScorer, load_scorer

GROUPS: tuple[Group[Any], ...] = (
    METHODS, AGENTS, SCORERS, STORES, INDEXES, ENGINES, COMMANDS, TRACKERS, FORMATS,
)  # fmt: skip

REGISTERED = [(group, name) for group in GROUPS for name in group.registered()]


def names_of(group: Group[Any]) -> Any:
    return pytest.mark.parametrize("name", [*group.registered()])


@pytest.mark.parametrize(("group", "name"), REGISTERED, ids=[f"{group.noun}-{name}" for group, name in REGISTERED])
def test_a_plugin_loads_or_names_what_is_missing(group: Group[Any], name: str) -> None:
    code = None
    try:
        assert group.load(name) is not None
    except PracticumError as error:
        code = error.code
    assert code in (None, "extra.missing")


def test_no_name_is_registered_twice() -> None:
    assert [plugin for group in GROUPS for plugin in group.refused()] == []


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.noun)
def test_an_unknown_name_has_a_code(group: Group[Any]) -> None:
    with pytest.raises(UsageError) as caught:
        group.load("no such name")
    assert caught.value.code.endswith((".unknown", ".unknown_format"))


@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_builds_with_its_defaults_and_documents_each_setting(name: str) -> None:
    assert build(name, {}).name == name
    assert all(text for _, text in setting_docs(name).values())
    with pytest.raises(UsageError) as caught:
        read_settings(name, {"no_such_setting": 1})
    assert caught.value.code == "settings.unknown"


@names_of(AGENTS)
def test_a_kind_of_agent_refuses_an_empty_argument(name: str) -> None:
    kind = AGENTS.load(name)
    if isinstance(kind, AgentKind):
        with pytest.raises(PracticumError):
            kind.make("", AgentOptions("", 10, 60.0, "off", None))
        assert kind.scorer is None or kind.scorer in SCORERS.names()


@names_of(SCORERS)
def test_a_scorer_is_loaded_by_its_name(name: str) -> None:
    scorer = load_scorer(name, None)
    assert isinstance(scorer, AnswerScorer)
    assert scorer.name == name


@names_of(STORES)
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


@names_of(COMMANDS)
def test_a_command_has_a_help(name: str) -> None:
    command = COMMANDS.load(name)
    help_ = command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command)
    assert help_


@names_of(TRACKERS)
def test_a_tracker_takes_a_name_and_a_group(name: str) -> None:
    assert {"name", "group"} <= {*inspect.signature(TRACKERS.load(name)).parameters}


@names_of(FORMATS)
def test_a_format_says_what_it_is_and_is_recognised_by_its_own_fields_alone(name: str) -> None:
    format_ = FORMATS.load(name)
    assert format_.about
    if not isinstance(format_, ServedFormat):
        assert format_.scorer in SCORERS.names()
        assert format_.instructions
        assert not format_.fits({})


def test_plugins_are_listed_with_their_packages(capsys: pytest.CaptureFixture[str]) -> None:
    plugins(json_=True)
    listed = json.loads(capsys.readouterr().out)["plugins"]
    assert {(each["kind"], each["name"]) for each in listed} >= {(group.noun, name) for group, name in REGISTERED}


@names_of(STORES)
def test_a_url_of_a_store_may_name_the_driver(name: str) -> None:
    try:
        found = [store_at(f"{scheme}://someone@localhost/place") for scheme in (name, f"{name}+driver")]
    except PracticumError as error:
        if error.code != "extra.missing":
            raise
        pytest.skip(str(error))
    assert found[0] == found[1]
