"""`practicum serve` from start to stop, with `key`, `space report`, `mcp` and `store`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from needs import needs

from .conftest import FIRST
from .kit import Model, Shell, all_bytes, started

QUESTION = "Who handles refunds?"
RIGHT = "The Falcon team."


class Service:
    """A running service."""

    def __init__(self, shell: Shell, address: str) -> None:
        self.shell, self.address = shell, address

    def post(self, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request(self.address + path, json.dumps(body).encode(), {"content-type": "application/json", **named})
        with urlopen(request, timeout=60) as answer:
            return dict(json.loads(answer.read()))

    def ask(self, question: str, **headers: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": question}]
        return self.post("/v1/chat/completions", {"model": "sim", "messages": messages, "temperature": 0}, **headers)


def refused(ask: Callable[[], object]) -> int:
    """The status with which requests are refused, sooner or later."""
    deadline = monotonic() + 60
    while monotonic() < deadline:
        try:
            ask()
        except HTTPError as error:
            return error.code
    return 0


@pytest.fixture
def service(shell: Shell, model: Model) -> Iterator[Service]:
    """`practicum serve`, before the model server. It is stopped by Ctrl-C."""
    with started(shell.folder, "serve", "--upstream", model.name, "--port", 0, "store", "--json") as process:
        about = json.loads(process.line())
        assert about["spaces"] == ["default"]
        assert about["store"] == "store"
        yield Service(shell, about["address"])
        assert process.end(signal.SIGINT).code == 0


@pytest.mark.slow
def test_a_correction_holds_from_the_next_request_on(service: Service, model: Model) -> None:
    """A report takes the provider's own response id, a session, or last; keys are made while the service runs."""
    shell, at = service.shell, service.address
    first = service.ask(QUESTION, x_practicum_session="1")
    assert RIGHT not in model.texts[-1]
    report = shell.json(f"space report {at} {first['id']} --score 0")
    assert (report["status"], report["score"]) == ("kept", 0.0)
    (last,) = shell.json(f"space interactions {at}")["interactions"]
    assert (last["question"], last["session"]) == (QUESTION, "1")
    report = shell.json(f"space report {at} --session 1 --target '{RIGHT}' --comment 'A bird.'")
    assert report["interaction"] == last["id"]
    assert shell.json(f"space report {at} last --target '{RIGHT}'")["status"] == "repeated"
    service.ask(QUESTION, x_practicum_session="2")
    assert RIGHT in model.texts[-1]
    assert len(model.bodies) == 2
    for wrong in ("nothing --score 1", "", "--session 9 --score 1", "x", "last --score 7"):
        shell.fails(f"space report {at} {wrong}")
    key = shell.json("key add ann --grant ask --store store")["key"]
    assert refused(lambda: service.ask(QUESTION)) == 401  # within a second
    assert service.ask(QUESTION, authorization=f"Bearer {key}")["choices"]
    shell.json("key remove ann --store store")
    shell.fails("serve store --upstream x --port 0")
    # The keys of clients are not sent to another machine over plain http.
    shell.fails("serve store --upstream http://192.0.2.1:8000/v1#m --pass-key --port 0", error="model.unsafe_key")


def test_keys_are_created_listed_and_removed_and_stored_as_digests(shell: Shell) -> None:
    created = shell.json("key add ann --grant ask --grant report --space shop --days 7 --per-minute 60")
    parts = ("name", "space", "roles", "per_minute")
    assert [created[part] for part in parts] == ["ann", "shop", ["ask", "report"], 60]
    assert created["expires"] is not None
    assert created["key"].encode() not in all_bytes(shell / "practicum-store")
    shell.json("key add ann --grant admin")
    listed = shell.json("key list")["keys"]
    assert {(key["name"], key["space"]) for key in listed} == {("ann", "shop"), ("ann", "")}
    assert not any(created["key"] in json.dumps(key) for key in listed)
    shell.fails("key add ann --grant admin", error="key.duplicate")
    shell.fails("key add bob --grant boss", error="key.invalid")
    shell.fails("key list --store nowhere", error="store.not_found")
    assert not (shell / "nowhere").exists()
    shell.json("key remove ann --space shop")
    shell.fails("key remove ann --space shop", error="key.unknown")
    assert [key["space"] for key in shell.json("key list")["keys"]] == [""]


def test_the_configuration_of_a_client_of_mcp_is_printed(shell: Shell) -> None:
    value = shell.json("mcp --store memory --space shop --grant ask")["mcpServers"]["practicum"]
    assert Path(value["command"]).is_absolute()
    assert value["args"][value["args"].index("--store") + 1] == str((shell / "memory").absolute())
    assert value["args"][value["args"].index("--space") + 1] == "shop"
    assert not (shell / "memory").exists()


def test_mcp_refuses_missing_and_conflicting_options(shell: Shell) -> None:
    for options, error in (
        ("", ""), ("--store a --service http://x", ""), ("--service http://x --learner local", ""),
        ("--store a --key-env X", ""), ("--store postgresql://h/d", ""), ("--service http://x --key-env NOT_SET", ""),
        ("--store a --space '../b'", "space.invalid_name"), ("--store a --learner gpt", "model.unknown"),
    ):  # fmt: skip
        shell.fails(f"mcp {options}", error=error)
    assert not (shell / "a").exists()


def test_a_run_is_copied_into_another_folder(shell: Shell) -> None:
    value = shell.json("store copy runs/first copied")
    assert value["version"] == 11
    assert shell("export copied --format json").out == shell("export runs/first --format json").out
    assert shell.json("show copied --attempts")["attempts"] == shell.json("show runs/first --attempts")["attempts"]
    shell.fails("store copy runs/first copied", code=1)


@pytest.mark.slow
@pytest.mark.postgres
def test_runs_in_a_database_are_used_by_their_folder(shell: Shell, postgresql: str) -> None:
    value = shell.json(FIRST.replace("runs/first", "shared"), "--store", postgresql)
    assert value["scores"] == {"before": 0.25, "test": 1.0}
    (name,) = shell.json("store list", postgresql)["runs"]
    assert shell("export shared --format json").out == shell("export runs/first --format json").out
    password = re.search(r":([^:@/]+)@", postgresql)
    assert password is None or password[1].encode() not in all_bytes(shell / "shared")
    shell.json("store connect", postgresql, name, "elsewhere")
    assert shell("export elsewhere").out == shell("export shared").out
    assert shell.json("store copy runs/first there --store", postgresql)["version"] == 11
    shell.fails("store remove", postgresql, name)
    assert shell.json("store remove", postgresql, name, "--yes")["name"] == name
    shell.fails("show elsewhere", code=2)


def test_a_database_that_cannot_be_reached_is_one_line(shell: Shell) -> None:
    needs("psycopg", "postgres")
    shell.fails("store list nowhere")
    for typed in ("store list URL", "store connect URL run new", "store remove URL run --yes"):
        shell.fails(typed.replace("URL", "postgresql://127.0.0.1:1/x"), code=1)
    assert not (shell / "new").exists()
