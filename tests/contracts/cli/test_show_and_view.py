"""The views of a run: on a terminal, as JSON and as pages."""

from __future__ import annotations

import json
import signal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from .kit import Shell, all_bytes, started, workshop_files, write_lines

SCREEN = "Half of the screen stays black when I switch the tablet on."


def test_every_view_is_read_only(workshop: Shell) -> None:
    workshop("show runs/first")  # moves the last writes into the database file
    before = all_bytes(workshop / "runs/first")
    views = ("", "--version 3", "--entry e1", "--attempts", "--attempt 3.r7", "--lessons", "--merges", "--calls",
             "--call 15")  # fmt: skip
    for view in views:
        workshop.json(f"show runs/first {view}")
    assert all_bytes(workshop / "runs/first") == before


def test_an_entry_has_its_history_and_the_attempts_that_it_came_from(workshop: Shell) -> None:
    value = workshop.json("show runs/first --entry e1")
    assert (value["id"], value["now"]["text"]) == ("e1", "If it is about screen, answer K7.")
    assert [(e["version"], e["step"], e["op"]) for e in value["events"]] == [
        (3, 3, "add"), (4, 4, "vote"), (9, 11, "vote"), (10, 15, "vote"),
    ]  # fmt: skip
    assert value["events"][0]["reason"] == "nothing says this yet"
    assert value["attempts"] == ["3.r7"]
    assert value["used_by"] == ["4.r3", "11.r3", "15.r7", "test.r11"]
    assert {"task:r7", "tag:tablet"} <= {*value["now"]["sources"]}


def test_attempts_of_learning_and_of_evaluations_are_listed(workshop: Shell) -> None:
    attempts = workshop.json("show runs/first --attempts")["attempts"]
    assert [a["split"] for a in attempts] == ["before"] * 4 + ["train"] * 16 + ["test"] * 4
    assert [a["id"] for a in attempts if not a["correct"]] == [
        "before.r10", "before.r11", "before.r12", "1.r6", "3.r7", "5.r4",
    ]  # fmt: skip
    one = next(a for a in attempts if a["id"] == "3.r7")
    assert (one["task"], one["input"], one["answer"], one["score"], one["step"]) == ("r7", SCREEN, "K2", 0.0, 3)


def test_attempts_are_filtered(workshop: Shell) -> None:
    for options, ids in {
        "--failed --split train": ["1.r6", "3.r7", "5.r4"], "--task r7": ["3.r7", "15.r7"], "--step 3": ["3.r7"],
        "--split test": ["test.r9", "test.r10", "test.r11", "test.r12"], "--split val": [],
    }.items():  # fmt: skip
        assert [a["id"] for a in workshop.json(f"show runs/first --attempts {options}")["attempts"]] == ids, options
    lines = workshop("show runs/first --attempts --failed").out.splitlines()
    assert [part in lines[4] for part in ("3.r7", "0.00", SCREEN, "K2")] == [True] * 4
    assert "practicum show runs/first --attempt before.r10" in lines[-1]


def test_one_attempt_is_shown_with_its_task_calls_and_outcome(workshop: Shell) -> None:
    value = workshop.json("show runs/first --attempt 3.r7")
    assert (value["task"]["id"], value["task"]["input"], value["task"]["target"]) == ("r7", SCREEN, "K7")
    assert (value["version"], value["line"]["answer"], value["line"]["score"]) == (2, "K2", 0.0)
    assert [call["role"] for call in value["calls"]] == ["agent", "agent"]
    assert "[e0] (strategies) If it is about battery, answer K5." in json.dumps(value["calls"][0]["prompt"])
    text = workshop("show runs/first --attempt 3.r7").out
    for part in ("3.r7", SCREEN, "K7", "K2", "e1"):
        assert part in text
    assert workshop("show runs/first --attempt", value["line"]["place"]).out == text
    assert "3.r7" in workshop.fails("show runs/first --attempt 3.r77", error="attempt.unknown")  # a similar id


def test_a_lesson_has_its_fate(workshop: Shell) -> None:
    (lesson,) = workshop.json("show runs/first --lessons --step 3")["lessons"]
    assert (lesson["text"], lesson["attempts"]) == ("If it is about screen, answer K7.", ["3.r7"])
    (fate,) = lesson["fates"]
    assert (fate["kind"], fate["entry"], fate["version"]) == ("applied", "e1", 3)
    assert lesson["findings"]["diagnosis"] == "The bench was wrong."


def test_calls_have_tokens_and_seconds_and_one_is_shown_whole(workshop: Shell) -> None:
    calls = workshop.json("show runs/first --calls")["calls"]
    assert len(calls) == 43
    assert len(workshop.json("show runs/first --calls --by-role curator")["calls"]) == 3
    step = workshop.json("show runs/first --calls --step 3")["calls"]
    assert [call["role"] for call in step] == ["agent", "reflector", "agent", "curator"]
    assert all(call["ok"] and call["usage"]["input_tokens"] > 0 and call["seconds"] >= 0 for call in calls)
    one = json.dumps(workshop.json("show runs/first --call", step[0]["id"]))
    assert SCREEN in one
    assert "K2" in one


def test_merges_show_the_removed_texts(shell: Shell) -> None:
    how = "--method combee --batch-size 8 --choices auto --model scripted:script.jsonl"
    shell(f"learn train.jsonl {how} --out wide")
    merges = shell.json("show wide --merges")["merges"]
    assert len(merges) >= 1
    assert all(merge["op"] == "merge" and merge["lost"] for merge in merges)


def test_the_decisions_of_the_gate_and_the_replay_buffer_are_shown(shell: Shell) -> None:
    learn = "learn train.jsonl --choices auto --model scripted:script.jsonl"
    shell(f"{learn} --val test.jsonl --set gate=true --batch-size 8 --out gated")
    trials = shell.json("show gated --gate")["gate"]
    assert trials
    assert {trial["gate"] for trial in trials} <= {"kept", "dropped"}
    assert all(trial["tasks"] <= 4 and {"e_better", "e_worse", "mean"} <= {*trial} for trial in trials)
    shell(f"{learn} --set replay=0.5 --batch-size 4 --out again")
    buffer = shell.json("show again --replay")["replay"]
    assert buffer
    assert {"task", "entered", "passes", "failures", "graduated", "evicted"} <= {*buffer[0]}
    for view in ("--gate", "--replay", "--delay"):
        shell.fails(f"show runs/first {view}")


@pytest.mark.slow
def test_the_delay_of_batch_sizes_is_drawn(shell: Shell) -> None:
    write_lines(shell / "many.jsonl", [{"input": f"water {n}", "target": "K2"} for n in range(40)])
    shell("learn many.jsonl --method combee --batch-size auto --choices K2,K5 --model scripted:script.jsonl --out auto")
    value = shell.json("show auto --delay --output delay.png")
    assert value
    assert (shell / "delay.png").read_bytes().startswith(b"\x89PNG")


def test_views_and_options_that_do_not_fit_are_refused(workshop: Shell) -> None:
    for options in ("--gate --entry e0", "--attempts --lessons", "--failed", "--lessons --role agent", "--call 9999",
                    "--version 0 --entry e0", "--output a.png", "--calls --task r7"):  # fmt: skip
        workshop.fails(f"show runs/first {options}")
    for options in ("runs/first --output x --port 1", "runs/first --output x --no-open", "nowhere --output x"):
        workshop.fails(f"view {options}")
    assert not (workshop / "x").exists()


HOSTILE = "Say \x1b]0;owned\x07\x1b[2Jhi\u202e\u200b\U000e0041."
ESCAPED = r"Say \x1b]0;owned\x07\x1b[2Jhi\u{202e}\u{200b}\u{e0041}."


@pytest.fixture(scope="module")
def hostile(_workshop: tuple[Shell, object, object], tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A run with tasks, an answer and an entry that would steer a terminal."""
    shell = Shell(tmp_path_factory.mktemp("hostile"))
    tasks = [{"id": "a\x1bb", "input": HOSTILE, "target": "x"}, {"input": "<script>alert(1)</script>", "target": "x"}]
    write_lines(shell / "hostile.jsonl", tasks)
    write_lines(shell / "hostile-script.jsonl", [{"role": "agent", "answer": {"answer": HOSTILE}}])
    shell("learn hostile.jsonl --method episodes --review none --model scripted:hostile-script.jsonl --out run")
    shell.file("hostile.md", f"## rules\n- {HOSTILE}\n")
    shell("space import hostile.md --out seed")
    return shell


def test_no_learned_text_or_name_steers_the_terminal(hostile: Shell) -> None:
    for typed in (
        "show run", "show run --attempts", "show run --calls", "show run --call 1", "review seed", "show 'a\x1b[2Jb'",
        "space memory list run --section all", "space diff seed hostile.md", "show run --attempt 1.x",
        "eval hostile.jsonl --model scripted:hostile-script.jsonl", "learn 'a\x1b[2Jb' --model local",
        "run 'Say hi' --context run",
    ):  # fmt: skip
        done = hostile(typed, code=(0, 2))
        assert not {"\x1b", "\x07", "\u202e", "\u200b", "\U000e0041"} & {*done.out, *done.err}, typed
        if typed in ("show run", "show run --attempts", "review seed"):
            assert ESCAPED in done.out


def test_json_escapes_control_characters_and_a_file_has_the_text_unchanged(hostile: Shell) -> None:
    done = hostile("show run --json")
    assert not {"\x1b", "\u202e"} & {*done.out}
    assert HOSTILE in [entry["text"] for entry in done.json["entries"]]
    hostile("export run --format json --output out.json")
    entries = json.loads((hostile / "out.json").read_text(encoding="utf-8"))["entries"]
    assert HOSTILE in [entry["text"] for entry in entries]


@pytest.mark.slow
def test_pages_show_the_runs_of_a_folder_and_escape_their_texts(hostile: Shell) -> None:
    files = workshop_files()
    hostile.file("script.jsonl", files["script.jsonl"])
    hostile.file("two.jsonl", "".join(files["train.jsonl"].splitlines(keepends=True)[5:7]))
    learn = "learn two.jsonl --choices K2,K5,K7 --model scripted:script.jsonl --instructions 'Send repairs to a bench.'"
    hostile(f"{learn} --out all/alder")
    hostile.copy("run", "all/birch")
    value = hostile.json("view all --output site")
    pages = {str(p.relative_to(hostile.folder)): p.read_text(encoding="utf-8") for p in hostile.folder.rglob("*.html")}
    assert value["index"] == "site/index.html"
    assert value["pages"] == len(pages) > 8
    assert all(name in pages["site/index.html"] for name in ("alder", "birch"))
    text = "\n".join(pages.values())
    for part in (SCREEN, "If it is about screen, answer K7.", "The bench was wrong.", "Send repairs to a bench.",
                 "&lt;script&gt;alert(1)", ESCAPED):  # fmt: skip
        assert part in text
    assert "<script>alert(1)</script>" not in text
    assert not {"\x1b", "\u202e"} & {*text}


@pytest.mark.slow
def test_the_server_answers_only_to_its_own_address_and_ends_with_ctrl_c(workshop: Shell) -> None:
    with started(workshop.folder, "view", "runs/first", "--port", 0, "--no-open", "--json") as process:
        address = json.loads(process.line())["address"]
        with urlopen(address, timeout=30) as answer:
            assert "runs/first" in answer.read().decode()
        with pytest.raises(HTTPError, match="HTTP Error 4"):
            urlopen(Request(address, headers={"Host": "evil.example"}), timeout=30)
        assert process.end(signal.SIGINT).code == 0
