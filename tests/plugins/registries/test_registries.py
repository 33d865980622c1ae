"""Prompt registries: MLflow itself, and Langfuse's public API as its definition and its handlers describe it
(fern/apis/server/definition/prompts.yml and prompt-version.yml, packages/shared/src/features/prompts)."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from helpers import run_command
from hypothesis import given
from hypothesis import strategies as st
from needs import needs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError
from refusals import refused
from web import served

import practicum
from practicum.plugins.registries.registry import escaped, unescaped
from practicum.session.registries import prompt_text

KEYS = ("pk-lf-1", "sk-lf-secret")

SEED = r"""
## rules

- [e3] If it is about water, answer {{ user.name }}. (+3/-1)
- [e5] (+2/-0)
  Templates:

  1. `{% for x in y %}` and {{{deep}}}
  2. `@@@langfusePrompt:name=absent|label=production@@@`
- [e6] A literal \x7b{ stays, and so does (+1/-0) (+1/-1)

## odd (section)

- [e9] Größe → K2
"""


# ---- Langfuse


def _name(name: str) -> str:
    assert name == name.strip(), name
    if re.search(r"[|<>]|^/|//|/$", name) or name in ("", "new", "metrics", "prompt-detail"):
        raise ValueError("Prompt name cannot contain '|' character")
    return name


def _unreserved(label: str) -> str:
    if label == "latest":
        raise ValueError("Label 'latest' is always assigned to the latest prompt version")
    return label


Label = Annotated[str, Field(min_length=1, max_length=36, pattern=r"^[a-z0-9_\-.]+$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class CreateTextPrompt(Strict):
    name: Annotated[str, AfterValidator(_name)]
    prompt: str
    type: Literal["text"] | None = None
    labels: list[Label] = []
    tags: list[str] | None = None
    config: JsonValue = {}
    commitMessage: Annotated[str, Field(max_length=500)] | None = None


class UpdatePrompt(Strict):
    newLabels: list[Annotated[str, AfterValidator(_unreserved)]]


class GetPrompt(Strict):
    version: Annotated[str, Field(pattern=r"^\d+$")] | None = None
    label: str | None = None
    resolve: Literal["true", "false"] = "true"


class Langfuse:
    """The prompts of one project, and the requests for them."""

    def __init__(self) -> None:
        self.prompts: dict[str, list[dict[str, Any]]] = {}

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        match method, [unquote(part) for part in path.removeprefix("/api/public/v2/prompts").split("/")[1:]]:
            case "POST", []:
                return self.create(CreateTextPrompt.model_validate(body))
            case "GET", [name]:
                return self.get(name, GetPrompt.model_validate(query))
            case "PATCH", [name, "versions", version]:
                labels = UpdatePrompt.model_validate(body).newLabels
                (stored,) = [one for one in self.prompts[name] if one["version"] == int(version)]
                self.move(name, stored, labels)
                return 200, stored
        return 405, {"message": "Method not allowed", "error": "MethodNotAllowedError"}

    def create(self, new: CreateTextPrompt) -> tuple[int, Any]:
        if re.search("@@@langfusePrompt:(.*?)@@@", new.prompt):
            return 400, {"message": "Prompt dependency not found: absent - production", "error": "InvalidRequestError"}
        versions = self.prompts.setdefault(new.name, [])
        if versions and isinstance(versions[-1]["prompt"], list):
            return 400, {"message": "Previous versions have different prompt type.", "error": "InvalidRequestError"}
        stored = {
            "id": "1", "createdAt": "2026-11-30T00:00:00Z", "createdBy": "API", "type": "text", "labels": [],
            **new.model_dump(include={"name", "prompt", "config", "commitMessage"}), "tags": new.tags or [],
            "version": len(versions) + 1, "resolutionGraph": None,
        }  # fmt: skip
        self.move(new.name, stored, [*new.labels, "latest"])
        versions.append(stored)
        return 201, stored

    def get(self, name: str, by: GetPrompt) -> tuple[int, Any]:
        if by.version and by.label:
            return 400, {"message": "Cannot specify both version and label", "error": "InvalidRequestError"}
        for one in self.prompts.get(name, []):
            if str(one["version"]) == by.version or (not by.version and (by.label or "production") in one["labels"]):
                return 200, {**one, "isActive": "production" in one["labels"]}
        return 404, {"message": f"Prompt not found: '{name}'", "error": "LangfuseNotFoundError"}

    def move(self, name: str, to: dict[str, Any], labels: list[str]) -> None:
        for one in self.prompts[name]:
            one["labels"] = [label for label in one["labels"] if label not in labels]
        to["labels"] = [*to["labels"], *labels]


Answer = Callable[[str, str, Mapping[str, str], Any], tuple[int, Any]]


@contextmanager
def langfuse_server(answer: Answer) -> Iterator[str]:
    """A server with the authentication and the errors of Langfuse's API."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            url, body = urlsplit(self.path), self.rfile.read(int(self.headers.get("Content-Length", 0)))
            query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
            status, value = 401, {"message": "Invalid credentials.", "error": "UnauthorizedError"}
            if self.headers["Authorization"] == f"Basic {b64encode(':'.join(KEYS).encode()).decode()}":
                try:
                    status, value = answer(self.command, url.path, query, json.loads(body or b"null"))
                except ValidationError as error:
                    issues = [{"path": e["loc"], "message": e["msg"]} for e in error.errors()]
                    status, value = 400, {"message": "Invalid request data", "error": issues}
            raw = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_POST = do_PATCH = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def langfuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Langfuse]:
    registry = Langfuse()
    with langfuse_server(registry.answer) as url:
        monkeypatch.setenv("LANGFUSE_BASE_URL", url)
        monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", KEYS[0])
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", KEYS[1])
        yield registry


# ---- spaces


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A space in the folder `support`. Version 1 has one more entry than version 0; version 2 has one more vote."""
    (tmp_path / "seed.md").write_text(SEED, encoding="utf-8")
    run_command(["space", "import", "seed.md", "--out", "support"], tmp_path)

    async def work() -> None:
        async with practicum.open(tmp_path / "support") as space:
            await space.edit(practicum.Add("rules", "A later rule."))
            await space.edit(practicum.Vote("e3", helpful=1))

    practicum.run_sync(work())
    return tmp_path / "support"


def name(space: Path, version: int, push: str, label: str = "prod") -> dict[str, Any]:
    done = run_command(["space", "name", space, label, version, "--push", push, "--json"], space.parent)
    assert "Traceback" not in done.err
    return done.json


def entries(context: practicum.Context) -> list[tuple[str, str, str]]:
    return [(entry.id, entry.section, entry.text) for entry in context]


def read(address: str) -> list[tuple[str, str, str]]:
    return entries(practicum.load_context(address))


# ---- both registries


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    needs("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    from mlflow import MlflowClient

    return MlflowClient()


def write_langfuse(registry: Langfuse, text: str | None, config: dict[str, Any]) -> None:
    """Change the text and the settings that have the label, as a person does in the page of the registry."""
    labelled = next(one for one in registry.prompts["support"] if "prod" in one["labels"])
    text = labelled["prompt"] if text is None else text
    registry.create(CreateTextPrompt(name="support", prompt=text, labels=["prod"], config=config))


def write_mlflow(client: Any, text: str | None, config: dict[str, Any]) -> None:
    text = client.get_prompt_version("support", "prod").template if text is None else text
    version = client.register_prompt("support", text, model_config=config)
    client.set_prompt_alias("support", "prod", version.version)


@pytest.mark.parametrize("registry", ["langfuse", pytest.param("mlflow", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_a_name_is_a_label_of_a_prompt_and_its_versions_have_different_texts(
    registry: str, space: Path, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(registry)
    write = write_langfuse if registry == "langfuse" else write_mlflow
    versions = [entries(practicum.load_context(space, version)) for version in (0, 1)]
    assert name(space, 0, registry) == {
        "run": str(space), "names": {"prod": 0}, "pushed": {"registry": registry, "prompt": "support", "version": 1},
    }  # fmt: skip
    assert read(f"{registry}:support@prod") == versions[0]
    # The text of version 1 is new, all later texts are known.
    numbers = [name(space, version, registry)["pushed"]["version"] for version in (0, 1, 2, 0, 2, 0)]
    assert numbers == [1, 2, 2, 1, 2, 1]
    assert [read(f"{registry}:support{version}") for version in ("@prod", "@1", "@2", "")] == [
        versions[0], versions[0], versions[1], versions[1],
    ]  # fmt: skip

    # A person changes the settings of the model: the label stays on the same text.
    write(server, None, {"temperature": 0.5})
    assert name(space, 0, registry)["pushed"]["version"] == 3
    # A person changes a text, removes an entry and adds an entry.
    lines = prompt_text(practicum.load_context(space, 0)).replace("water", "ice").splitlines()
    text = "\n".join([*(line for line in lines if "[e6]" not in line and "langfusePrompt" not in line), "- New."])
    write(server, text, {"temperature": 0.5})
    changed = {id: text for id, _, text in read(f"{registry}:support@prod")}
    assert changed == {
        "e3": "If it is about ice, answer {{ user.name }}.", "e5": "Templates:\n\n1. `{% for x in y %}` and {{{deep}}}",
        "e9": "Größe → K2", "e10": "New.",
    }  # fmt: skip
    difference = run_command(["space", "diff", space, f"{registry}:support@prod", "--json"], space.parent).json
    assert [len(difference[part]) for part in ("added", "removed", "changed")] == [1, 2, 2]
    imported = run_command(["space", "import", f"{registry}:support@prod", "--out", "back", "--json"], space.parent)
    assert (imported.json["entries"], imported.json["left_out"]) == (4, [])
    # A text that is new again keeps the settings of the label.

    async def add() -> int:
        async with practicum.open(space.parent / "back") as back:
            await back.edit(practicum.Add("rules", "The newest rule."))
            return back.name("prod", push=f"{registry}:support")

    assert practicum.run_sync(add()) == 1
    if registry == "langfuse":
        stored = server.prompts["support"][-1]
        assert (stored["version"], stored["config"]) == (5, {"temperature": 0.5})
        assert [label for label in stored["labels"] if not label.startswith("practicum-")] == ["prod", "latest"]
    else:
        stored = server.get_prompt_version("support", "prod")
        assert (stored.version, stored.model_config) == (5, {"temperature": 0.5})
        # Learned text is neither a variable nor a program.
        assert stored.variables == set()
        assert stored.format() == stored.template


@given(st.lists(st.sampled_from([*"{}%@\\x7b405c", "langfusePrompt"])).map("".join))
def test_escaped_text_has_no_template_syntax_and_comes_back(text: str) -> None:
    assert not re.search(r"\{\{|\{%|@@@langfusePrompt", escaped(text))
    assert unescaped(escaped(text)) == text
    assert escaped("a plain { text } of 100% with \\n") == "a plain { text } of 100% with \\n"


# ---- refusals


def failed(space: Path, push: str, label: str = "prod") -> str:
    """Push version 0, and return the code of the error. The space keeps the name, and no key is printed."""
    done = run_command(["space", "name", space, label, 0, "--push", push, "--json"], space.parent)
    assert done.json["names"][label] == 0
    assert KEYS[1] not in done.out + done.err
    assert done.line
    return done.json["error"]["code"]


def closed_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://user:sk-lf-secret@127.0.0.1:{one.getsockname()[1]}"


def test_langfuse_that_refuses_or_does_not_answer_is_one_line_and_the_command_can_be_repeated(
    space: Path, langfuse: Langfuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = {name: value for name, value in os.environ.items() if name.startswith("LANGFUSE")}
    for label in ("Prod", "latest", "x" * 37):
        assert failed(space, "langfuse", label) == "registry.refused"
    for prompt in ("a|b", "a//b", "\udc80"):
        assert failed(space, f"langfuse:{prompt}") == "registry.refused"
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-other")
    assert failed(space, "langfuse") == "registry.key_refused"
    monkeypatch.delenv("LANGFUSE_SECRET_KEY")
    assert failed(space, "langfuse") == "registry.key_refused"
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", KEYS[1])
    forbidden = {"message": "Access denied", "error": "ForbiddenError"}
    for status, body, code in (
        (403, forbidden, "registry.key_refused"), (500, forbidden, "registry.unreachable"),
        (429, forbidden, "registry.unreachable"), (200, ["no prompt"], "registry.unreachable"),
    ):  # fmt: skip
        with langfuse_server(lambda *_, status=status, body=body: (status, body)) as url:
            monkeypatch.setenv("LANGFUSE_BASE_URL", url)
            assert failed(space, "langfuse") == code, status
    for address in (closed_port(), "no address", "http://[wrong"):
        monkeypatch.setenv("LANGFUSE_BASE_URL", address)
        assert failed(space, "langfuse") == "registry.unreachable", address
    with served({}) as (url, _):
        monkeypatch.setenv("LANGFUSE_BASE_URL", url)
        with refused("registry.unreachable"):
            practicum.load_context("langfuse:support")
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    assert failed(space, "langfuse") == "settings.invalid"
    monkeypatch.delenv("SSL_CERT_FILE")
    assert langfuse.prompts == {}
    monkeypatch.setenv("LANGFUSE_BASE_URL", working["LANGFUSE_BASE_URL"])
    assert name(space, 0, "langfuse:team/support")["pushed"]["version"] == 1
    assert [*langfuse.prompts] == ["team/support"]


def test_a_prompt_that_is_missing_or_holds_no_playbook_is_refused(space: Path, langfuse: Langfuse) -> None:
    assert failed(space, "none") == "registry.unknown"
    for arguments in (["--push", "langfuse"], ["prod", "--delete", "--push", "langfuse"]):
        done = run_command(["space", "name", space, *arguments, "--json"], space.parent)
        assert done.json["error"]["code"] == "settings.conflict"
    with refused("playbook.not_found"):
        practicum.load_context("none:support@prod")
    with refused("registry.not_found"):
        practicum.load_context("langfuse:support@prod")
    langfuse.create(CreateTextPrompt(name="support", prompt="Answer {{question}}."))
    with refused("playbook.empty"):
        practicum.load_context("langfuse:support")
    langfuse.prompts["support"][0]["prompt"] = [{"role": "system", "content": "- A rule."}]
    with refused("registry.refused"):
        practicum.load_context("langfuse:support")
    assert failed(space, "langfuse") == "registry.refused"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_mlflow_that_refuses_or_does_not_answer_is_one_line_and_the_command_can_be_repeated(
    space: Path, mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failed(space, "mlflow:a b") == "registry.refused"
    assert failed(space, "mlflow", "v1") == "registry.refused"
    mlflow.create_registered_model("model")
    assert failed(space, "mlflow:model") == "registry.refused"
    with refused("registry.not_found"):
        practicum.load_context("mlflow:none@prod")
    mlflow.register_prompt("chat", [{"role": "user", "content": "- A rule."}])
    with refused("registry.refused"):
        practicum.load_context("mlflow:chat")
    working = os.environ["MLFLOW_TRACKING_URI"]
    for address in (closed_port(), "postgresql+none://localhost/db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert failed(space, "mlflow") == "registry.unreachable", address
    with served({"/api/2.0/mlflow/registered-models/get": b""}, status=401) as (url, _):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        assert failed(space, "mlflow") == "registry.key_refused"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", working)
    assert name(space, 0, "mlflow")["pushed"]["version"] == 1
