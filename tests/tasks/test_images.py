"""Tasks with images: the forms in which files have them, and the prompts in which models get them."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from helpers import asynchronous
from refusals import refused

import practicum
from practicum.core.images import data_url, mark
from practicum.core.types import Task
from practicum.tasks.formats import as_json_lines
from practicum.tasks.load import load_tasks
from practicum.testing import Body, ServerOptions, serve

RED = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)  # a red pixel
PIXEL, PHOTO = str(data_url(RED)), "https://example.com/photo.jpg"
ASKED = f"Which colour?\n{mark(PIXEL)}"


def chat(part: dict[str, Any]) -> dict[str, Any]:
    user = {"role": "user", "content": [{"type": "text", "text": "Which colour?"}, part]}
    return {"messages": [user, {"role": "assistant", "content": "red"}]}


FORMS: dict[str, dict[str, Any]] = {
    "chat": chat({"type": "image_url", "image_url": {"url": PIXEL}}),
    "responses": chat({"type": "input_image", "image_url": PIXEL}),
    "anthropic": chat(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL.partition(",")[2]}}
    ),
    "AI SDK": chat({"type": "file", "mediaType": "image/png", "url": PIXEL}),
    "file": {"input": "Which colour?", "target": "red", "image": "pictures/red.png"},
    "address": {"input": "Which colour?", "target": "red", "images": [PIXEL]},
    "datasets server": {"input": "Which colour?", "target": "red", "image": {"src": PIXEL, "height": 1, "width": 1}},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_images_of_a_task_are_read(form: str, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "red.png").write_bytes(RED)
    (tmp_path / "tasks.jsonl").write_text(json.dumps(FORMS[form]))
    [task] = load_tasks(tmp_path / "tasks.jsonl")
    assert (task.input, task.target, task.images) == (ASKED, "red", {mark(PIXEL): PIXEL})
    (tmp_path / "again.jsonl").write_text(as_json_lines([task]))
    assert load_tasks(tmp_path / "again.jsonl") == [task]


@pytest.mark.parametrize("name", ["../secret.png", "missing.png", "text.png"])
def test_only_an_image_in_the_folder_of_the_task_file_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(RED)
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "text.png").write_text("no image")
    (folder / "tasks.jsonl").write_text(json.dumps({"input": "Which colour?", "image": name}))
    with refused("tasks.invalid_field", field="images"):
        load_tasks(folder / "tasks.jsonl")
    (folder / "tasks.jsonl").write_text(json.dumps({"input": "Run it.", "image": "python:3.11"}))
    assert load_tasks(folder / "tasks.jsonl")[0].meta == {"image": "python:3.11"}


def contents(body: Body) -> list[Any]:
    return [part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]]


@asynchronous
async def learned(tasks: list[Task], out: Path, **settings: Any) -> list[Body]:
    """The requests of a run of ACE."""
    requests: list[Body] = []
    async with serve(ServerOptions(responder=lambda body: requests.append(body))) as server:
        await practicum.learn(tasks, out=out, method="ace", model=f"{server.url}#m", scorer="exact", **settings)
    return requests


def test_attempts_and_reflections_get_the_images_of_their_task(tmp_path: Path) -> None:
    images = {mark(address): address for address in (PIXEL, PHOTO)}
    tasks = [
        Task("1", f"Which colour?\n{mark(PIXEL)} or {mark(PHOTO)}", "red", images=images),
        Task("2", "None?", "no"),
    ]
    requests = learned(tasks, tmp_path / "run")
    with_images = [body for body in requests if contents(body)]
    assert len(with_images) >= 2  # an attempt and a reflection
    assert any("response_format" in body for body in with_images)
    for body in with_images:
        parts = contents(body)
        at = next(n for n, part in enumerate(parts) if part["type"] == "image_url")
        assert parts[at - 1]["text"].endswith(mark(PIXEL))
        shown = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        assert shown == [PIXEL, PHOTO]
    assert not any("None?" in str(contents(body)) for body in requests if "response_format" not in body)
    redacted = "".join(json.dumps(body) for body in learned(tasks, tmp_path / "redacted", redact=["all"]))
    assert redacted.count(PIXEL) == len(with_images)
