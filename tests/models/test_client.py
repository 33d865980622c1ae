"""Models behind HTTP: a provider's faults are retried, repaired, counted, or reported in one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from helpers import client, make_tasks
from refusals import refused

import practicum
from practicum.core.errors import ModelError, PracticumError, ProviderError, UsageError
from practicum.core.types import Prompt, Recorded, Score, Task, Trace
from practicum.core.views import count_tokens
from practicum.models import provider as provider_module
from practicum.models.client import CallOptions, Reply
from practicum.models.prompting import extract_json
from practicum.models.registry import ClientSettings, Models
from practicum.models.scripted import ScriptedClient
from practicum.session.records import override_config
from practicum.session.result import Result
from practicum.testing import ServerOptions, ServerProcess, serve

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def _no_proxy_and_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds; the tests do not wait for them."""
    found: list[float] = []
    pause = provider_module._pause

    def recorded(error: BaseException, tries: int) -> float:
        found.append(pause(error, tries))
        return 0

    monkeypatch.setattr(provider_module, "_pause", recorded)
    return found


async def _learn(url: str, folder: Path, n: int | Sequence[Task], config: dict[str, Any]) -> Result:
    settings = config.pop("settings", None)
    settings = {"rounds": 0} if settings is None else settings
    tasks = make_tasks(n) if isinstance(n, int) else n
    return await practicum.learn(tasks, out=folder, model=f"{url}#sim", settings=settings, **config)


def learn_from(folder: Path, faults: list[tuple[str, int]], n: int = 4, **config: Any) -> tuple[Result, dict[str, Any]]:
    """A run with a server that has faults, and the server's counts."""

    async def work() -> tuple[Result, dict[str, Any]]:
        async with serve(ServerOptions(behaviours=faults)) as server:
            return await _learn(server.url, folder, n, config), server.stats()

    return practicum.run_sync(work())


def learn_at(handler: Handler, folder: Path, n: int | Sequence[Task] = 4, **config: Any) -> Result:
    """A run with a server that answers with this handler."""

    async def work() -> Result:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return await _learn(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", folder, n, config)
        finally:
            await runner.cleanup()

    return practicum.run_sync(work())


def completion(text: str, finish: str | None = "stop", **fields: Any) -> web.Response:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "sim", "choices": [choice], "usage": usage}
    return web.json_response({**body, **fields})


@pytest.mark.parametrize("kind", ["429", "500", "drop", "html"])
def test_a_transient_fault_is_retried_and_changes_no_result(tmp_path: Path, kind: str) -> None:
    calm, _ = learn_from(tmp_path / "calm", [])
    result, stats = learn_from(tmp_path / "run", [(kind, 4)])
    assert stats["faults"] >= 3
    assert [e.text for e in result.context] == [e.text for e in calm.context]
    assert "lost_attempts" not in result.errors
    assert result.usage.calls == calm.usage.calls


def test_retry_after_is_respected(tmp_path: Path, pauses: list[float]) -> None:
    async def busy(request: web.Request) -> web.Response:
        if not pauses:
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "7"})
        return completion("word1")

    learn_at(busy, tmp_path / "run", n=1, method="episodes", settings={"online": True})
    assert pauses == [7]


def test_a_reply_with_missing_or_additional_fields_is_read(tmp_path: Path) -> None:
    """OpenAI-compatible servers leave fields out and add their own."""
    odd = {"created": None, "service_tier": None, "timings": {"ms": 3}}

    async def loose(request: web.Request) -> web.Response:
        return completion("word0", None, **odd)

    result = learn_at(loose, tmp_path / "run", n=1, method="none", settings={}, test=make_tasks(1))
    assert result.scores == {"test": 1.0}
    assert (result.usage.calls, result.usage.tokens) == (1, 15)


@pytest.mark.parametrize("text", ["<think>It may be word1.</think>word0", "word0"])
def test_thoughts_are_no_part_of_an_answer(tmp_path: Path, text: str) -> None:
    async def thinking(request: web.Request) -> web.Response:
        return completion(text)

    result = learn_at(thinking, tmp_path / "run", n=1, method="none", settings={}, test=make_tasks(1))
    assert result.scores == {"test": 1.0}


@pytest.mark.parametrize("body", [[], None, "word0", {"choices": None}], ids=repr)
def test_json_that_is_not_a_reply_is_reported_in_one_line(tmp_path: Path, body: Any) -> None:
    async def other(request: web.Request) -> web.Response:
        return web.json_response(body)

    with refused("attempts.all_failed") as caught:
        learn_at(other, tmp_path / "run", n=1, method="none", settings={}, test=make_tasks(1), attempts=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["garbage", "cut"])
def test_invalid_output_is_repaired(tmp_path: Path, kind: str) -> None:
    result, stats = learn_from(tmp_path / "run", [(kind, 5)], n=6)
    assert 0 < result.errors["repaired_outputs"] <= stats["faults"]
    assert result.steps == 6


STOPS: dict[str, tuple[str, str]] = {
    "401": ("401", "refused the key: check the variable of its key"),
    "404": ("404", "was not found: check the model's name and the address"),
}


@pytest.mark.parametrize(("kind", "words"), STOPS.values(), ids=STOPS)
def test_a_permanent_fault_stops_at_once_with_one_line(
    tmp_path: Path, kind: str, words: str, pauses: list[float]
) -> None:
    with pytest.raises(ModelError) as caught:
        learn_from(tmp_path / "run", [(kind, 1)])
    assert pauses == []
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert f"practicum resume {tmp_path / 'run'}" in str(caught.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_a_server_that_is_down_is_reported_after_few_tries(tmp_path: Path, address: str, pauses: list[float]) -> None:
    with refused("model.unreachable"):
        practicum.run_sync(_learn(address, tmp_path / "run", 2, {"settings": {"batch": 2}}))
    assert len(pauses) == 2 * (provider_module.FIRST_TRIES - 1)
    assert max(pauses) <= 1


def test_a_server_that_went_down_is_told_as_one_that_was_never_up(tmp_path: Path) -> None:
    with refused("provider.failed"):
        complete(Models(ClientSettings(attempts=2)), "http://127.0.0.1:9/v1#any", "hello")


def complete(models: Models, name: str, *texts: str) -> list[Reply]:
    """The answers of a model to these texts, sent at once."""

    async def work() -> list[Reply]:
        client = models.open(name)
        try:
            calls = (client.complete("agent", Prompt("", text), None, CallOptions()) for text in texts)
            return await asyncio.gather(*calls)
        finally:
            await models.close()

    return practicum.run_sync(work())


def test_a_gateway_with_chat_completions_alone_answers(
    fast_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", fast_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert all(reply.text for reply in complete(Models(), "openai:sim", "one", "two"))


def test_a_missing_key_is_named_as_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with refused("model.no_key"):
        Models().open("openai:gpt-4.1-mini")


def test_a_web_page_instead_of_a_server_is_reported_after_few_tries(tmp_path: Path, pauses: list[float]) -> None:
    with refused("model.unreachable"):
        learn_from(tmp_path / "run", [("html", 1)])
    assert len(pauses) == provider_module.FIRST_TRIES - 1
    assert max(pauses) <= 1


def test_a_body_that_breaks_off_is_a_failure_of_the_provider(tmp_path: Path) -> None:
    async def broken(request: web.Request) -> web.Response:
        return web.Response(body=b'{"id": "x", "object": "chat.comp', content_type="application/json")

    with refused("model.unreachable"):
        learn_at(broken, tmp_path / "run")


def test_a_server_that_always_errs_stops_after_three_steps(tmp_path: Path) -> None:
    with refused("attempts.all_failed"):
        learn_from(tmp_path / "run", [("500", 1)], attempts=2)


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="lost"):
        learn_from(tmp_path / "run", [("hang", 1)], timeout=0.2, attempts=1)


def test_an_account_without_credit_is_reported(tmp_path: Path) -> None:
    async def poor(request: web.Request) -> web.Response:
        error = {
            "message": "You exceeded your quota.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
        }
        return web.json_response({"error": error}, status=429)

    with refused("model.no_credit"):
        learn_at(poor, tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('Use {x}:\n```json\n{"a": {"b": 2}}\n``` and {} too.', '{"a": {"b": 2}}'),
        ('{"a": "two\nlines"}', '{"a": "two\\nlines"}'),
        ('{"a": [{"b": 2}, {"c"', '{"a": [{"b": 2}, {"c"'),
        (" no {object} ", "no {object}"),
        ("{" * 20_000, "{" * 20_000),
    ],
)
def test_the_object_in_an_answer_is_found_between_words(text: str, found: str) -> None:
    assert extract_json(text) == found


@pytest.mark.parametrize("structure", ["native", "tool", "prompted"])
def test_every_way_to_structure_works(tmp_path: Path, structure: str) -> None:
    """The server answers schemas and tools by itself; in prompted mode this test answers."""
    bodies: list[dict[str, Any]] = []

    def respond(body: dict[str, Any]) -> str | None:
        if "additionalProperties" in json.dumps(body):
            bodies.append(body)
        return 'Here: ```json\n{"reason": "so", "right": true}\n``` That is all.' if structure == "prompted" else None

    async def work() -> practicum.Evaluation:
        async with serve(ServerOptions(responder=respond)) as server:
            model, context = f"{server.url}#sim", practicum.Context()
            return await practicum.evaluate(make_tasks(3), context, model=model, structure=structure, scorer="judge")

    evaluation = practicum.run_sync(work())
    assert evaluation.errors == 0
    assert len(bodies) == 3
    schemas = bodies[0].get("response_format", {}).get("type") == "json_schema"
    assert (schemas, "tools" in bodies[0]) == (structure == "native", structure == "tool")
    assert ("additionalProperties" in json.dumps(bodies[0]["messages"])) == (structure == "prompted")
    assert bodies[0]["max_tokens"] == 4096
    assert bodies[0]["temperature"] == 0.0


def test_cached_tokens_are_counted(tmp_path: Path) -> None:
    result, stats = learn_from(tmp_path / "run", [], n=6, instructions="Answer with one word. " * 60)
    assert result.usage.cached_tokens == stats["cached_tokens"] > 0
    assert result.usage.input_tokens == stats["prompt_tokens"]
    assert sum(u.calls for u in result.by_role.values()) == result.usage.calls == stats["calls"]
    assert result.usage.usd is None


UNUSABLE: dict[str, tuple[str, str]] = {
    "unknown": ("gpt", "unknown model 'gpt'. Names look like openai:gpt-4.1-mini"),
    "unknown provider": ("acme:big", "unknown model 'acme:big'"),
    "no key": ("openai:gpt-4.1-mini", "OPENAI_API_KEY"),
    "no package": ("anthropic:claude-haiku-4-5", "pip install 'pydantic-ai-slim[anthropic]'"),
    "no name": ("http://127.0.0.1:9/v1", "http://host:port/v1#name"),
    "no host": ("http:///v1#sim", "http://host:port/v1#name"),
}


@pytest.mark.parametrize(("name", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_model_that_cannot_be_opened_is_a_usage_error(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        practicum.run_sync(practicum.learn(make_tasks(2), out=tmp_path / "run", model=name))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_roles_have_models_of_their_own_and_share_a_client(tmp_path: Path) -> None:
    models = Models(ClientSettings())
    script = tmp_path / "script"
    script.write_text('{"answer": "x"}\n')
    assert models.open(f"scripted:{script}") is models.open(f"scripted:{script}")
    reflector, agent = client(name="r"), client(name="a")
    parts = practicum.Parts(clients={"agent": agent, "reflector": reflector})
    work = practicum.learn(make_tasks(3), out=tmp_path / "run", parts=parts, settings={"rounds": 0})
    practicum.run_sync(work)
    assert {call.role for call in reflector.calls} == {"reflector"}
    assert {call.role for call in agent.calls} == {"agent", "curator"}


@pytest.mark.parametrize("name", ["http://127.0.0.1:9/v1#m", "openai:gpt-4.1-mini"])
def test_a_window_setting_applies_to_served_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    given, plain = (Models(ClientSettings(window=window)).open(name).window for window in (4096, None))
    assert given == 4096
    assert plain != 4096


def test_a_trace_is_cut_to_the_window_of_the_settings(tmp_path: Path) -> None:
    prompts: list[str] = []
    found = dict.fromkeys(("reasoning", "diagnosis", "cause", "correction"), "x")

    async def reflecting(request: web.Request) -> web.Response:
        prompts.append((await request.json())["messages"][-1]["content"])
        return completion(json.dumps({**found, "tags": [], "insights": []}))

    long = Recorded(Trace("no", reasoning="word " * 20_000), Score(0.0, False))
    task = Task("x", "Message 0", "word0", recorded=long)
    how: dict[str, Any] = {"settings": {"curator": "append"}, "from_traces": True}
    for window in (None, 8192):
        learn_at(reflecting, tmp_path / str(window), [task], window=window, **how)
    assert ["left out here" in prompt for prompt in prompts] == [False, True]
    assert count_tokens(prompts[1]) < 8192


def test_a_window_does_not_pass_from_a_local_model_to_a_served_one() -> None:
    run = {"model": "local", "window": 1024}
    assert override_config(run, {"model": "http://127.0.0.1:9/v1#m"})["window"] is None
    assert override_config(run, {"model": "http://127.0.0.1:9/v1#m", "window": 4096})["window"] == 4096
    assert override_config(run, {"model": "local:other.gguf"})["window"] == 1024


BAD_SCRIPTS = {
    "missing": (None, "cannot read the script"),
    "empty": ("", "has no rules"),
    "no json": ("answer\n", "line 1"),
    "unknown key": ('{"anser": "x"}\n', "line 1"),
    "bad pattern": ('{"match": "(", "answer": "x"}\n', "not a regular expression"),
}


@pytest.mark.parametrize(("text", "words"), BAD_SCRIPTS.values(), ids=BAD_SCRIPTS)
def test_a_malformed_script_is_refused_with_its_line(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "script"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PracticumError, match=words):
        ScriptedClient.from_file(path)


def test_a_script_answers_by_role_and_pattern(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text(
        '{"role": "agent", "match": "say (?P<word>\\\\w+)", "answer": {"used": [], "answer": "\\\\g<word>"}}\n'
        '{"role": "agent", "match": "fail", "error": "429"}\n'
    )
    config: dict[str, Any] = {"model": f"scripted:{path}", "reasoning": False, "choices": ("word1", "word2")}
    tasks = make_tasks(3)[1:]
    assert practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), **config)).score == 1.0
    wrong, other = ([practicum.Task("x", text, "word1")] for text in ("fail", "hello"))
    with refused("attempts.all_failed"):
        practicum.run_sync(practicum.evaluate(wrong, practicum.Context(), **config))
    with refused("script.no_rule"):
        practicum.run_sync(practicum.evaluate(other, practicum.Context(), **config))


def test_a_prompt_over_the_window_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    model = client(window=100)
    parts = practicum.Parts(clients={"agent": model})
    tasks = [practicum.Task("x", "word " * 500, "y")]
    with refused("window.exceeded"):
        practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), parts=parts))
    assert model.calls == []
