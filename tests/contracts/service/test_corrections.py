"""docs/service.md, "Corrections, and whose word holds": corrections and notes are entries of the space, for every
command, beside the service and without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from service_kit import QUESTION, RIGHT, Client, Service, command, new_space, told, until

import practicum


def held(folder: Path) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in told("show", folder)["corrections"]}


def test_they_are_entries_with_sources_trust_and_history(space: Client, folder: Path) -> None:
    id = space.ask().interaction
    space.report(id, target=RIGHT, comment="too slow")
    ((name, entry),) = held(folder).items()
    assert (entry["section"], entry["text"], entry["trust"]) == ("corrections", QUESTION, "own")
    assert entry["data"] == {"answer": RIGHT, "comment": "too slow"}
    assert entry["sources"] == [f"task:{id}"]
    space.report(space.ask(), target="the team of tomorrow")
    ((second, _),) = held(folder).items()
    history = told("show", folder, "--entry", name)
    assert [(event["op"], event["reason"]) for event in history["events"]] == [
        ("add", ""), ("delete", f"replaced by {second}")
    ]  # fmt: skip
    assert history["now"] is None


def test_an_export_has_them_and_another_space_can_begin_with_it(space: Client, folder: Path, tmp_path: Path) -> None:
    space.report(space.ask(), target=RIGHT)
    note = space.post("/v1/notes", text="Cards are blocked at once.")["id"]
    exported = told("export", folder, "--format", "markdown")["text"]
    assert RIGHT in exported
    assert "Cards are blocked at once." in exported
    (tmp_path / "playbook.md").write_text(exported)
    told("space", "import", tmp_path / "playbook.md", "--out", tmp_path / "run")
    assert {entry["section"] for entry in told("show", tmp_path / "run")["entries"]} >= {"corrections", "general notes"}
    assert note in held(folder)


def test_what_waits_is_reviewed_on_the_command_line_and_holds_in_the_service(space: Client, folder: Path) -> None:
    user = space.as_user("anna")
    user.report(user.ask(), target=RIGHT)
    (waits,) = told("review", folder)["reviews"]
    assert (waits["state"], waits["trust"]) == ("pending", "user")
    assert [edit["section"] for edit in waits["edits"]] == ["corrections"]
    assert waits["id"] not in held(folder)
    assert told("review", folder, "--approve", waits["id"])["approved"] == [waits["id"]]
    until(lambda: RIGHT in space.shown())
    assert held(folder)[waits["id"]]["trust"] == "user"
    done = told("review", folder, "--reject", waits["id"], "--reason", "it is wrong")
    assert done["rejected"] == [waits["id"]]
    until(lambda: RIGHT not in space.shown())
    assert held(folder) == {}
    listed = space.get("/v1/corrections", state="rejected")["corrections"]
    assert [one["id"] for one in listed] == [waits["id"]]


def test_a_program_approves_and_rejects_them(space: Client, folder: Path) -> None:
    user = space.as_user("anna")
    user.report(user.ask(), target=RIGHT)

    async def decide() -> list[str]:
        async with practicum.open(folder) as space:
            (one,) = space.pending()
            await space.approve([one.id])
            assert space.pending() == []
            await space.reject([one.id], "it is wrong")
        return [one.id]

    ids = practicum.run_sync(decide())
    assert not {*ids} & held(folder).keys()


@pytest.mark.parametrize("how", ["entry", "source"])
def test_one_that_is_forgotten_is_gone_from_the_service_and_the_one_before_holds_again(
    how: str, keyed: Service
) -> None:
    space = new_space(keyed.client)
    folder = keyed.store / "spaces" / space.space
    space.report(space.ask(), target="the first team")
    id = space.ask().interaction
    space.report(id, target="the quetzal team")
    (name,) = held(folder)
    given = {"entry": ("--entry", name), "source": ("--task", id)}[how]
    done = told("space", "forget", folder, *given, "--yes")
    assert done["left"] == 0
    assert name in {entry["id"] for entry in done["removed"]}
    until(lambda: "quetzal" not in space.shown())
    assert not any("quetzal" in str(row) for row in held(folder).values())
    if how == "source":
        until(lambda: "the first team" in space.shown())


@pytest.mark.parametrize("answer", ["quetzals", "the team of the quetzals"])
def test_of_one_that_was_reviewed_and_is_forgotten_no_word_is_left(answer: str, keyed: Service) -> None:
    space = new_space(keyed.client)
    folder = keyed.store / "spaces" / space.space
    user = space.as_user("anna")
    user.report(user.ask(), target=answer)
    (waits,) = told("review", folder)["reviews"]
    told("review", folder, "--approve", waits["id"])
    assert told("space", "forget", folder, "--entry", waits["id"], "--yes")["left"] == 0
    assert told("review", folder, "--state", "approved")["reviews"] == []
    until(lambda: answer not in space.shown())


def test_one_of_another_letter_is_unknown(space: Client, folder: Path) -> None:
    for words in (("show", folder, "--entry", "c99"), ("space", "forget", folder, "--entry", "c99", "--yes")):
        done = command(*words, "--json")
        assert json.loads(done.stdout)["error"]["code"] == "entry.unknown"


def test_a_program_is_shown_them_from_its_next_query_on(space: Client, folder: Path) -> None:
    """Beside the service, which takes them."""

    async def shown() -> list[practicum.Shown]:
        async with practicum.open(folder) as opened:
            before = await opened.show(QUESTION)
            space.report(space.ask(), target=RIGHT)
            space.post("/v1/notes", text="Cards are blocked at once.")
            after = await opened.show(QUESTION)
            (id,) = [one.id for one in opened.corrections if one.section == "corrections"]
            space.post("/v1/review", id=id, decision="reject")
            return [before, after, await opened.show(QUESTION)]

    before, after, withdrawn = practicum.run_sync(shown())
    assert (before.corrections, withdrawn.corrections) == ((), after.corrections[:1])
    assert len(after.corrections) == 2
    assert RIGHT in after.text
    assert "Cards are blocked at once." in after.text
    assert RIGHT not in before.text + withdrawn.text
    # What was shown is known of the interaction, as of one of the service.
    until(lambda: after.id in {one["id"] for one in space.get("/v1/interactions", limit=5)["interactions"]})


@pytest.mark.parametrize("user", [None, "anna"])
def test_what_a_program_reports_corrects_as_what_is_sent_to_the_service(
    user: str | None, space: Client, folder: Path
) -> None:
    async def report() -> tuple[practicum.Shown, practicum.Shown]:
        async with practicum.open(folder) as opened:
            await opened.report(await opened.show(QUESTION), answer="a wrong team", target="the first team")
            shown = await opened.show(QUESTION, user=user)
            await opened.report(shown, answer="the first team", target=RIGHT, user=user)
            return shown, await opened.show(QUESTION)

    before, after = practicum.run_sync(report())
    assert "the first team" in before.text
    assert (RIGHT in after.text) == (user is None)
    holds = "the first team" if user else RIGHT

    def live() -> list[str]:
        return [one["target"] for one in space.get("/v1/corrections", state="live")["corrections"]]

    until(lambda: live() == [holds])
    assert len(space.get("/v1/corrections", state="waiting")["corrections"]) == bool(user)
    assert holds in space.shown()


def seen(query: str, context: str) -> dict[str, Any]:
    """An agent that answers with what it is shown."""
    return {"answer": context or "nothing"}


@pytest.mark.parametrize("learns", [False, True])
def test_an_agent_that_is_asked_sees_them_as_one_at_work(learns: bool, space: Client, folder: Path) -> None:
    space.report(space.ask(), target=RIGHT)
    space.post("/v1/notes", text="Cards are blocked at once.")

    async def ask(query: str) -> practicum.Answered:
        parts = practicum.Parts(agent=seen, scorer=lambda task, answer: 1.0)
        async with practicum.open(folder, method="episodes", parts=parts) as opened:
            return await opened.ask(query, learn=learns)

    answered = practicum.run_sync(ask(QUESTION))
    assert RIGHT in answered.text
    assert "Cards are blocked at once." in answered.text
    assert len(answered.corrections) == len(answered.as_json()["corrections"]) == 2
    assert (answered.learned is not None) == learns


def test_an_evaluation_measures_what_was_learned_without_them(space: Client, folder: Path, tmp_path: Path) -> None:
    """They hold the right answers of requests that may be the tasks of the evaluation."""
    space.report(space.ask(), target=RIGHT)
    tasks = [practicum.Task("a", QUESTION, RIGHT)]
    parts = practicum.Parts(agent=seen)
    result = practicum.run_sync(practicum.evaluate(tasks, folder, parts=parts, scorer="contains"))
    assert result.score == 0.0


def test_an_export_is_edited_around_them(space: Client, folder: Path, tmp_path: Path) -> None:
    space.report(space.ask(), target=RIGHT)
    ((name, _),) = held(folder).items()
    file = tmp_path / "playbook.md"
    told("export", folder, "--output", file)
    text = file.read_text()
    assert f"[{name}]" in text
    file.write_text(f"{text}\n## rules\n\n- Cards are blocked at once.\n")
    assert told("space", "edit", folder, "--file", file, "--yes")["version"] == 1
    assert [*held(folder)] == [name]
    file.write_text(text.replace(RIGHT, "the team of tomorrow"))
    done = command("space", "edit", folder, "--file", file, "--yes", "--json")
    assert json.loads(done.stdout)["error"]["code"] == "edit.refused"


def test_one_that_was_approved_is_undone_by_its_rejection(space: Client, folder: Path) -> None:
    anna = space.as_user("anna")
    anna.report(anna.ask(), target=RIGHT)
    space.post("/v1/review", id="c1", decision="approve")
    done = command("review", folder, "--approve", "c1", "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["code"], "--reject c1" in error["message"]) == ("review.decided", True)
