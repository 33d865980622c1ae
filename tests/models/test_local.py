"""Local models: their names, the life of their server, and the answers of llama.cpp with a small real model."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from helpers import wait_until
from needs import needs
from refusals import refused

from practicum.agents.annotations import parts_grammar, read_parts
from practicum.models.local import LocalServer, compact_grammar, resolve
from practicum.serve.upstream import open_upstream

WORD = {"type": "string", "maxLength": 12}
TAGS = {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3}
FIELDS: dict[str, Any] = {"name": WORD, "tags": TAGS, "mood": {"enum": ["glad", "sad"]}, "why": WORD}
SCHEMA = {"type": "object", "properties": FIELDS, "required": [*FIELDS], "additionalProperties": False}


def ask(server: LocalServer, text: str, **settings: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 200, "temperature": 0} | settings
    body = {name: value for name, value in body.items() if value is not ...}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
    request = Request(f"{server.url}/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request) as answer:
        reply: dict[str, Any] = json.load(answer)
        return reply


def content(reply: dict[str, Any]) -> str:
    return str(reply["choices"][0]["message"]["content"])


def test_a_missing_or_damaged_model_is_refused(tmp_path: Path) -> None:
    for name in ("local:", "other", "locally", "local:hf:", "local:hf:owner/repo"):
        with refused("model.invalid_name"):
            resolve(name)
    model = tmp_path / "model.gguf"
    with refused("model.load_failed"):
        resolve(f"local:{model}")
    model.write_bytes(b"<html>")
    with refused("model.load_failed"):
        resolve(f"local:{model}")
    model.write_bytes(b"GGUF" + bytes(100))
    assert resolve(f"local:{model}") == model
    needs("xllamacpp", "local")
    with refused("model.load_failed"):
        LocalServer(model, log=tmp_path / "log")


FAKE_XLLAMACPP = """
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

class Server:
    def __init__(self, params):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
                written = min(asked.get("max_tokens", params.n_predict), params.n_ctx // params.n_parallel)
                body = {"default_generation_settings": {"n_ctx": 512}, "usage": {"completion_tokens": written}}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_GET = do_POST

        http = ThreadingHTTPServer((params.hostnames[0], params.port), Handler)
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}).start()
        self.listening_address = f"http://127.0.0.1:{http.server_port}/"
"""
"""Imitation of llama.cpp, which keeps its process alive until it is ended."""


@pytest.mark.parametrize(("limit", "default"), [(None, 1024), (7, 7)])
def test_an_answer_of_a_local_upstream_has_a_limit_unless_the_request_gives_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, default: int
) -> None:
    (tmp_path / "xllamacpp.py").write_text(FAKE_XLLAMACPP)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    upstream = open_upstream(f"local:{tmp_path / 'model.gguf'}", tmp_path, 5.0, limit)
    try:
        server = cast(LocalServer, SimpleNamespace(url=upstream.address, key=upstream.key))
        assert ask(server, "Go on.", max_tokens=...)["usage"]["completion_tokens"] == default
        assert ask(server, "Go on.", max_tokens=2000)["usage"]["completion_tokens"] == 2000
    finally:
        asyncio.run(upstream.close())


# ---- the real model


@pytest.fixture(scope="module")
def model() -> Path:
    return resolve("local")


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    with LocalServer(model, slots=2, window=1024, log=tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.parametrize("labels", [(), ("Used", "Answer")])
@pytest.mark.parametrize("choices", [(), ("amber", "sea blue", 'a "b"')])
def test_a_small_model_answers_in_its_parts_and_cites_few_entries(
    server: LocalServer, labels: tuple[str, ...], choices: tuple[str, ...]
) -> None:
    grammar = parts_grammar(labels, choices)
    text = content(ask(server, "Repeat: [e2], [e3], [e4], [e5], [e6], [e7]", grammar=grammar or ..., temperature=0))
    parts = read_parts(text, labels) if labels else {"Answer": text}
    assert [*parts] == [*(labels or ["Answer"])]
    assert not choices or parts["Answer"] in choices
    assert re.fullmatch(r"none|\[e\d{1,6}\](, \[e\d{1,6}\]){0,2}", parts.get("Used", "none"))


@pytest.mark.local
@pytest.mark.slow
def test_a_grammar_gives_compact_json_within_its_bounds(server: LocalServer) -> None:
    text = content(ask(server, "Describe a ball in JSON.", grammar=compact_grammar(SCHEMA)))
    answer = json.loads(text)
    assert text == json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
    assert [*answer] == [*FIELDS]
    assert max(len(answer["name"]), len(answer["why"])) <= 12
    assert 1 <= len(answer["tags"]) <= 3
    assert {*answer["tags"]} <= {"red", "green"}
    assert answer["mood"] in {"glad", "sad"}


@pytest.mark.local
@pytest.mark.slow
def test_an_answer_ends_at_the_limit_of_the_server_or_of_the_request_and_when_the_server_closes(
    model: Path, tmp_path: Path
) -> None:
    with LocalServer(model, slots=1, window=256, output_tokens=4, log=tmp_path / "log") as server:
        for limit, written in ((..., 4), (9, 9), (2, 2)):
            reply = ask(server, "Count.", max_tokens=limit, ignore_eos=True)
            assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (written, "length")
        reply = ask(server, "more " * 195, max_tokens=5000, ignore_eos=True)
        assert 240 < reply["usage"]["total_tokens"] <= server.window
    server = LocalServer(model, slots=1, log=tmp_path / "log")
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(ask, server, "Count.", max_tokens=4000, ignore_eos=True)
        time.sleep(1)
        server.close()
        assert isinstance(request.exception(), OSError)


LEAVING = """
import pathlib, sys, time
from practicum.agents.annotations import parts_grammar, read_parts
from practicum.models.local import LocalServer
server = LocalServer(pathlib.Path(sys.argv[1]), slots=1, window=256, log=pathlib.Path(sys.argv[2]))
print(server.url, flush=True)
time.sleep(60)
"""


def answers(url: str) -> bool:
    try:
        urlopen(f"{url}/models", timeout=5)
    except OSError as error:
        return isinstance(error, HTTPError)  # it asks for its key
    return True


@pytest.mark.local
@pytest.mark.slow
def test_a_server_ends_with_its_process(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVING, str(model), str(tmp_path / "log")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        url = process.stdout.readline().decode().strip()
        assert answers(url)
        process.kill()
    wait_until(lambda: not answers(url), "the end of the server", 10)
