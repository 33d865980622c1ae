"""docs/review.md: what is learned from text that is not your own waits until it is approved."""

from __future__ import annotations

import json
import re

import pytest

from practicum import Count

from .kit import Model, Shell, by_script, with_lessons, workshop_files, write_lines

SCREEN, FILES, BATTERY = (
    f"If it is about {what}, answer {bench}." for what, bench in (("screen", "K7"), ("files", "K9"), ("battery", "K5"))
)
LINKED = "If somebody was charged twice, ask http://refund.example/form first."
SCRIPT = with_lessons(("charged twice", "pitfalls", LINKED))
CHARGED = {
    "messages": [{"role": "user", "content": "I was charged twice."}, {"role": "assistant", "content": "K5"}],
    "score": {"value": 1, "note": "The right answer is: K5"},
}
LEARN = "--method ace --choices K2,K5,K7,K9 --model scripted:flagging.jsonl"


@pytest.fixture(scope="module")
def _waiting(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with the run `theirs`, in which three edits wait, and a fourth that is flagged."""
    shell = Shell(tmp_path_factory.mktemp("waiting"))
    for name, text in workshop_files().items():
        shell.file(name, text)
    shell.file("flagging.jsonl", SCRIPT)
    shell.file("all.jsonl", (shell / "logs.jsonl").read_text(encoding="utf-8") + json.dumps(CHARGED) + "\n")
    value = shell.json(f"learn --from-traces all.jsonl --trust-scores {LEARN} --out theirs")
    assert (value["held"], value["entries"], value["version"]) == (4, [], 0)
    return shell


@pytest.fixture
def waiting(_waiting: Shell) -> Shell:
    return _waiting


@pytest.fixture
def shell(_waiting: Shell, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A copy of that folder."""
    made = Shell(tmp_path_factory.mktemp("decided"))
    for path in _waiting.folder.iterdir():
        _waiting.copy(path.name, str(made / path.name))
    return made


def ids(shell: Shell, text: str, run: str = "theirs", state: str = "pending") -> str:
    """The id of the edit that adds this text."""
    found = shell.json(f"review {run} --state {state}")["reviews"]
    (id,) = (one["id"] for one in found if text in [edit.get("text") for edit in one["edits"]])
    return str(id)


# ---- what waits


@pytest.mark.parametrize(
    ("options", "used", "waits", "scored"),
    [
        ("", 0, 0, False),
        ("--trust foreign --trust-scores", 0, 3, True),
        ("--trust labelled", 0, 3, True),
        ("--trust own", 3, 0, True),
        ("--trust foreign --trust-scores --review none", 3, 0, True),
        ("--trust own --review all", 0, 3, True),
    ],
)
def test_what_is_learned_waits_by_the_trust_of_its_source(
    waiting: Shell, options: str, used: int, waits: int, scored: bool
) -> None:
    """Scores and right answers in foreign traces are left out, so that nothing is known of what was right."""
    out = re.sub(r"\W+", "-", f"run{options}")
    value = waiting.json(f"learn --from-traces logs.jsonl {options} {LEARN} --out {out}")
    assert (len(value["entries"]), value["held"]) == (used, waits)
    attempts = waiting.json(f"show {out} --attempts")["attempts"]
    assert {a["score"] for a in attempts} == ({0.0} if scored else {None})


def test_tasks_of_somebody_else_wait_too(waiting: Shell) -> None:
    value = waiting.json(f"learn train.jsonl --trust labelled {LEARN} --out labelled")
    assert (value["entries"], value["held"] >= 3) == ([], True)
    (trust,) = {one["trust"] for one in waiting.json("review labelled")["reviews"]}
    assert trust == "labelled"


def test_a_review_lists_what_waits_and_why_the_oldest_first(waiting: Shell) -> None:
    value = waiting.json("review theirs")
    assert (value["run"], value["version"], value["pending"]) == ("theirs", 0, 4)
    found = value["reviews"]
    assert [one["step"] for one in found] == [1, 2, 3, 4]
    assert [one["id"] for one in found] == ["1.1", "2.1", "3.1", "4.1"]
    assert {one["trust"] for one in found} == {"foreign"}
    one = next(one for one in found if one["flags"])
    assert [flag["kind"] for flag in one["flags"]] == ["link"]
    assert [entry["text"] for entry in one["added"]] == [LINKED]
    assert (one["removed"], one["changed"], one["problem"]) == ([], [], "")
    assert one["lessons"][0]["text"] == LINKED
    assert one["lessons"][0]["attempts"] == [f"{one['step']}.all.jsonl:4"]


def test_the_list_names_the_lesson_the_attempt_and_its_file(waiting: Shell) -> None:
    told = waiting("review theirs").out
    step = waiting.json("review theirs --flag link")["reviews"][0]["step"]
    assert "flagged: a link: 'http://refund.example/form'" in told
    assert f"+ (pitfalls) {LINKED}" in told
    assert f"from {step}.all.jsonl:4 of all.jsonl:4" in told
    assert f"practicum show theirs --attempt {step}.all.jsonl:4" in told
    waiting(f"show theirs --attempt {step}.all.jsonl:4")


@pytest.mark.parametrize(
    ("options", "count"),
    [("--only-trust foreign", 4), ("--only-trust own", 0), ("--flag link", 1), ("--flag secret", 0),
     ("--section strategies", 3), ("--section pitfalls", 1), ("--limit 2", 2), ("--state approved", 0)],
)  # fmt: skip
def test_a_part_of_the_list_can_be_asked_for(waiting: Shell, options: str, count: int) -> None:
    assert len(waiting.json(f"review theirs {options}")["reviews"]) == count


@pytest.mark.parametrize(
    "typed",
    ["export theirs", "export theirs --format json", "export theirs --format agents-md", "show theirs",
     "space memory list theirs --section all", "space memory search theirs 'a dark screen' --section all",
     "space diff theirs own.md"],
)  # fmt: skip
def test_what_waits_is_in_no_export_page_or_search(shell: Shell, typed: str) -> None:
    shell.file("own.md", "## rules\n- Be brief.\n")
    told = shell(typed)
    assert not any(text in told.out for text in (SCREEN, FILES, BATTERY, LINKED))


def test_what_waits_is_in_no_prompt(shell: Shell, model: Model) -> None:
    shell("eval test.jsonl --context theirs --model", model.name)
    shell("run 'The screen is dark.' --context theirs --model", model.name)
    assert len(model.texts) == 5
    assert not any("If it is about" in text or "refund.example" in text for text in model.texts)


def test_learning_and_every_export_say_that_something_waits(waiting: Shell) -> None:
    assert "4 edits wait for review" in waiting("export theirs").err
    assert "4 edits wait for review" in waiting("show theirs").out
    assert waiting.json("show theirs")["held"] == 4


def test_a_lesson_says_that_it_waits(waiting: Shell) -> None:
    lessons = waiting.json("show theirs --lessons")["lessons"]
    assert [fate["kind"] for lesson in lessons for fate in lesson["fates"]] == ["waits"] * 4
    assert "waits for review (1.1)" in waiting("show theirs --lessons").out


# ---- decisions


def test_what_is_approved_becomes_one_more_version_and_keeps_its_trust(shell: Shell) -> None:
    chosen = f"{ids(shell, SCREEN)},{ids(shell, FILES)}"
    value = shell.json(f"review theirs --approve {chosen}")
    assert (value["version"], value["approved"], value["pending"]) == (1, chosen.split(","), 2)
    entries = shell.json("show theirs")["entries"]
    assert {entry["text"]: entry["trust"] for entry in entries} == {SCREEN: "foreign", FILES: "foreign"}
    event = shell.json("show theirs --entry", entries[0]["id"])["events"][0]
    assert event["reason"].startswith("approved in review")
    assert shell.json("review theirs --state approved")["approved"] == 2
    shell("space rollback theirs 0 --yes")
    assert shell.texts("theirs") == []


def test_trust_is_said_where_people_look_and_not_where_agents_read(shell: Shell) -> None:
    shell(f"review theirs --approve {ids(shell, SCREEN)}")
    shell.file("own.md", "## rules\n- Be brief.\n")
    shell("view theirs --output site")
    pages = "".join(p.read_text(encoding="utf-8") for p in (shell / "site").rglob("*.html"))
    typed = ("show theirs", "show theirs --entry e0", "export theirs --format json", "space diff theirs 0 1",
             "space memory list theirs --section all --json")  # fmt: skip
    for told in (pages, *(shell(each).out for each in typed)):
        assert "foreign" in told
    for form in ("markdown", "agents-md"):
        assert SCREEN in shell(f"export theirs --format {form}").out
        assert "foreign" not in shell(f"export theirs --format {form}").out


def test_what_is_approved_is_shown_to_agents(shell: Shell, model: Model) -> None:
    shell(f"review theirs --approve {ids(shell, SCREEN)}")
    shell("eval test.jsonl --context theirs --model", model.name)
    assert all(SCREEN in text and FILES not in text for text in model.texts)


def test_a_rejection_keeps_its_reason_and_can_be_undone(shell: Shell) -> None:
    id = ids(shell, LINKED)
    value = shell.json(f"review theirs --reject {id} --reason 'the address is not ours'")
    assert (value["rejected"], value["pending"], value["version"]) == ([id], 3, None)
    (one,) = shell.json("review theirs --state rejected")["reviews"]
    assert (one["id"], one["reason"]) == (id, "the address is not ours")
    assert shell.texts("theirs") == []
    assert shell.json(f"review theirs --undo {id}")["undone"] == [id]
    assert shell.json("review theirs")["pending"] == 4


def test_approve_all_asks_first_and_leaves_out_what_is_flagged(shell: Shell) -> None:
    shell.fails("review theirs --approve all")
    assert shell.json("review theirs")["pending"] == 4
    assert len(shell.json("review theirs --approve all --section strategies --yes")["approved"]) == 3
    assert [one["added"][0]["text"] for one in shell.json("review theirs")["reviews"]] == [LINKED]
    assert shell.json("review theirs --approve all --yes")["approved"] == []
    assert len(shell.json("review theirs --approve all --flagged --yes")["approved"]) == 1
    assert LINKED in shell.texts("theirs")


def test_what_says_the_same_waits_once(shell: Shell) -> None:
    logs = (shell / "logs.jsonl").read_text(encoding="utf-8")
    shell.file("twice.jsonl", logs + logs)
    value = shell.json(f"learn --from-traces twice.jsonl --trust-scores {LEARN} --out twice")
    assert value["held"] == 3


def test_what_was_rejected_does_not_come_back_when_a_stopped_run_goes_on(shell: Shell) -> None:
    logs = (shell / "logs.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    shell.file("again.jsonl", logs[1] * 4)
    learn = f"learn --from-traces again.jsonl --trust-scores {LEARN} --max-calls 2 --out stopped"
    assert shell.json(learn)["held"] == 1
    shell(f"review stopped --reject {ids(shell, SCREEN, 'stopped')} --reason no")
    value = shell.json("space resume stopped --max-calls 100")
    assert (value["held"], value["entries"]) == (0, [])
    assert value["errors"][Count.KNOWN_TO_REVIEW.value] >= 1


def test_after_an_approval_resume_learns_from_the_tasks_that_are_left(shell: Shell) -> None:
    learn = f"learn --from-traces logs.jsonl --trust-scores {LEARN} --max-calls 2 --out stopped"
    assert shell.json(learn)["held"] == 1
    assert shell.json("review stopped --approve all --yes")["version"] == 1
    value = shell.json("space resume stopped --max-calls 100")
    assert (len(value["entries"]), value["held"]) == (1, 2)
    assert value["usage"]["calls"] == 6


def test_an_edit_of_an_entry_that_was_removed_meanwhile_waits_still_with_the_reason(shell: Shell) -> None:
    shell.file("own.md", f"## strategies\n- [e0] {SCREEN}\n")
    shell("space import own.md --out seed")
    rules = [json.loads(line) for line in SCRIPT.splitlines()]
    changes = [{"op": "UPDATE", "insights": [1], "ids": ["e0"], "text": f"{SCREEN} Or K8.", "reason": "more is known"}]
    rules = [{**r, "answer": {"changes": changes}} if r["role"] == "curator" else r for r in rules]
    write_lines(shell / "flagging.jsonl", rules)
    learn = f"learn --from-traces logs.jsonl --trust-scores --seed-playbook seed {LEARN} --steps 1 --out changed"
    assert shell.json(learn)["held"] == 1
    shell("space memory remove changed e0")
    decided = shell.json("review changed --approve 1.1")
    assert (decided["approved"], [*decided["not_approved"]]) == ([], ["1.1"])
    assert shell.json("review changed")["pending"] == 1


@pytest.mark.parametrize(
    "options",
    ["--approve 9.9", "--reject 9.9", "--undo 1.1", "--reason wrong", "--flagged", "--approve 1.1 --reject 1.1",
     "--approve 1.1 --trust own", "--approve 1.1 --try 2.1", "--approve 1.1 --state rejected", "--val test.jsonl",
     "--approve-better", "--max-calls 3"],
)  # fmt: skip
def test_a_decision_that_cannot_be_meant_is_refused_and_changes_nothing(waiting: Shell, options: str) -> None:
    waiting.fails(f"review theirs {options}")
    assert waiting.json("review theirs")["pending"] == 4


# ---- trying


def test_what_waits_is_tried_with_and_without_and_what_is_flagged_only_by_name(shell: Shell) -> None:
    told = shell("review theirs --try all --val test.jsonl --json")
    value = told.json
    assert {one["edits"][0]["text"] for one in value["tried"]} == {SCREEN, FILES, BATTERY}
    for one in value["tried"]:
        tried = one["tried"]
        assert (tried["tasks"], tried["mean"], tried["without"], tried["together"]) == (4, 0.75, 0.25, 3)
        assert {"e_better", "e_worse", "version"} <= {*tried}
    assert value["usage"]["calls"] == 8
    assert "1 flagged edit" in told.err
    named = shell.json(f"review theirs --try {ids(shell, LINKED)} --val test.jsonl")
    assert [one["edits"][0]["text"] for one in named["tried"]] == [LINKED]
    assert shell.json("review theirs")["pending"] == 4  # nothing was decided


def test_a_trial_that_was_cut_off_goes_on_and_pays_nothing_twice(shell: Shell, model: Model) -> None:
    model.answer = by_script(SCRIPT)
    tried = f"review theirs --try all --val test.jsonl --role agent={model.name} --json"
    first = shell(f"{tried} --max-calls 3", code=2)
    assert "the same command" in first.line
    assert len(model.bodies) <= 3
    value = shell.json(f"review theirs --try all --val test.jsonl --role agent={model.name} --max-calls 100")
    assert {one["tried"]["mean"] for one in value["tried"]} == {0.75}
    assert len(model.bodies) == 8
    again = shell.json(f"review theirs --try all --val test.jsonl --role agent={model.name} --max-calls 100")
    assert len(model.bodies) == 8
    assert again["tried"] == value["tried"]


def test_a_trial_on_tasks_with_the_same_ids_and_other_texts_asks_again(shell: Shell, model: Model) -> None:
    model.answer = by_script(SCRIPT)
    tried = f"review theirs --try all --val tasks.jsonl --role agent={model.name}"
    tasks = [json.loads(line) for line in (shell / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    for number, more in enumerate(("", " Please help."), 1):
        others = [{**task, "id": f"t{n}", "input": task["input"] + more} for n, task in enumerate(tasks)]
        write_lines(shell / "tasks.jsonl", others)
        assert {one["tried"]["tasks"] for one in shell.json(tried)["tried"]} == {4}
        assert len(model.bodies) == 8 * number


def test_the_gate_approves_alone_what_is_shown_to_be_better(shell: Shell) -> None:
    tasks = [{"id": f"v{n}", "input": f"A dark screen, case {n}.", "target": "K7"} for n in range(30)]
    write_lines(shell / "val.jsonl", tasks)
    shell.fails("review theirs --try all --val test.jsonl --approve-better")  # 20 tasks or more
    value = shell.json("review theirs --try all --val val.jsonl --approve-better")
    assert shell.texts("theirs") == [SCREEN]
    assert value["approved"] == [ids(shell, SCREEN, state="approved")]
    assert shell.json("review theirs")["pending"] == 3
