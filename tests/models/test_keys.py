"""A key goes to the host that it is for, and to no other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from refusals import refused

from practicum.agents import frameworks
from practicum.core.errors import PracticumError, ProviderError
from practicum.core.types import Prompt, Task, Usage
from practicum.models.client import CallOptions
from practicum.models.keys import key_for
from practicum.models.registry import ClientSettings, Models
from practicum.session.components import Parts
from practicum.session.config import Splits, config_from
from practicum.session.records import StoredResults, override_config
from practicum.session.resume import resumed

SECRET = "sk-the-key-of-openai"
OWN = "the-key-of-the-server"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("MY_KEY", OWN)
    monkeypatch.setenv("PRACTICUM_KEYS_FILE", str(tmp_path / "keys.toml"))


def answers(request: web.Request) -> web.Response:
    choice = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
    return web.json_response({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def ask(how: Callable[[str], Any], answer: Callable[[web.Request], web.Response] = answers) -> tuple[Any, list[str]]:
    """What `how(address)` returns or raises, and the values of Authorization that a server at the address got."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return answer(request)

    async def work() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return await how(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        except PracticumError as error:
            return error
        finally:
            await runner.cleanup()

    return asyncio.run(work()), seen


def call(**settings: Any) -> Callable[[str], Any]:
    async def work(address: str) -> str:
        models = Models(ClientSettings(attempts=1, **settings))
        try:
            client = models.open(f"{address}#m")
            return (await client.complete("agent", Prompt("", "2+2?"), None, CallOptions())).text
        finally:
            await models.close()

    return work


def test_the_key_of_openai_goes_to_no_other_server() -> None:
    assert ask(call()) == ("4", ["Bearer none"])

    async def agent(address: str) -> Any:
        return (await frameworks.endpoint(f"{address}#m")("2+2?", ""))["answer"]

    assert ask(agent) == ("4", ["Bearer none"])


def test_a_server_gets_the_key_whose_variable_is_named_or_that_the_file_of_keys_has_for_it(tmp_path: Path) -> None:
    assert ask(call(api_key_env="MY_KEY")) == ("4", [f"Bearer {OWN}"])
    file = tmp_path / "keys.toml"
    file.write_text('"other.example" = "env:UNSET"\n"127.0.0.1" = "env:MY_KEY"\n')
    file.chmod(0o600)
    assert ask(call()) == ("4", [f"Bearer {OWN}"])


def test_the_server_that_the_environment_names_gets_the_key_that_the_environment_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def own(address: str) -> Any:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/other/path")
        return await call()(address)

    assert ask(own) == ("4", [f"Bearer {SECRET}"])


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("https://api.openai.com/v1", SECRET),
        ("https://eu.api.openai.com/v1", SECRET),
        ("https://api.openai.com.evil.example/v1", None),
        ("https://notapi.openai.com/v1", None),
        ("https://evil.example/api.openai.com/v1", None),
    ],
)
def test_openais_host_is_known_by_its_whole_name(address: str, key: str | None) -> None:
    assert key_for(address) == key


def test_no_key_goes_over_plain_http_to_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = "http://models.example:8000/v1"
    assert key_for(plain) is None
    assert key_for("http://[::1]:8000/v1", "MY_KEY") == key_for("http://localhost/v1", "MY_KEY") == OWN
    with refused("model.unsafe_key"):
        key_for(plain, "MY_KEY")
    with refused("model.unsafe_key"):
        frameworks.endpoint(f"{plain}#m", key="secret")
    with refused("model.unsafe_key"):
        key_for("http://api.openai.com/v1") or key_for("http://127.evil.example/v1", "MY_KEY")
    (tmp_path / "keys.toml").write_text('"models.example:8000" = "the-key-itself"\n')
    (tmp_path / "keys.toml").chmod(0o600)
    with refused("model.unsafe_key") as caught:
        key_for(plain)
    assert "the-key-itself" not in str(caught.value)
    monkeypatch.setenv("OPENAI_BASE_URL", plain)
    with refused("model.unsafe_key"):
        Models().open("openai:gpt-4.1-mini")
    monkeypatch.setenv("PRACTICUM_KEYS_FILE", str(tmp_path / "none"))
    with refused("model.unsafe_key"):
        key_for(plain)


@pytest.mark.parametrize(
    ("text", "mode", "code"),
    [
        ('"h.example" = "env:MY_KEY"', 0o644, "file.too_open"),
        ('"h.example" = "env:UNSET"', 0o600, "model.no_key"),
        ('"h.example" = 7', 0o600, "file.malformed"),
        ("h.example: key", 0o600, "file.malformed"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_file_of_keys_that_cannot_be_used_is_refused(tmp_path: Path, text: str, mode: int, code: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    file.chmod(mode)
    with refused(code):
        key_for("https://h.example/v1")


def test_one_named_key_is_for_one_server_and_must_be_set() -> None:
    models = Models(ClientSettings(api_key_env="MY_KEY"))
    models.open("https://a.example/v1#m")
    with refused("model.unsafe_key"):
        models.open("https://b.example/v1#m")
    with refused("model.no_key"):
        Models(ClientSettings(api_key_env="NOT_SET")).open("https://a.example/v1#m")


def test_the_key_of_a_run_is_not_taken_over_for_another_server() -> None:
    run = {"model": "https://a.example/v1#m", "api_key_env": "MY_KEY", "roles": {}, "method": "ace"}
    assert override_config(run, {"model": "https://a.example/v1#n"})["api_key_env"] == "MY_KEY"
    assert override_config(run, {"model": "https://b.example/v1#m"})["api_key_env"] is None
    kept = StoredResults({}, {}, 0, Usage(), 0.0)
    setup = resumed(
        config_from(run), {"model": "https://b.example/v1#m"}, Splits((Task("t", "2+2?", "4"),)), Parts(), kept
    )
    assert setup.config.api_key_env is None


def test_a_redirect_is_not_followed() -> None:
    reached: list[str] = []

    def elsewhere(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(status=307, headers={"Location": "/stolen"})

    failure, _ = ask(call(api_key_env="MY_KEY"), elsewhere)
    assert isinstance(failure, ProviderError)
    assert "redirects to '/stolen', which is not followed" in str(failure)
    assert reached == ["/v1/chat/completions"]


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 401, 500])
def test_no_message_shows_a_key_that_the_server_quotes(status: int) -> None:
    def quoting(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": f"bad: {request.headers['Authorization']}"}}, status=status)

    failure, _ = ask(call(api_key_env="MY_KEY"), quoting)
    assert "bad: Bearer [key]" in str(failure)
    assert OWN not in f"{failure!r}"

    async def agent(address: str) -> Any:
        return await frameworks.endpoint(f"{address}#m", key=OWN)("2+2?", "")

    assert OWN not in str(ask(agent, quoting)[0])


@pytest.mark.parametrize("address", ["https://anna:hunter2@models.example/v1#m", "https://openai.com@evil.example/v1"])
def test_an_address_holds_no_name_and_no_password(address: str) -> None:
    with refused("model.unsafe_key") as caught:
        key_for(address)
    assert "hunter2" not in str(caught.value)
