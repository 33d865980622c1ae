"""Models behind HTTP: transient faults are retried, other failures are reported in one line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from refusals import refused

import practicum
from practicum.core.errors import UsageError
from practicum.core.types import Prompt
from practicum.models import provider as provider_module
from practicum.models.client import CallOptions, Reply
from practicum.models.registry import Models
from practicum.models.scripted import ScriptedClient
from practicum.session.result import Result
from practicum.testing import ServerOptions, ServerProcess, serve


@pytest.fixture(autouse=True)
def _no_proxy_and_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds; the tests do not wait for them."""
    recorded: list[float] = []
    pause = provider_module._pause

    def record(error: BaseException, tries: int) -> float:
        recorded.append(pause(error, tries))
        return 0

    monkeypatch.setattr(provider_module, "_pause", record)
    return recorded


def learn_from(folder: Path, faults: list[tuple[str, int]], **config: Any) -> tuple[Result, dict[str, Any]]:
    """A run with a server that has faults, and the server's counts."""

    async def work() -> tuple[Result, dict[str, Any]]:
        async with serve(ServerOptions(behaviours=faults)) as server:
            how = {"model": f"{server.url}#sim", "settings": {"rounds": 0}, **config}
            return await practicum.learn(make_tasks(4), out=folder, **how), server.stats()

    return practicum.run_sync(work())


def test_transient_faults_are_retried_and_change_no_result(tmp_path: Path) -> None:
    calm, _ = learn_from(tmp_path / "calm", [])
    result, stats = learn_from(tmp_path / "run", [("429", 5), ("500", 6), ("drop", 7), ("html", 8)])
    assert stats["faults"] >= 4
    assert [entry.text for entry in result.context] == [entry.text for entry in calm.context]
    assert "lost_attempts" not in result.errors
    assert result.usage.calls == calm.usage.calls


def test_a_gateway_with_only_chat_completions_answers(
    fast_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", fast_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    async def work() -> list[Reply]:
        models = Models()
        client = models.open("openai:sim")
        try:
            calls = (client.complete("agent", Prompt("", text), None, CallOptions()) for text in ("one", "two"))
            return await asyncio.gather(*calls)
        finally:
            await models.close()

    assert all(reply.text for reply in practicum.run_sync(work()))


def test_a_web_page_in_place_of_a_server_is_reported_after_few_tries(tmp_path: Path, pauses: list[float]) -> None:
    with refused("model.unreachable"):
        learn_from(tmp_path / "run", [("html", 1)])
    assert len(pauses) == provider_module.FIRST_TRIES - 1
    assert max(pauses) <= 1


@pytest.mark.slow
def test_a_server_that_never_answers_fails_after_the_timeout(tmp_path: Path) -> None:
    with refused("attempts.all_failed"):
        learn_from(tmp_path / "run", [("hang", 1)], timeout=0.2, retries=0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("acme:big", "unknown model 'acme:big'"), ("openai:gpt-4.1-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-haiku-4-5", "pip install 'pydantic-ai-slim[anthropic]'"),
        ("http:///v1#sim", "http://host:port/v1#name"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_opened_is_a_usage_error(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        practicum.run_sync(practicum.learn(make_tasks(2), out=tmp_path / "run", model=name))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


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
