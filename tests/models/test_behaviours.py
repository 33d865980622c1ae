"""Behaviours of the simulated server in learning, in an evaluation and for an agent of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from serving import asynchronous

import practicum
from practicum.agents.frameworks import endpoint
from practicum.core.errors import ModelError, ProviderError
from practicum.core.types import Task
from practicum.models import provider
from practicum.models.scripted import ScriptedClient
from practicum.session.result import Evaluation, Result, Watch
from practicum.testing import BEHAVIOURS, ServerOptions, SimulatedServer, serve

TASKS = [Task(f"t{n}", f"Question {n}: what is {n}?", str(n)) for n in range(6)]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds; the tests do not wait for them."""
    recorded: list[float] = []
    pause = provider._pause

    def record(error: BaseException, tries: int) -> float:
        recorded.append(pause(error, tries))
        return 0

    monkeypatch.setattr(provider, "_pause", record)
    return recorded


class Warned(Watch):
    """Records the warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warned(self, text: str) -> None:
        self.lines.append(text)


async def learned(server: SimulatedServer, out: Path, tasks: list[Task] = TASKS, **more: Any) -> Result:
    settings = {"rounds": 0, **more.pop("settings", {})}
    return await practicum.learn(tasks, out=out, model=f"{server.url}#sim", settings=settings, **{"retries": 1, **more})


async def evaluated(server: SimulatedServer, tasks: list[Task] = TASKS, **more: Any) -> Evaluation:
    return await practicum.evaluate(tasks, practicum.Context(), model=f"{server.url}#sim", retries=1, **more)


def refusing(name: str, when: int | str = 1) -> Any:
    return serve(ServerOptions(behaviours=[(name, when)]))


# ---- behaviours that meet one request

ANSWERED = (
    *("thoughts", "thoughts-unopened", "reasoning-content", "reasoning", "list-content", "list-content-thinking"),
    *("garbage", "cut"),
)
LOST: dict[str, tuple[str, int]] = {
    **dict.fromkeys(
        ("thoughts-unclosed", "only-reasoning-content", "only-reasoning", "only-thinking-content"), ("silent_cuts", 1)
    ),
    **dict.fromkeys(("empty", "null-content"), ("empty_answers", 1)),
    "refusal": ("refused_answers", 1),
    "filtered": ("filtered_answers", 1),
    "content-filter": ("filtered_requests", 1),
    **dict.fromkeys(("context-window", "context"), ("overlong_requests", 1)),
    **dict.fromkeys(("unprocessable", "unknown-400"), ("refused_requests", 1)),
    **dict.fromkeys(("json-validate-failed", "tool-use-failed"), ("invalid_samples", 3)),
    **dict.fromkeys(("no-choices", "error-in-200", "html", "drop", "429", "500"), ("lost_attempts", 2)),
}
"""Behaviour → the count of the run for it, and the requests of one attempt."""
MIXED = [Task(name, f"Question {name}!", "x") for name in ("plain", *ANSWERED, *LOST)]
BEHAVING = ServerOptions(behaviours=[(name, f"Question {name}!") for name in (*ANSWERED, *LOST)])


def expected_counts() -> dict[str, int]:
    names = [name for name, _ in LOST.values()]
    return {name: names.count(name) for name in names} | {"lost_attempts": len(LOST)}


@asynchronous
async def test_an_evaluation_loses_only_the_attempts_that_got_no_answer() -> None:
    async with serve(BEHAVING) as server:
        evaluation = await evaluated(server, MIXED)
        assert server.stats()["received"] == 1 + len(ANSWERED) + sum(requests for _, requests in LOST.values())
    errors = {row["id"]: row["error"] for row in evaluation.as_json()["attempts"]}
    assert {id for id, error in errors.items() if error} == {*LOST}
    assert not any("schema" in error.lower() for error in errors.values() if error)
    assert evaluation.n == len(MIXED)
    assert evaluation.counts.items() >= {**expected_counts(), "cut_texts": 1}.items()


@asynchronous
async def test_a_run_loses_only_the_attempts_that_got_no_answer(tmp_path: Path) -> None:
    async with serve(BEHAVING) as server:
        result = await learned(server, tmp_path / "run", MIXED, settings={"batch": 8})
    assert (result.steps, result.cut_short) == (-(-len(MIXED) // 8), False)
    assert {name: result.errors[name] for name in expected_counts()} == expected_counts()


@asynchronous
async def test_a_refused_request_is_named_with_its_task_and_is_not_asked_for_again(tmp_path: Path) -> None:
    behaviours: list[tuple[str, int | str]] = [("content-filter", "Question 3"), ("refuses-temperature", 1)]
    async with serve(ServerOptions(behaviours=behaviours)) as server:
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


@asynchronous
async def test_an_answer_that_the_provider_could_not_make_is_asked_for_again(tmp_path: Path) -> None:
    async with refusing("json-validate-failed", 4) as server:
        result = await learned(server, tmp_path / "run")
        assert result.errors["repeated_samples"] == server.stats()["faults"] > 1
        assert not result.errors.keys() & {"lost_attempts", "lost_reflections", "lost_updates"}


@asynchronous
async def test_an_agent_that_asks_its_model_by_itself_loses_one_attempt_for_each_refusal(tmp_path: Path) -> None:
    names = ("content-filter", "context-window", "unknown-400")
    async with serve(ServerOptions(behaviours=[(name, f"Question {n}") for n, name in enumerate(names)])) as server:
        parts = practicum.Parts(agent=endpoint(f"{server.url}#mine"))
        result = await practicum.learn(
            TASKS, out=tmp_path / "run", method="none", settings={}, test=TASKS, parts=parts, before=False
        )
    assert result.errors["lost_attempts"] == 3
    assert [result.errors[LOST[name][0]] for name in names] == [1, 1, 1]


# ---- transient faults, and behaviours that meet all requests


@asynchronous
async def test_transient_faults_are_retried_and_change_no_result(tmp_path: Path) -> None:
    async with serve(ServerOptions()) as server:
        calm = await learned(server, tmp_path / "calm", retries=2)
    async with serve(ServerOptions(behaviours=[("429", 5), ("500", 6), ("drop", 7), ("html", 8)])) as server:
        result = await learned(server, tmp_path / "run", retries=2)
        assert server.stats()["faults"] >= 4
    assert [entry.text for entry in result.context] == [entry.text for entry in calm.context]
    assert "lost_attempts" not in result.errors
    assert result.usage.calls == calm.usage.calls


@asynchronous
async def test_a_web_page_in_place_of_a_server_is_reported_after_few_tries(tmp_path: Path, pauses: list[float]) -> None:
    async with refusing("html") as server:
        with refused("model.unreachable"):
            await learned(server, tmp_path / "run", retries=5)
    assert len(pauses) == provider.FIRST_TRIES - 1
    assert max(pauses) <= 1


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("401", "model.key_refused"), ("403", "model.not_allowed"), ("404", "model.not_found"),
        ("no-credit", "model.no_credit"),
    ],
)  # fmt: skip
@asynchronous
async def test_a_failure_of_the_account_ends_the_command_and_is_not_retried(
    name: str, code: str, tmp_path: Path
) -> None:
    async with refusing(name) as server:
        with refused(code):
            await evaluated(server)
        assert server.stats()["received"] == len(TASKS)
        with refused(code):
            await learned(server, tmp_path / "run")


@pytest.mark.parametrize(("name", "requests"), [("unknown-400", 5), ("content-filter", 6)])
@asynchronous
async def test_a_run_stops_if_the_same_refusal_meets_all_requests_and_a_resume_asks_again(
    name: str, requests: int, tmp_path: Path
) -> None:
    async with refusing(name) as server:
        with pytest.raises(ModelError if requests == 5 else ProviderError) as caught:
            await learned(server, tmp_path / "run", settings={"batch": 1})
        assert server.stats()["received"] == requests
        assert BEHAVIOURS[name].error["message"][:40] in str(caught.value)
    async with serve(ServerOptions()) as server:
        result = await practicum.resume(tmp_path / "run", model=f"{server.url}#sim")
        assert (result.steps, "lost_attempts" in result.errors) == (6, False)


def form_of(body: dict[str, Any]) -> str:
    return str((body.get("response_format") or {}).get("type"))


REFUSED = ("refuses-temperature", "refuses-seed", "refuses-system", "refuses-response-format", "refuses-max-tokens")


@pytest.mark.parametrize(
    ("names", "structure", "refusals", "forms"),
    [
        (("refuses-json-schema",), "native", 1, {"json_object"}),
        (REFUSED, "native", 6, set()), (REFUSED, "tool", 4, set()), (REFUSED, "prompted", 4, set()),
    ],
)  # fmt: skip
@asynchronous
async def test_a_server_that_refuses_many_parameters_is_asked_in_every_structure(
    names: tuple[str, ...], structure: Any, refusals: int, forms: set[str]
) -> None:
    bodies: list[dict[str, Any]] = []

    def record(body: dict[str, Any]) -> None:
        bodies.append(body)

    async with serve(ServerOptions(behaviours=[(name, 1) for name in names], responder=record)) as server:
        evaluation = await evaluated(server, scorer="judge", structure=structure, concurrency=1)
        assert (evaluation.errors, evaluation.n, len(bodies)) == (0, 6, 12)
        assert evaluation.counts["refused_parameters"] == refusals
        assert server.stats()["received"] == 12 + refusals
    assert {form_of(body) for body in bodies} - {"None"} == forms
    if names == REFUSED:
        assert not any(message["role"] == "system" for body in bodies for message in body["messages"])
        assert {body["max_completion_tokens"] for body in bodies} == {4096}


@asynchronous
async def test_a_gateway_behind_the_name_of_a_provider_is_adapted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in BEHAVIOURS if name.startswith("refuses") and name != "refuses-max-tokens"]
    async with serve(ServerOptions(behaviours=[(name, 1) for name in names])) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        evaluation = await practicum.evaluate(
            TASKS, practicum.Context(), model="openai:sim", scorer="judge", structure="native", concurrency=1,
            model_options={"extra_body": {"top_p": 0.5, "stop": ["x"]}},
        )  # fmt: skip
        assert (evaluation.errors, evaluation.n) == (0, 6)


# ---- options of a model


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("thinking=off", "settings.invalid"), ({"body": {}}, "settings.invalid"),
        ({"headers": {"Authorization": "Bearer abcdef"}}, "settings.invalid"),
        ({"headers": {"X-Mine": "AKIAIOSFODNN7EXAMPLE"}}, "settings.invalid"),
        ({"extra_body": {"x": "AKIAIOSFODNN7EXAMPLE"}}, "settings.invalid"),
        ({"extra_body": {"temperature": 1}}, "settings.invalid"), ({"headers": {"a b": "c"}}, "settings.invalid"),
        ({"headers": {"X-Key": "env:NOT_SET_HERE"}}, "model.no_key"),
    ],
)  # fmt: skip
@asynchronous
async def test_wrong_model_options_are_refused_before_anything_is_sent(options: Any, code: str) -> None:
    async with serve(ServerOptions()) as server:
        with refused(code) as caught:
            await evaluated(server, model_options=options)
        assert server.stats()["received"] == 0
    assert "abcdef" not in str(caught.value)
    assert "AKIA" not in str(caught.value)


@pytest.mark.parametrize("second", ["https://b.example/v1#m", "http://a.example/v1#m"])
@asynchronous
async def test_secrets_in_headers_go_to_one_server_and_not_over_plain_http(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    first = second if second.startswith("http:") else "https://a.example/v1#m"
    roles = {"agent": first, "reflector": second, "curator": first}
    with refused("model.unsafe_key"):
        options = {"headers": {"X-Key": "env:MY_TOKEN"}}
        await practicum.learn(TASKS, out=tmp_path / "run", roles=roles, model_options=options)


# ---- scripted models


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "file.unreadable"), ("", "script.invalid"), ("answer\n", "script.invalid"),
        ('{"anser": "x"}\n', "script.invalid"), ('{"match": "(", "answer": "x"}\n', "script.invalid"),
    ],
)  # fmt: skip
def test_a_malformed_script_is_refused(tmp_path: Path, text: str | None, code: str) -> None:
    path = tmp_path / "script"
    if text is not None:
        path.write_text(text)
    with refused(code):
        ScriptedClient.from_file(path)
