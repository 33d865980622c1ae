"""Models behind HTTP: a provider's faults are retried, repaired, counted, or reported in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from refusals import refused

import practicum
from practicum.core.errors import UsageError
from practicum.core.types import Prompt, Task
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


@pytest.mark.parametrize("kind", ["429", "500", "drop", "html"])
def test_a_transient_fault_is_retried_and_changes_no_result(tmp_path: Path, kind: str) -> None:
    calm, _ = learn_from(tmp_path / "calm", [])
    result, stats = learn_from(tmp_path / "run", [(kind, 4)])
    assert stats["faults"] >= 3
    assert [e.text for e in result.context] == [e.text for e in calm.context]
    assert "lost_attempts" not in result.errors
    assert result.usage.calls == calm.usage.calls


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


def test_a_web_page_instead_of_a_server_is_reported_after_few_tries(tmp_path: Path, pauses: list[float]) -> None:
    with refused("model.unreachable"):
        learn_from(tmp_path / "run", [("html", 1)])
    assert len(pauses) == provider_module.FIRST_TRIES - 1
    assert max(pauses) <= 1


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    with refused("attempts.all_failed"):
        learn_from(tmp_path / "run", [("hang", 1)], timeout=0.2, retries=0)


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


BAD_SCRIPTS = {
    "missing": (None, "file.unreadable"),
    "empty": ("", "script.invalid"),
    "no json": ("answer\n", "script.invalid"),
    "unknown key": ('{"anser": "x"}\n', "script.invalid"),
    "bad pattern": ('{"match": "(", "answer": "x"}\n', "script.invalid"),
}


@pytest.mark.parametrize(("text", "code"), BAD_SCRIPTS.values(), ids=BAD_SCRIPTS)
def test_a_malformed_script_is_refused_with_its_line(tmp_path: Path, text: str | None, code: str) -> None:
    path = tmp_path / "script"
    if text is not None:
        path.write_text(text)
    with refused(code):
        ScriptedClient.from_file(path)
