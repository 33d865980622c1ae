"""Each declared clash of settings is refused before anything is paid for, by its code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from refusals import refused
from scripts import scripted

import practicum
from practicum import methods
from practicum.core.clashes import Clash
from practicum.core.errors import UsageError
from practicum.core.types import Recorded, Score, Trace
from practicum.session.config import CLASHES as OF_CONFIG
from practicum.session.setup import CLASHES

SETTINGS: Mapping[str, str] = {
    "none gate_alpha=0.1": "gate_alpha", "ace epochs=2 online=true": "epochs", "ape online=true": "",
    "ace epochs=2 steps=3": "epochs", "ace steps=3 online=true": "steps",
    "ace lessons=confirmed refine=critique": "lessons", "ace refine=retry twin=true": "refine",
    "ace rounds=2 group=3": "rounds", "ace lessons=confirmed heads=true": "lessons",
    "ace twin=true primitives=adaptive": "twin", "ace reflection=batched primitives=adaptive": "",
    "ace heads=true reflection=batched": "", "ace twin=true reflector=false": "",
    "ace rules_shown=false heads=true": "rules_shown", "ace reflection=batched batch=25": "",
    "ace heads=true gated_heads=true heads=false": "gated_heads", "ace guards=true curator=append": "guards",
    "rcl graduate=2 replay=0": "graduate", "rcl state_tokens=300 state=false": "state_tokens",
    "ace state=true curator=append": "", "ace replay=0.5 online=true": "", "ace batch=4 attempted=2": "",
    "reasoning_bank k=2 scaling=none": "k", "reasoning_bank k=0": "",
    "reasoning_bank scaling=sequential until=judge scaling=none": "until",
    "reasoning_bank choose=judge scaling=sequential": "choose", "reasoning_bank contrast=true k=1": "contrast",
    "reasoning_bank scaling=sequential until=judge k=0": "until", "reasoning_bank index=task consolidate=true": "",
    "reasoning_bank scaling=sequential notes=true scaling=parallel": "notes",
    "reasoning_bank consolidate=true threshold=0.9 consolidate=false": "threshold",
    "unified items=2 memory=false": "items", "unified memories=3 memory=false": "memories",
    "unified passes=2 rules=reflected": "passes", "unified delta_min=20": "",
    "mael alpha=0.3 experience=none": "alpha", "mael agents=3 topology=team.json": "agents",
    "combee shuffle=random exact=true": "shuffle", "combee slope=0.1 batch=4": "slope",
    "combee accounting=true curator=append": "accounting", "combee again=1 accounting=false": "again",
    "combee join=model curator=append": "", "combee copies=3 groups=2": "", "combee copies=21": "",
    "combee join=model levels=2 join=code": "levels", "combee online=true": "",
    "combee asynchronous=true staleness=1 asynchronous=false": "staleness", "combee steps=2 asynchronous=true": "",
    "combee asynchronous=true groups=41": "", "combee asynchronous=true copies=4 batch=4": "",
    "combee max_batch=50 asynchronous=true": "max_batch", "promptbreeder beam=4 candidates=3": "",
    "mipro bootstrapped=0": "", "gepa groups=4": "", "gepa groups=2": "",
    "dynamic_cheatsheet form=synthesis k=2 form=cumulative": "k",
}  # fmt: skip
"""For each clash a method and its settings, the last of them too many → the setting without an effect."""

CODES = {"none gate_alpha=0.1": "settings.unused", "ace epochs=2 online=true": "settings.conflict"}

TRACES = {
    "tasks": [replace(task, recorded=Recorded(Trace("no"), Score(0, False))) for task in make_tasks(2)],
    "from_traces": True,
}

UNUSED: dict[str, Any] = {
    "redact_map": "map.jsonl", "judged": True, "trust_tools": True, "max_turns": 3, "tool_timeout": 3.0,
    "guard_tools": "ask", "learn_tools": True, "ray_address": "auto", "resources": "cpu=2", "api_key_env": "KEY",
}  # fmt: skip

RUNS: list[tuple[dict[str, Any], str, dict[str, str]]] = [
    *(({name: value}, "settings.unused", {"setting": name}) for name, value in UNUSED.items()),
    ({"agent": "tools:json:loads", "reasoning": True}, "settings.unused", {"setting": "reasoning"}),
    ({"agent": "appworld:http://127.0.0.1:9", "choices": ("a", "b")}, "settings.conflict", {}),
    ({**TRACES, "settings": {"online": True}}, "settings.conflict", {}),
    ({**TRACES, "settings": {"refine": "retry"}}, "settings.unused", {"setting": "refine"}),
    ({"labels": False, "targets": False}, "settings.unused", {"setting": "targets"}),
    ({"method": "icl", "labels": False}, "method.unsuitable", {}),
    ({"method": "none", "settings": {"gate": True}}, "method.unsuitable", {}),
    ({"settings": {"gate": True}}, "tasks.missing", {"tasks": "val"}),
    ({"before": True}, "tasks.missing", {"tasks": "test"}),
    ({"batch_api": True}, "settings.unused", {"setting": "batch_api"}),
    (
        {"batch_api": True, "model_options": {"headers": {"X-Team": "a"}}},
        "settings.conflict",
        {"setting": "model_options"},
    ),
    ({"validate_every": 2}, "tasks.missing", {"tasks": "val"}),
    ({"agent": "tools:json:loads", "learn_tools": True, "method": "episodes"}, "method.unsuitable", {}),
    ({"scorer": "appworld"}, "settings.conflict", {}),
]


@pytest.fixture(autouse=True)
def _team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("team.json").write_text('{"agents": [{"name": "a"}, {"name": "b"}], "links": [["a", "b"]]}')


def refusal(code: str, fields: Mapping[str, str], **how: Any) -> UsageError:
    """The error of a run that is refused: no model was asked, and no folder was created."""
    model = scripted()
    how = {"tasks": make_tasks(2), "method": "ace", "out": "run", **how}
    with refused(code) as caught:
        practicum.run_sync(practicum.learn(**how, parts=practicum.Parts(clients={"agent": model})))
    assert isinstance(caught.value, UsageError)
    assert caught.value.fields == fields
    assert not model.calls
    assert not Path("run").exists()
    return caught.value


def read(example: str) -> tuple[str, list[tuple[str, str]]]:
    method, *settings = example.split()
    return method, [(name, value) for name, _, value in (one.partition("=") for one in settings)]


def test_each_declared_clash_is_refused() -> None:
    errors = [refusal(code, fields, **how) for how, code, fields in RUNS]
    for example, unused in SETTINGS.items():
        method, pairs = read(example)
        fields = {"method": method, **({"setting": unused} if unused else {})}
        code = CODES.get(example, "settings.invalid")
        errors.append(refusal(code, fields, method=method, settings=dict(pairs)))
    names = methods.METHODS.registered().keys() | {*methods.NAMES}
    declared = [*OF_CONFIG, *CLASHES, *(clash for name in names for clash in methods.settings_of(name).clashes())]

    def seen(clash: Clash) -> bool:
        text = re.compile("(method [a-z_]+: )?" + re.sub(r"\\\{.*?\\\}", ".*", re.escape(clash.do)))
        of_it = [error for error in errors if text.fullmatch(str(error))]
        return any(not clash.unused or error.fields["setting"] in clash.unused for error in of_it)

    assert [clash.do for clash in declared if not seen(clash)] == []


def test_an_override_removes_a_setting_without_effect() -> None:
    for example, unused in SETTINGS.items():
        method, (*first, last) = read(example)
        methods.read_settings(method, dict(first))
        if unused in dict(first):
            merged = methods.override_settings(method, dict(first), dict([last]))
            assert unused not in merged
            methods.read_settings(method, merged)
