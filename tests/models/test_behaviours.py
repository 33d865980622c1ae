"""Behaviours of the simulated server in learning, in an evaluation and for an agent of the user."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from serving import asynchronous

import practicum
from practicum.core.errors import ModelError, ProviderError
from practicum.core.types import Task
from practicum.models import provider
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
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warned(self, text: str) -> None:
        self.lines.append(text)


async def learned(server: SimulatedServer, out: Path, tasks: list[Task] = TASKS, **more: Any) -> Result:
    settings = {"rounds": 0, **more.pop("settings", {})}
    return await practicum.learn(tasks, out=out, model=f"{server.url}#sim", settings=settings, **{"retries": 1, **more})


async def evaluated(server: SimulatedServer, tasks: list[Task] = TASKS, **more: Any) -> Evaluation:
    how = {"model": f"{server.url}#sim", "retries": 1, **more}
    return await practicum.evaluate(tasks, practicum.Context(), **how)


def behaving(*behaviours: tuple[str, int | str]) -> Any:
    return serve(ServerOptions(behaviours=[*behaviours]))


# ---- behaviours that meet one request

ANSWERED = (
    "thoughts", "thoughts-unopened", "reasoning-content", "reasoning", "list-content", "list-content-thinking",
    "garbage", "cut",
)  # fmt: skip
LOST: dict[str, tuple[str, int]] = {
    "thoughts-unclosed": ("silent_cuts", 1), "only-reasoning-content": ("silent_cuts", 1),
    "only-reasoning": ("silent_cuts", 1), "only-thinking-content": ("silent_cuts", 1),
    "empty": ("empty_answers", 1), "null-content": ("empty_answers", 1), "refusal": ("refused_answers", 1),
    "filtered": ("filtered_answers", 1), "content-filter": ("filtered_requests", 1),
    "context-window": ("overlong_requests", 1), "context": ("overlong_requests", 1),
    "unprocessable": ("refused_requests", 1), "unknown-400": ("refused_requests", 1),
    "json-validate-failed": ("invalid_samples", 3), "tool-use-failed": ("invalid_samples", 3),
    **dict.fromkeys(("no-choices", "error-in-200", "html", "drop", "429", "500"), ("lost_attempts", 2)),
}  # fmt: skip
"""Behaviour → the count of the run for it, and the requests of one attempt."""


@asynchronous
async def test_an_evaluation_loses_only_the_attempts_that_got_no_answer() -> None:
    tasks = [Task(name, f"Question {name}!", "x") for name in ("plain", *ANSWERED, *LOST)]
    async with behaving(*((name, f"Question {name}!") for name in (*ANSWERED, *LOST))) as server:
        evaluation = await evaluated(server, tasks)
        assert server.stats()["received"] == 1 + len(ANSWERED) + sum(requests for _, requests in LOST.values())
    errors = {row["id"]: row["error"] for row in evaluation.as_json()["attempts"]}
    assert {id for id, error in errors.items() if error} == {*LOST}
    assert not any("schema" in error.lower() for error in errors.values() if error)
    assert evaluation.n == len(tasks)
    expected = {**Counter(name for name, _ in LOST.values()), "lost_attempts": len(LOST), "cut_texts": 1}
    assert evaluation.counts.items() >= expected.items()


@asynchronous
async def test_a_refused_request_is_named_with_its_task_and_is_not_asked_for_again(tmp_path: Path) -> None:
    async with behaving(("content-filter", "Question 1"), ("refuses-temperature", 1)) as server:
        warned = Warned()
        whole = await learned(server, tmp_path / "whole", TASKS[:3], watch=warned)
        assert len([line for line in warned.lines if "task t1" in line and "content management policy" in line]) == 1
        assert len([line for line in warned.lines if "refused the parameter temperature" in line]) == 1
        assert (whole.steps, whole.cut_short, whole.errors["lost_attempts"]) == (3, False, 1)
        received = server.stats()["received"]

        server.reset()
        cut = await learned(server, tmp_path / "cut", TASKS[:3], max_calls=5)
        assert cut.stopped
        watch = Warned()
        resumed = await practicum.resume(tmp_path / "cut", max_calls=100, watch=watch)
        assert watch.lines == []
        assert server.stats()["received"] == received
        assert dict(resumed.errors) == dict(whole.errors)
        assert [entry.text for entry in resumed.context] == [entry.text for entry in whole.context]


# ---- transient faults, and behaviours that meet all requests


@asynchronous
async def test_transient_faults_are_retried_and_change_no_result(pauses: list[float]) -> None:
    async with behaving() as server:
        calm = await evaluated(server)
    async with behaving(("429", 4), ("500", 6), ("drop", 7), ("html", 9)) as server:
        evaluation = await evaluated(server, retries=4, concurrency=1)
        assert server.stats()["faults"] == len(pauses) == 5
    assert [each.first.trace.answer for each in evaluation.attempts] == [
        each.first.trace.answer for each in calm.attempts
    ]
    assert (evaluation.errors, evaluation.usage.calls) == (0, calm.usage.calls)


@asynchronous
async def test_a_web_page_in_place_of_a_server_is_reported_after_few_tries(tmp_path: Path, pauses: list[float]) -> None:
    async with behaving(("html", 1)) as server:
        with refused("model.unreachable"):
            await learned(server, tmp_path / "run", retries=5)
    assert len(pauses) == provider.FIRST_TRIES - 1
    assert max(pauses) <= 1


@asynchronous
async def test_a_failure_of_the_account_ends_the_command_and_is_not_retried(tmp_path: Path) -> None:
    codes = {
        "401": "model.key_refused", "403": "model.not_allowed", "404": "model.not_found", "no-credit": "model.no_credit"
    }  # fmt: skip
    async with behaving(*((name, f"Question {name}!") for name in codes)) as server:
        for number, (name, code) in enumerate(codes.items(), 1):
            with refused(code):
                await evaluated(server, [Task(f"t{n}", f"Question {name}! {n}", "x") for n in range(2)])
            assert server.stats()["received"] == 2 * number
        with refused("model.not_allowed"):
            await learned(server, tmp_path / "run", [Task("t", "Question 403!", "x")])


@asynchronous
async def test_a_run_stops_if_the_same_refusal_meets_all_requests_and_a_resume_asks_again(tmp_path: Path) -> None:
    for name, requests, kind in (("content-filter", 6, ProviderError), ("unknown-400", 5, ModelError)):
        async with behaving((name, 1)) as server:
            with pytest.raises(kind, match=re.escape(BEHAVIOURS[name].error["message"][:40])):
                await learned(server, tmp_path / name, settings={"batch": 1})
            assert server.stats()["received"] == requests
    async with behaving() as server:
        result = await practicum.resume(tmp_path / "unknown-400", model=f"{server.url}#sim")
        assert (result.steps, "lost_attempts" in result.errors) == (6, False)


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
        evaluation = await evaluated(server, TASKS[:2], scorer="judge", structure=structure, concurrency=1)
        assert (evaluation.errors, evaluation.n, len(bodies)) == (0, 2, 4)
        assert evaluation.counts["refused_parameters"] == refusals
        assert server.stats()["received"] == 4 + refusals
    assert {body["response_format"]["type"] for body in bodies if "response_format" in body} == forms
    if names == REFUSED:
        assert not any(message["role"] == "system" for body in bodies for message in body["messages"])
        assert {body["max_completion_tokens"] for body in bodies} == {4096}


@asynchronous
async def test_a_gateway_behind_the_name_of_a_provider_is_adapted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in BEHAVIOURS if name.startswith("refuses") and name != "refuses-max-tokens"]
    async with behaving(*((name, 1) for name in names)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        how = {"scorer": "judge", "structure": "native", "concurrency": 1}
        options = {"extra_body": {"top_p": 0.5, "stop": ["x"]}}
        evaluation = await evaluated(server, TASKS[:2], model="openai:sim", model_options=options, **how)
        assert (evaluation.errors, evaluation.n) == (0, 2)


# ---- options of a model

WRONG_OPTIONS: list[Any] = [
    "thinking=off", {"body": {}}, {"headers": {"Authorization": "Bearer abcdef"}}, {"headers": {"a b": "c"}},
    {"headers": {"X-Mine": "AKIAIOSFODNN7EXAMPLE"}}, {"extra_body": {"x": "AKIAIOSFODNN7EXAMPLE"}},
    {"extra_body": {"temperature": 1}}, {"headers": {"X-Key": "env:NOT_SET_HERE"}},
]  # fmt: skip


@asynchronous
async def test_wrong_model_options_are_refused_before_anything_is_sent() -> None:
    async with behaving() as server:
        for options in WRONG_OPTIONS:
            with refused("model.no_key" if "NOT_SET" in str(options) else "settings.invalid") as caught:
                await evaluated(server, model_options=options)
            assert "abcdef" not in str(caught.value)
            assert "AKIA" not in str(caught.value)
        assert server.stats()["received"] == 0


@asynchronous
async def test_secrets_in_headers_go_to_one_server_and_not_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    options = {"headers": {"X-Key": "env:MY_TOKEN"}}
    for agent, judge in (("https://a.example", "https://b.example"), ("http://a.example", "http://a.example")):
        roles = {"agent": f"{agent}/v1#m", "judge": f"{judge}/v1#m"}
        with refused("model.unsafe_key"):
            await practicum.evaluate(TASKS, practicum.Context(), roles=roles, scorer="judge", model_options=options)
