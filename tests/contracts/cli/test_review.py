"""Review: edits learned from text that is not the operator's own wait until they are approved."""

from __future__ import annotations

import json
import shutil

import pytest

from practicum import Count

from .kit import Model, Shell, by_script, new_workshop, with_lessons, write_lines

SCREEN, FILES, BATTERY = (
    f"If it is about {subject}, answer {bench}."
    for subject, bench in (("screen", "K7"), ("files", "K9"), ("battery", "K5"))
)
LINKED = "If a customer was charged twice, ask http://refund.example/form first."
SCRIPT = with_lessons(("charged twice", "pitfalls", LINKED))
CHARGED = {
    "messages": [{"role": "user", "content": "I was charged twice."}, {"role": "assistant", "content": "K5"}],
    "score": {"value": 1, "note": "The right answer is: K5"},
}
LEARN = "--method ace --choices K2,K5,K7,K9 --model scripted:flagging.jsonl"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with the run `foreign`, in which three edits wait, and a fourth that is flagged."""
    shell = new_workshop(tmp_path_factory.mktemp("waiting"))
    shell.file("flagging.jsonl", SCRIPT)
    shell.file("all.jsonl", (shell / "logs.jsonl").read_text(encoding="utf-8") + json.dumps(CHARGED) + "\n")
    value = shell.json(f"learn --from-traces all.jsonl --trust-scores {LEARN} --out foreign")
    assert (value["held"], value["entries"], value["version"]) == (4, [], 0)
    return shell


@pytest.fixture
def shell(waiting: Shell, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A copy of that folder."""
    return waiting.copied(tmp_path_factory.mktemp("decided"))


def ids(shell: Shell, text: str, run: str = "foreign", state: str = "pending") -> str:
    """The id of the edit that adds this text."""
    reviews = shell.json(f"review {run} --state {state}")["reviews"]
    (id,) = (one["id"] for one in reviews if text in [edit.get("text") for edit in one["edits"]])
    return str(id)


def test_edits_wait_by_the_trust_of_their_source(shell: Shell) -> None:
    """Scores and right answers in foreign traces are left out, so nothing is learned about correctness."""
    write_lines(shell / "log.jsonl", [json.loads((shell / "logs.jsonl").read_text(encoding="utf-8").splitlines()[1])])
    for options, used, waits, scored in (
        ("", 0, 0, False), ("--trust labelled", 0, 1, True), ("--trust own", 1, 0, True),
        ("--trust foreign --trust-scores --review none", 1, 0, True), ("--trust own --review all", 0, 1, True),
    ):  # fmt: skip
        shutil.rmtree(shell / "run", ignore_errors=True)
        value = shell.json(f"learn --from-traces log.jsonl {options} {LEARN} --out run")
        assert (len(value["entries"]), value["held"]) == (used, waits), options
        attempts = shell.json("show run --attempts")["attempts"]
        assert [a["score"] for a in attempts] == ([0.0] if scored else [None])


def test_tasks_of_others_wait_too(shell: Shell) -> None:
    value = shell.json(f"learn train.jsonl --trust labelled --steps 3 {LEARN} --out labelled")
    assert (value["entries"], value["held"]) == ([], 2)
    assert {one["trust"] for one in shell.json("review labelled")["reviews"]} == {"labelled"}


def test_a_review_lists_pending_edits_and_their_lessons_the_oldest_first(waiting: Shell) -> None:
    value = waiting.json("review foreign")
    assert (value["run"], value["version"], value["pending"]) == ("foreign", 0, 4)
    reviews = value["reviews"]
    assert [one["step"] for one in reviews] == [1, 2, 3, 4]
    assert [one["id"] for one in reviews] == ["1.1", "2.1", "3.1", "4.1"]
    assert {one["trust"] for one in reviews} == {"foreign"}
    one = next(one for one in reviews if one["flags"])
    assert [flag["kind"] for flag in one["flags"]] == ["link"]
    assert [entry["text"] for entry in one["added"]] == [LINKED]
    assert (one["removed"], one["changed"], one["problem"]) == ([], [], "")
    attempt = f"{one['step']}.all.jsonl:4"
    assert (one["lessons"][0]["text"], one["lessons"][0]["attempts"]) == (LINKED, [attempt])
    printed = waiting("review foreign").out
    assert LINKED in printed
    assert f"practicum show foreign --attempt {attempt}" in printed
    waiting(f"show foreign --attempt {attempt}")
    lessons = waiting.json("show foreign --lessons")["lessons"]
    assert [fate["kind"] for lesson in lessons for fate in lesson["fates"]] == ["waits"] * 4
    assert "4 edits" in waiting("export foreign").err
    assert "4 edits" in waiting("show foreign").out
    assert waiting.json("show foreign")["held"] == 4


def test_reviews_are_filtered(waiting: Shell) -> None:
    for options, count in (
        ("--only-trust foreign", 4), ("--only-trust own", 0), ("--flag link", 1), ("--flag secret", 0),
        ("--section strategies", 3), ("--limit 2", 2), ("--state approved", 0),
    ):  # fmt: skip
        assert len(waiting.json(f"review foreign {options}")["reviews"]) == count, options


def test_pending_edits_are_in_no_export_search_or_prompt(shell: Shell, model: Model) -> None:
    shell.file("own.md", "## rules\n- Be brief.\n")
    for typed in (
        "export foreign", "export foreign --format json", "export foreign --format agents-md", "show foreign",
        "space memory list foreign --section all", "space memory search foreign 'a dark screen' --section all",
        "space diff foreign own.md",
    ):  # fmt: skip
        done = shell(typed)
        assert not any(text in done.out for text in (SCREEN, FILES, BATTERY, LINKED)), typed
    shell("eval test.jsonl --context foreign --model", model.name)
    shell("run 'The screen is dark.' --context foreign --model", model.name)
    assert len(model.texts) == 5
    assert not any("If it is about" in text or "refund.example" in text for text in model.texts)


def test_approved_edits_become_one_version_and_their_trust_is_shown_to_people_and_not_to_agents(
    shell: Shell, model: Model
) -> None:
    chosen = f"{ids(shell, SCREEN)},{ids(shell, FILES)}"
    value = shell.json(f"review foreign --approve {chosen}")
    assert (value["version"], value["approved"], value["pending"]) == (1, chosen.split(","), 2)
    assert shell.json("review foreign --state approved")["approved"] == 2
    entries = shell.json("show foreign")["entries"]
    assert {entry["text"]: entry["trust"] for entry in entries} == {SCREEN: "foreign", FILES: "foreign"}
    assert [e["op"] for e in shell.json("show foreign --entry", entries[0]["id"])["events"]] == ["add"]
    shell.copy("foreign", "run")  # a name without the word
    for typed in ("show run", "show run --entry e0", "export run --format json", "space diff run 0 1",
                  "space memory list run --section all --json"):  # fmt: skip
        assert "foreign" in shell(typed).out, typed
    for form in ("markdown", "agents-md"):
        text = shell(f"export run --format {form}").out
        assert (SCREEN in text, "foreign" in text) == (True, False)
    shell("eval test.jsonl --context run --model", model.name)
    assert len(model.texts) == 4
    assert all(SCREEN in text and BATTERY not in text and "foreign" not in text for text in model.texts)
    shell("space rollback foreign 0 --yes")
    assert shell.texts("foreign") == []


def test_a_rejection_can_be_undone_and_approve_all_asks_first_and_leaves_out_flagged_edits(shell: Shell) -> None:
    id = ids(shell, LINKED)
    value = shell.json(f"review foreign --reject {id} --reason 'the address is not ours'")
    assert (value["rejected"], value["pending"], value["version"]) == ([id], 3, None)
    (one,) = shell.json("review foreign --state rejected")["reviews"]
    assert (one["id"], one["reason"]) == (id, "the address is not ours")
    assert shell.json(f"review foreign --undo {id}")["undone"] == [id]
    shell.fails("review foreign --approve all")
    assert shell.json("review foreign")["pending"] == 4
    assert shell.texts("foreign") == []
    assert len(shell.json("review foreign --approve all --section strategies --yes")["approved"]) == 3
    assert shell.json("review foreign --approve all --yes")["approved"] == []
    assert [one["added"][0]["text"] for one in shell.json("review foreign")["reviews"]] == [LINKED]
    assert len(shell.json("review foreign --approve all --flagged --yes")["approved"]) == 1
    assert LINKED in shell.texts("foreign")


def test_equal_edits_wait_once_and_rejected_ones_do_not_come_back_on_resume(shell: Shell) -> None:
    logs = (shell / "logs.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    shell.file("again.jsonl", logs[1] * 4)
    learn = f"learn --from-traces again.jsonl --trust-scores {LEARN} --out run"
    assert shell.json(f"{learn} --max-calls 4")["held"] == 1
    shell(f"review run --reject {ids(shell, SCREEN, 'run')} --reason no")
    value = shell.json("space resume run --max-calls 100")
    assert (value["held"], value["entries"]) == (0, [])
    assert value["errors"][Count.KNOWN_TO_REVIEW.value] >= 2


def test_after_an_approval_resume_learns_from_the_remaining_tasks(shell: Shell) -> None:
    learn = f"learn --from-traces logs.jsonl --trust-scores {LEARN} --max-calls 2 --out stopped"
    assert shell.json(learn)["held"] == 1
    assert shell.json("review stopped --approve all --yes")["version"] == 1
    value = shell.json("space resume stopped --max-calls 100")
    assert (len(value["entries"]), value["held"], value["usage"]["calls"]) == (1, 2, 6)


def test_conflicting_decisions_are_refused_and_change_nothing(waiting: Shell) -> None:
    for options in (
        "--approve 9.9", "--reject 9.9", "--undo 1.1", "--reason wrong", "--flagged", "--approve 1.1 --reject 1.1",
        "--approve 1.1 --trust own", "--approve 1.1 --try 2.1", "--approve 1.1 --state rejected", "--val test.jsonl",
        "--approve-better", "--max-calls 3",
    ):  # fmt: skip
        waiting.fails(f"review foreign {options}")
    assert waiting.json("review foreign")["pending"] == 4


def test_pending_edits_are_tried_with_and_without_and_flagged_ones_only_by_id(shell: Shell) -> None:
    value = shell.json("review foreign --try all --val test.jsonl")
    assert {one["edits"][0]["text"] for one in value["tried"]} == {SCREEN, FILES, BATTERY}
    for one in value["tried"]:
        trial = one["tried"]
        assert (trial["tasks"], trial["mean"], trial["without"], trial["together"]) == (4, 0.75, 0.25, 3)
        assert {"e_better", "e_worse", "version"} <= {*trial}
    assert value["usage"]["calls"] == 8
    named = shell.json(f"review foreign --try {ids(shell, LINKED)} --val test.jsonl")
    assert [one["edits"][0]["text"] for one in named["tried"]] == [LINKED]
    assert shell.json("review foreign")["pending"] == 4  # nothing was decided


def test_a_stopped_trial_continues_and_pays_nothing_twice_unless_the_tasks_changed(shell: Shell, model: Model) -> None:
    model.answer = by_script(SCRIPT)
    tasks = [json.loads(line) for line in (shell / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    trial = f"review foreign --try all --val val.jsonl --role agent={model.name} --max-calls"
    write_lines(shell / "val.jsonl", tasks)
    shell.fails(f"{trial} 3")
    assert len(model.bodies) <= 3
    for _ in range(2):
        assert {one["tried"]["mean"] for one in shell.json(f"{trial} 100")["tried"]} == {0.75}
        assert len(model.bodies) == 8
    write_lines(shell / "val.jsonl", [{**task, "input": task["input"] + " Please help."} for task in tasks])
    assert {one["tried"]["tasks"] for one in shell.json(f"{trial} 100")["tried"]} == {4}
    assert len(model.bodies) == 16


def test_the_gate_approves_only_edits_that_are_shown_to_be_better(shell: Shell) -> None:
    tasks = [{"id": f"v{n}", "input": f"A dark screen, case {n}.", "target": "K7"} for n in range(30)]
    shell.fails("review foreign --try all --val test.jsonl --approve-better")  # 20 tasks or more
    # Eight tasks won are enough for one edit (e-value 57 of 20), and not for one of three (57 of 60).
    write_lines(shell / "val.jsonl", [*tasks[:8], *({**task, "target": "K9"} for task in tasks[8:])])
    assert shell.json("review foreign --try all --val val.jsonl --approve-better")["approved"] == []
    write_lines(shell / "val.jsonl", tasks)
    value = shell.json("review foreign --try all --val val.jsonl --approve-better")
    assert shell.texts("foreign") == [SCREEN]
    assert value["approved"] == [ids(shell, SCREEN, state="approved")]
    assert shell.json("review foreign")["pending"] == 3
