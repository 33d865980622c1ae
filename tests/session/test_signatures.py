"""The keywords of the public functions: completed by editors, checked by mypy, and refused when they are wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from helpers import make_tasks
from refusals import refused

import practicum
from practicum.core.errors import UsageError
from practicum.core.sensitive import Kind
from practicum.engine.resources import Resources
from practicum.methods import ace, combee
from practicum.models.options import ModelOptions
from practicum.models.prices import GivenPrices
from practicum.session.config import Config, RunOptions
from practicum.session.setup import set_up

ROOT = Path(__file__).parents[2]

WIDER: dict[str, Any] = {
    "roles": Mapping[str, str],
    "sections": Mapping[str, str] | Sequence[str],
    "choices": Sequence[str],
    "prices": GivenPrices,
    "resources": Resources | Mapping[str, Any] | str,
    "redact": Sequence[Kind] | str,
    "model_options": ModelOptions | Mapping[str, Any] | str,
}
"""Where callers may give more than `Config` keeps."""


def test_the_options_are_the_fields_of_a_configuration_with_their_types() -> None:
    fields = {name: field.annotation for name, field in Config.model_fields.items()}
    assert get_type_hints(RunOptions) == {
        n: t for n, t in {**fields, **WIDER}.items() if n not in ("method", "settings")
    }


def test_an_unknown_keyword_is_refused_with_the_one_that_may_be_meant() -> None:
    def refused(call: Any, **wrong: Any) -> str:
        with pytest.raises(UsageError) as caught:
            practicum.run_sync(call(make_tasks(1), **wrong))
        return str(caught.value)

    line = refused(practicum.learn, modle="local")
    assert line.startswith("there is no setting 'modle' (did you mean model?): known are method, settings, val, test,")
    assert line.endswith(", max_minutes")
    assert "'tests' (did you mean test?)" in refused(practicum.learn, tests=make_tasks(1))
    assert "'temprature' (did you mean temperature?)" in refused(practicum.compare, temprature=1)
    assert "give their number as seeds=N, not a seed" in refused(practicum.compare, seed=1)
    assert "'xyz': known are" in refused(practicum.learn, xyz=1)


def test_the_reference_has_the_signatures() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"^\| `(?:await )?(\w+)\((.*\*\*\w+)\)` \|", text, re.MULTILINE))
    for name in ("learn", "resume", "evaluate", "compare", "ask", "open"):
        parameters = signature(getattr(practicum, name)).parameters.values()
        bare = Signature([p.replace(annotation=Parameter.empty) for p in parameters])
        assert found[name] == str(bare)[1:-1].replace("'", '"')


def test_settings_may_be_those_of_the_method_as_an_object() -> None:
    def settings(given: object, method: str = "ace") -> dict[str, Any]:
        values = {"method": method, "settings": given, "model": "scripted:model"}
        return set_up(values, practicum.Splits(tuple(make_tasks(1)))).config.settings

    assert settings(ace.Settings(rounds=1)) == settings({"rounds": "1"}) == {"rounds": 1}
    with refused("settings.unknown"):
        settings(combee.Settings(copies=1), "naive")


USER = """
import practicum
from practicum import Context, Method, Parts, Result, Task, Watch
from practicum.methods import ace

tasks = [Task("1", "a", "b")]


async def main(method: Method) -> Result:
    result = await practicum.learn(tasks, method="ace", model="local", settings={"rounds": 1}, max_calls=3)
    await practicum.learn(tasks, method=method, choices=["a", "b"], sections={"a": "b"}, out="x", parts=Parts())
    await practicum.learn(tasks, settings=ace.Settings(rounds=2), temperature=None, watch=Watch())
    await practicum.evaluate(tasks, result.context, repeat=2, scorer="exact")
    await practicum.compare(tasks, test=tasks, methods=["ace", "icl"], max_tokens=10)
    answered = await practicum.ask("q", "runs/first", model="local")
    await practicum.resume("runs/first", max_calls=3, model="local")
    print(answered.text, [match.similarity for match in answered.retrieved])
    await practicum.learn(tasks, modle="local")  # Unexpected keyword argument "modle"
    await practicum.resume("runs/first", max_cals=3)  # Unexpected keyword argument "max_cals"
    await practicum.learn(tasks, max_calls="many")  # Argument "max_calls"
    await practicum.learn(tasks, method=3)  # Argument "method"
    await practicum.learn(tasks, settings=ace.Settings(ronds=2))  # Unexpected keyword argument "ronds"
    await practicum.evaluate(tasks, Context(), parts={"agent": None})  # Argument "parts"
    await practicum.compare(tasks, methods=ace)  # Argument "methods"
    await practicum.ask("q", "runs/first", lern=True)  # Unexpected keyword argument "lern"
    return result
"""


@pytest.mark.slow
def test_mypy_finds_each_wrong_call_in_a_program_of_a_user_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "user.py")]
    # From the root, where mypy finds what it kept of the package.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    wrong = [(n, line.partition("  # ")[2]) for n, line in enumerate(USER.splitlines(), 1) if "  # " in line]
    assert len(errors) == len(wrong), done.stdout
    for error, (line, words) in zip(errors, wrong, strict=True):
        assert f"user.py:{line}: error: {words}" in error


def test_every_public_name_can_be_imported_and_types_are_published() -> None:
    assert all(getattr(practicum, name) is not None for name in practicum.__all__)
    assert (ROOT / "practicum" / "py.typed").is_file()
