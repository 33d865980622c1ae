"""A key goes to the host that it is for, and to no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import refused

from practicum.agents import frameworks
from practicum.models.keys import key_for
from practicum.models.registry import ClientSettings, Models

SECRET = "sk-the-key-of-openai"
OWN = "the-key-of-the-server"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("MY_KEY", OWN)
    monkeypatch.setenv("PRACTICUM_KEYS_FILE", str(tmp_path / "keys.toml"))


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
