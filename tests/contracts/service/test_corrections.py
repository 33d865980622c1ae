"""Corrections as entries (docs/serve/outcomes.md): corrections and notes are entries of the space for commands and
programs, with a running service and without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from service_kit import QUESTION, RIGHT, Client, Service, code_of, command, run_json, slow, until

import practicum

NOTE = "Cards are blocked at once."


def corrections_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in run_json("show", folder)["corrections"]}


def test_corrections_are_entries_that_are_exported_edited_and_imported_with_their_history(
    space: Client, folder: Path, tmp_path: Path
) -> None:
    id = space.ask().interaction
    space.report(id, target=RIGHT, comment="too slow")
    ((name, entry),) = corrections_of(folder).items()
    assert (entry["section"], entry["text"], entry["trust"]) == ("corrections", QUESTION, "own")
    assert entry["data"] == {"answer": RIGHT, "comment": "too slow"}
    assert entry["sources"] == [f"task:{id}"]
    note, file = space.post("/v1/notes", text=NOTE)["id"], tmp_path / "playbook.md"
    run_json("export", folder, "--output", file)
    text = file.read_text()
    assert all(part in text for part in (RIGHT, NOTE, f"[{name}]", f"[{note}]"))
    run_json("space", "import", file, "--out", tmp_path / "run")
    sections = {entry["section"] for entry in run_json("show", tmp_path / "run")["entries"]}
    assert sections >= {"corrections", "general notes"}
    file.write_text(f"{text}\n## rules\n\n- A rule.\n")
    assert run_json("space", "edit", folder, "--file", file, "--yes")["version"] == 1
    assert [*corrections_of(folder)] == [name, note]
    file.write_text(text.replace(RIGHT, "the team of tomorrow"))
    assert code_of("space", "edit", folder, "--file", file, "--yes") == "edit.refused"
    space.report(space.ask(), target="the team of tomorrow")
    (second,) = corrections_of(folder).keys() - {note}
    history = run_json("show", folder, "--entry", name)
    assert [(event["op"], event["reason"]) for event in history["events"]] == [
        ("add", ""), ("delete", f"replaced by {second}")
    ]  # fmt: skip
    assert history["now"] is None
    # A version that agents do not see is exported without the corrections in effect.
    run_json("space", "name", folder, "prod", 0)
    assert "tomorrow" in run_json("export", folder)["text"]
    assert "tomorrow" not in run_json("export", f"{folder}@prod")["text"]


def test_a_waiting_correction_is_reviewed_by_commands_and_programs(space: Client, folder: Path) -> None:
    user = space.as_user("anna")
    user.report(user.ask(), target=RIGHT)
    (waits,) = run_json("review", folder)["reviews"]
    id = waits["id"]
    assert (waits["state"], waits["trust"]) == ("pending", "user")
    assert [edit["section"] for edit in waits["edits"]] == ["corrections"]
    assert id not in corrections_of(folder)
    assert run_json("review", folder, "--approve", id)["approved"] == [id]
    until(lambda: RIGHT in space.shown())
    assert corrections_of(folder)[id]["trust"] == "user"
    done = command("review", folder, "--approve", id, "--json")
    assert (done.json["error"]["code"], f"--reject {id}" in done.line) == ("review.decided", True)
    assert run_json("review", folder, "--reject", id, "--reason", "it is wrong")["rejected"] == [id]
    until(lambda: RIGHT not in space.shown())
    assert corrections_of(folder) == {}
    listed = space.get("/v1/corrections", state="rejected")["corrections"]
    assert [one["id"] for one in listed] == [id]
    user.report(user.ask("Which team handles loans?"), target=RIGHT)

    async def decide() -> str:
        async with practicum.open(folder) as opened:
            (one,) = opened.pending()
            await opened.approve([one.id])
            assert opened.pending() == []
            await opened.reject([one.id], "it is wrong")
        return str(one.id)

    assert practicum.run_sync(decide()) not in (id, *corrections_of(folder))


def test_a_correction_is_removed_by_its_id_and_by_its_source(keyed: Service) -> None:
    space = keyed.client.new_space()
    folder = keyed.store / "spaces" / space.space
    space.report(space.ask(), target="the first team")
    for option in ("--task", "--entry"):
        id = space.ask().interaction
        space.report(id, target="the quetzal team")
        (name,) = corrections_of(folder)
        done = run_json("space", "forget", folder, option, name if option == "--entry" else id, "--yes")
        assert done["left"] == 0
        assert name in {entry["id"] for entry in done["removed"]}
        until(lambda: "quetzal" not in space.shown())
        assert not any("quetzal" in str(row) for row in corrections_of(folder).values())
        if option == "--task":
            # The correction that it replaced holds again.
            until(lambda: "the first team" in space.shown())


@pytest.mark.parametrize("answer", [pytest.param("quetzals", marks=slow), "the team of the quetzals"])
def test_no_word_of_a_reviewed_correction_is_left_after_its_removal(answer: str, keyed: Service) -> None:
    space = keyed.client.new_space()
    folder, user = keyed.store / "spaces" / space.space, space.as_user("anna")
    user.report(user.ask(), target=answer)
    (waits,) = run_json("review", folder)["reviews"]
    run_json("review", folder, "--approve", waits["id"])
    assert run_json("space", "forget", folder, "--entry", waits["id"], "--yes")["left"] == 0
    assert run_json("review", folder, "--state", "approved")["reviews"] == []
    until(lambda: answer not in space.shown())


def seen(query: str, context: str) -> dict[str, Any]:
    """An agent that answers with its context."""
    return {"answer": context or "nothing"}


def test_a_query_is_answered_with_corrections_and_an_evaluation_is_not(space: Client, folder: Path) -> None:
    space.report(space.ask(), target=RIGHT)
    space.post("/v1/notes", text=NOTE)
    parts = practicum.Parts(agent=seen, scorer=lambda task, answer: 1.0)

    async def ask() -> list[practicum.Answered]:
        async with practicum.open(folder, method="episodes", parts=parts) as opened:
            return [await opened.ask(QUESTION, learn=learns) for learns in (False, True)]

    # Corrections hold the right answers of requests that may be the tasks of an evaluation.
    tasks = [practicum.Task("a", QUESTION, RIGHT)]
    work = practicum.evaluate(tasks, folder, parts=practicum.Parts(agent=seen), scorer="contains")
    assert practicum.run_sync(work).score == 0.0
    plain, learned = practicum.run_sync(ask())
    for answered in (plain, learned):
        assert RIGHT in answered.text
        assert NOTE in answered.text
        assert len(answered.corrections) == len(answered.as_json()["corrections"]) == 2
    assert (plain.learned, learned.learned is None) == (None, False)


def test_a_note_is_shown_until_its_last_day(space: Client) -> None:
    today = datetime.now(UTC).date()
    days = {"ended": today - timedelta(days=1), "last": today + timedelta(days=1), "endless": None}
    for name, day in days.items():
        body = {"text": f"The {name} sale of bicycles has 20% off.", "about": "bicycles"}
        space.post("/v1/notes", **body, **({} if day is None else {"until": day.isoformat()}))
    shown = space.shown("What do bicycles cost?")
    assert {name: f"The {name} sale" in shown for name in days} == {"ended": False, "last": True, "endless": True}
    assert space.get("/v1/corrections", state="live")["total"] == 3
    space.send("POST", "/v1/notes", {"text": "x", "until": "soon"}).refused("request.malformed")
