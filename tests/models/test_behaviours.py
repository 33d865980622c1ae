"""Every behaviour of the simulated server, met by learning, by an evaluation and by the service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command, write_tasks
from refusals import refused
from serving import asynchronous

import practicum
from practicum.agents.frameworks import endpoint
from practicum.core.errors import ModelError, PracticumError, ProviderError
from practicum.core.types import Task
from practicum.models import provider
from practicum.session.result import Evaluation, Result, Watch
from practicum.testing import BEHAVIOURS, ServerOptions, SimulatedServer, serve

TASKS = [Task(f"t{n}", f"Question {n}: what is {n}?", str(n)) for n in range(6)]
ONE = "Question 3"
"""What one of six tasks has."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_pause", lambda error, tries: 0)


@dataclass(frozen=True)
class Case:
    """What is expected where a behaviour meets one task of six: a run counts `lost` (with lost_attempts), or `counts`,
    or stops with `stops`. An evaluation of tasks that all meet it fails unless the task is `answered`. `asks` is the
    number of requests of the one attempt."""

    lost: str | None = None
    counts: str | None = None
    stops: str | None = None
    asks: int = 1
    status: int = 200

    @property
    def answered(self) -> bool:
        return self.lost is None and self.stops is None


ANSWERED, EVERYWHERE = Case(), Case(counts="refused_parameters", status=400)
CASES: dict[str, Case] = {
    **dict.fromkeys(
        ("thoughts", "thoughts-unopened", "reasoning-content", "reasoning", "list-content", "list-content-thinking"),
        ANSWERED,
    ),
    **dict.fromkeys(
        ("thoughts-unclosed", "only-reasoning-content", "only-reasoning", "only-thinking-content"), Case("silent_cuts")
    ),
    "empty": Case("empty_answers"),
    "null-content": Case("empty_answers"),
    "refusal": Case("refused_answers"),
    "filtered": Case("filtered_answers"),
    "cut": Case(counts="cut_texts"),
    "garbage": ANSWERED,
    "no-choices": Case("lost_attempts", asks=2),
    "error-in-200": Case("lost_attempts", asks=2),
    "refuses-temperature": EVERYWHERE,
    "refuses-max-tokens": EVERYWHERE,
    "refuses-max-completion-tokens": ANSWERED,
    "refuses-system": EVERYWHERE,
    "refuses-json-schema": EVERYWHERE,
    "refuses-response-format": EVERYWHERE,
    "refuses-seed": EVERYWHERE,
    "refuses-extra": Case(counts="refused_parameters", status=422),
    "content-filter": Case("filtered_requests", status=400),
    "context-window": Case("overlong_requests", status=400),
    "context": Case("overlong_requests", status=400),
    "unprocessable": Case("refused_requests", status=422),
    "unknown-400": Case("refused_requests", status=400),
    "json-validate-failed": Case("invalid_samples", asks=3, status=400),
    "tool-use-failed": Case("invalid_samples", asks=3, status=400),
    "401": Case(stops="refused the key", status=401),
    "403": Case(stops="is not available to this account", status=403),
    "404": Case(stops="was not found", status=404),
    "no-credit": Case(stops="has no credit left", status=429),
    "html": Case("lost_attempts", asks=2),
    "drop": Case("lost_attempts", asks=2, status=502),
    "429": Case("lost_attempts", asks=2, status=429),
    "500": Case("lost_attempts", asks=2, status=500),
}


class Warned(Watch):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warned(self, text: str) -> None:
        self.lines.append(text)


async def learned(server: SimulatedServer, out: Path, **more: Any) -> Result:
    settings = {"rounds": 0, **more.pop("settings", {})}
    return await practicum.learn(TASKS, out=out, model=f"{server.url}#sim", settings=settings, retries=1, **more)


async def evaluated(server: SimulatedServer, tasks: list[Task] = TASKS, **more: Any) -> Evaluation:
    return await practicum.evaluate(tasks, practicum.Context(), model=f"{server.url}#sim", retries=1, **more)


def refusing(name: str, when: int | str = ONE) -> Any:
    return serve(ServerOptions(behaviours=[(name, when)]))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@asynchronous
async def test_a_run_and_an_evaluation_go_on_unless_it_is_about_all_requests(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    everywhere = name.startswith("refuses")
    async with refusing(name, 1 if everywhere else ONE) as server:
        if case.stops:
            with pytest.raises(ModelError, match=case.stops):
                await learned(server, tmp_path / "run")
            with pytest.raises(ModelError, match=case.stops):
                await evaluated(server)
            return
        result = await learned(server, tmp_path / "run")
        assert (result.steps, result.cut_short) == (6, False)
        # What the service, an evaluation and a run count goes by the same names.
        server.reset()
        evaluation = await evaluated(server, concurrency=1)
        sees_it = name not in ("refuses-system", "refuses-json-schema", "refuses-response-format")
        for counts in (result.errors, evaluation.counts) if sees_it else (result.errors,):
            assert counts.get("lost_attempts", 0) == (case.lost is not None)
            assert all(counts.get(key) for key in (case.lost, case.counts) if key)
        assert evaluation.n == 6
        extra = int(sees_it and case.counts == "refused_parameters")
        assert server.stats()["received"] == 5 + case.asks + extra
        errors = {row["id"]: row["error"] for row in evaluation.as_json()["attempts"]}
        assert [id for id, error in errors.items() if error] == (["t3"] if case.lost else [])
        if case.lost:
            assert "schema" not in errors["t3"].lower()
            with pytest.raises(PracticumError):  # nothing else was asked
                await evaluated(server, TASKS[3:4])


@asynchronous
async def test_a_refused_request_is_named_with_its_task_and_is_not_asked_for_again(tmp_path: Path) -> None:
    async with serve(ServerOptions(behaviours=[("content-filter", ONE), ("refuses-temperature", 1)])) as server:
        warned = Warned()
        whole = await learned(server, tmp_path / "whole", watch=warned)
        assert len([line for line in warned.lines if "task t3" in line and "content management policy" in line]) == 1
        assert len([line for line in warned.lines if "refused the parameter temperature" in line]) == 1
        received = server.stats()["received"]

        server.reset()
        cut = await learned(server, tmp_path / "cut", max_calls=10)
        assert cut.stopped
        watch = Warned()
        resumed = await practicum.resume(tmp_path / "cut", max_calls=100, watch=watch)
        assert watch.lines == []
        assert server.stats()["received"] == received
        assert dict(resumed.errors) == dict(whole.errors)
        assert [entry.text for entry in resumed.context] == [entry.text for entry in whole.context]


@pytest.mark.parametrize(("name", "asked"), [("unknown-400", 5), ("unprocessable", 5), ("content-filter", 6)])
@asynchronous
async def test_a_run_stops_where_the_same_refusal_meets_all_requests_and_a_resume_asks_again(
    name: str, asked: int, tmp_path: Path
) -> None:
    async with refusing(name, 1) as server:
        with pytest.raises(ModelError if asked == 5 else ProviderError) as caught:
            await learned(server, tmp_path / "run", settings={"batch": 1})
        assert server.stats()["received"] == asked
        assert BEHAVIOURS[name].error["message"][:40] in str(caught.value)
    async with serve(ServerOptions()) as server:
        result = await practicum.resume(tmp_path / "run", model=f"{server.url}#sim")
        assert (result.steps, "lost_attempts" in result.errors) == (6, False)


@asynchronous
async def test_an_answer_that_the_provider_could_not_make_is_asked_for_again(tmp_path: Path) -> None:
    async with refusing("json-validate-failed", 4) as server:
        result = await learned(server, tmp_path / "run")
        assert result.errors["repeated_samples"] == server.stats()["faults"] > 1
        assert not result.errors.keys() & {"lost_attempts", "lost_reflections", "lost_updates"}


def form_of(body: dict[str, Any]) -> str:
    return str((body.get("response_format") or {}).get("type"))


@pytest.mark.parametrize("structure", ["native", "tool", "prompted"])
@pytest.mark.parametrize(
    "names",
    [
        ["refuses-system", "refuses-max-tokens"], ["refuses-json-schema"], ["refuses-response-format"],
        ["refuses-temperature", "refuses-seed", "refuses-system", "refuses-response-format", "refuses-max-tokens"],
    ],
)  # fmt: skip
@asynchronous
async def test_a_server_that_refuses_much_is_asked_in_every_structure(
    names: list[str], structure: Any, tmp_path: Path
) -> None:
    bodies: list[dict[str, Any]] = []

    def keep(body: dict[str, Any]) -> None:
        bodies.append(body)

    options = ServerOptions(behaviours=[(name, 1) for name in names], responder=keep)
    async with serve(options) as server:
        evaluation = await evaluated(server, scorer="judge", structure=structure, concurrency=1)
        assert (evaluation.errors, evaluation.n) == (0, 6)
        refused = evaluation.counts.get("refused_parameters", 0)
        assert server.stats()["received"] == 12 + refused
        assert len(bodies) == 12
    if "refuses-system" in names:
        assert not any(message["role"] == "system" for body in bodies for message in body["messages"])
    if structure == "native":
        kinds = {"json_object"} if names == ["refuses-json-schema"] else {"json_schema"}
        kinds = {"None"} if "refuses-response-format" in names else kinds
        assert {form_of(body) for body in bodies} - {"None"} == kinds - {"None"}
    if "refuses-max-tokens" in names:
        assert {body["max_completion_tokens"] for body in bodies} == {4096}


@pytest.mark.parametrize("structure", ["native", "tool", "prompted"])
@asynchronous
async def test_a_gateway_behind_the_name_of_a_provider_is_adapted_to(
    structure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name in BEHAVIOURS if name.startswith("refuses") and name != "refuses-max-tokens"]
    async with serve(ServerOptions(behaviours=[(name, 1) for name in names])) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        evaluation = await practicum.evaluate(
            TASKS, practicum.Context(), model="openai:sim", scorer="judge", structure=structure, concurrency=1,
            model_options={"extra_body": {"top_p": 0.5, "stop": ["x"]}},
        )  # fmt: skip
        assert (evaluation.errors, evaluation.n) == (0, 6)


@pytest.mark.parametrize("name", ["content-filter", "context-window", "unknown-400"])
@asynchronous
async def test_an_agent_that_asks_its_model_by_itself_loses_one_attempt(name: str, tmp_path: Path) -> None:
    async with refusing(name) as server:
        own = practicum.Parts(agent=endpoint(f"{server.url}#mine"))
        result = await practicum.learn(
            TASKS, out=tmp_path / "run", method="none", settings={}, test=TASKS, parts=own, before=False
        )
        assert (result.errors["lost_attempts"], result.errors[str(CASES[name].lost)]) == (1, 1)


# ---- options of a model


BAD_OPTIONS: dict[str, tuple[str, str]] = {
    "not JSON": ("thinking=off", "not JSON"),
    "unknown": ('{"body": {}}', "Extra inputs are not permitted"),
    "a secret": ('{"headers": {"Authorization": "Bearer abcdef"}}', "looks like a secret"),
    "a key of known form": ('{"extra_body": {"x": "AKIAIOSFODNN7EXAMPLE"}}', "holds a secret"),
    "its own": ('{"extra_body": {"temperature": 1}}', "which practicum sets"),
    "no header": ('{"headers": {"a b": "c"}}', "is not a valid header"),
    "not set": ('{"headers": {"X-Key": "env:NOT_SET_HERE"}}', "NOT_SET_HERE, which is not set"),
}


@pytest.mark.parametrize(("text", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_wrong_model_options_are_one_line_before_anything_is_sent(text: str, words: str, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", TASKS)
    done = run_command(["eval", str(tasks), "--model", "http://127.0.0.1:9/v1#m", "--model-options", text], tmp_path)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "abcdef" not in done.err
    assert "AKIA" not in done.err


@pytest.mark.parametrize(
    ("models", "code"),
    [
        ({"agent": "https://a.example/v1#m", "reflector": "https://b.example/v1#m"}, "model.unsafe_key"),
        ({"agent": "http://a.example/v1#m", "reflector": "http://a.example/v1#m"}, "model.unsafe_key"),
    ],
)
def test_secrets_in_headers_go_to_one_server_and_not_over_plain_http(
    models: dict[str, str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    options = {"headers": {"X-Key": "env:MY_TOKEN"}}
    with refused(code):
        asyncio.run(
            practicum.learn(TASKS, out=tmp_path / "run", roles={**models, "curator": models["agent"]},
                            model_options=options)
        )  # fmt: skip
