"""A key is only sent to its host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import asynchronous
from raw_server import completion, ok, raw_server
from refusals import refused

from practicum.agents import frameworks
from practicum.core.errors import PracticumError, ProviderError
from practicum.core.types import Prompt, Task, Usage
from practicum.models.client import CallOptions
from practicum.models.keys import key_for
from practicum.models.options import ModelOptions
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


def write_keys(folder: Path, text: str, mode: int = 0o600) -> None:
    (folder / "keys.toml").write_text(text)
    (folder / "keys.toml").chmod(mode)


@asynchronous
async def ask(how: Callable[[str], Any], sent: bytes = ok(completion())) -> tuple[Any, list[str]]:
    """The result or the error of `how(address)`, and the values of Authorization, or none, that a server at the address
    got."""
    async with raw_server(sent) as (address, heads):
        try:
            result = await how(address)
        except PracticumError as error:
            result = error
        return result, ["".join(re.findall(r"(?i)^authorization: (.*)\r$", head, re.M)) for head in heads]


def call(**settings: Any) -> Callable[[str], Any]:
    async def work(address: str) -> str:
        models = Models(ClientSettings(attempts=1, **settings))
        try:
            client = models.open(f"{address}#m")
            return (await client.complete("agent", Prompt("", "2+2?"), None, CallOptions())).text
        finally:
            await models.close()

    return work


def agent(**settings: Any) -> Callable[[str], Any]:
    async def work(address: str) -> Any:
        return (await frameworks.endpoint(f"{address}#m", **settings)("2+2?", ""))["answer"]

    return work


def test_the_key_of_openai_is_sent_only_to_openai_or_the_server_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ask(call()) == ask(agent()) == ("4", [""])

    async def named(address: str) -> Any:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/other/path")
        return await call()(address)

    assert ask(named) == ("4", [f"Bearer {SECRET}"])


ADDRESSES = {
    "https://api.openai.com/v1": SECRET, "https://eu.api.openai.com/v1": SECRET,
    "https://api.openai.com.evil.example/v1": None, "https://notapi.openai.com/v1": None,
    "https://evil.example/api.openai.com/v1": None, "http://models.example:8000/v1": None,
    "https://a.example/v1": OWN, "https://a.example:443/v1": OWN, "https://a.example:8443/v1": "of-the-port",
}  # fmt: skip


def test_an_address_gets_the_key_of_its_host(tmp_path: Path) -> None:
    write_keys(tmp_path, '"a.example" = "env:MY_KEY"\n"a.example:8443" = "of-the-port"\n"b.example" = "env:UNSET"\n')
    assert {address: key_for(address) for address in ADDRESSES} == ADDRESSES
    assert {key_for(address, "MY_KEY") for address in ADDRESSES if address.startswith("https:")} == {OWN}


def test_no_key_goes_over_plain_http_to_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = "http://models.example:8000/v1"
    assert key_for("http://[::1]:8000/v1", "MY_KEY") == key_for("http://localhost/v1", "MY_KEY") == OWN
    with refused("model.unsafe_key"):
        frameworks.endpoint(f"{plain}#m", key="secret")
    for address in (plain, "http://api.openai.com/v1", "http://127.evil.example/v1"):
        with refused("model.unsafe_key"):
            key_for(address, "MY_KEY")
    write_keys(tmp_path, '"models.example:8000" = "the-key-itself"\n')
    with refused("model.unsafe_key") as caught:
        key_for(plain)
    assert "the-key-itself" not in str(caught.value)
    monkeypatch.setenv("PRACTICUM_KEYS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("OPENAI_BASE_URL", plain)
    for use in (lambda: Models().open("openai:gpt-4.1-mini"), lambda: key_for(plain)):
        with refused("model.unsafe_key"):
            use()


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_an_unusable_file_of_keys_is_refused(tmp_path: Path) -> None:
    for text, mode, code in (
        ('"h.example" = "env:MY_KEY"', 0o644, "file.too_open"), ('"h.example" = "env:UNSET"', 0o600, "model.no_key"),
        ('"h.example" = 7', 0o600, "file.malformed"), ("h.example: key", 0o600, "file.malformed"),
    ):  # fmt: skip
        write_keys(tmp_path, text, mode)
        with refused(code):
            key_for("https://h.example/v1")


def test_a_named_key_is_for_one_server_and_must_be_set() -> None:
    models = Models(ClientSettings(api_key_env="MY_KEY"))
    models.open("https://a.example/v1#m")
    with refused("model.unsafe_key"):
        models.open("https://b.example/v1#m")
    with refused("model.no_key"):
        Models(ClientSettings(api_key_env="NOT_SET")).open("https://a.example/v1#m")


def test_the_key_of_a_run_is_not_used_for_another_server() -> None:
    run = {"model": "https://a.example/v1#m", "api_key_env": "MY_KEY", "roles": {}, "method": "ace"}
    assert override_config(run, {"model": "https://a.example/v1#n"})["api_key_env"] == "MY_KEY"
    assert override_config(run, {"model": "https://b.example/v1#m"})["api_key_env"] is None
    splits, past = Splits((Task("t", "2+2?", "4"),)), StoredResults({}, {}, 0, Usage(), 0.0)
    setup = resumed(config_from(run), {"model": "https://b.example/v1#m"}, splits, Parts(), past)
    assert setup.config.api_key_env is None


def test_a_redirect_is_not_followed_and_no_message_shows_a_quoted_key(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = ok({}, "Location: /stolen").replace(b"200 OK", b"307 Temporary Redirect")
    failure, received = ask(call(api_key_env="MY_KEY"), moved)
    assert isinstance(failure, ProviderError)
    assert received == [f"Bearer {OWN}"]
    quoting = ok({"error": {"message": f"bad: Bearer {OWN}"}}).replace(b"200 OK", b"401 Unauthorized")
    for how in (call(api_key_env="MY_KEY"), agent(key=OWN)):
        failure, _ = ask(how, quoting)
        assert isinstance(failure, PracticumError)
        assert OWN not in f"{failure!r}"
    assert "bad: Bearer [key]" in str(ask(call(api_key_env="MY_KEY"), quoting)[0])
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-token")
    options = ModelOptions(headers={"X-Key": "env:MY_TOKEN"})
    quoting = ok({"error": {"message": "bad: X-Key s3cr3t-token"}}).replace(b"200 OK", b"401 Unauthorized")
    assert "s3cr3t" not in f"{ask(call(options=options), quoting)[0]!r}"


def test_an_address_with_a_name_or_a_password_is_refused() -> None:
    for address in ("https://anna:hunter2@models.example/v1#m", "https://openai.com@evil.example/v1"):
        with refused("model.unsafe_key") as caught:
            key_for(address)
        assert "hunter2" not in str(caught.value)
