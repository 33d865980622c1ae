"""docs/show.md and docs/view.md: what happened in a run, on a terminal, for programs and in a browser."""

from __future__ import annotations

import json
import posixpath
import re
import signal
from html import unescape
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from .kit import Model, Shell, all_bytes, started, write_lines

SCREEN = "Half of the screen stays black when I switch the tablet on."


# ---- the views


def test_every_view_is_read_only(workshop: Shell) -> None:
    workshop("show runs/first")  # what was written last is moved into the database's file
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


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ("--failed", ["before.r10", "before.r11", "before.r12", "1.r6", "3.r7", "5.r4"]),
        ("--failed --split train", ["1.r6", "3.r7", "5.r4"]),
        ("--split test", ["test.r9", "test.r10", "test.r11", "test.r12"]),
        ("--split before --failed", ["before.r10", "before.r11", "before.r12"]),
        ("--task r7", ["3.r7", "15.r7"]),
        ("--step 3", ["3.r7"]),
        ("--split val", []),
    ],
)
def test_options_show_a_part_of_the_attempts(workshop: Shell, options: str, ids: list[str]) -> None:
    assert [a["id"] for a in workshop.json(f"show runs/first --attempts {options}")["attempts"]] == ids


def test_lists_for_people_are_lines_with_what_to_look_at_next(workshop: Shell) -> None:
    told = workshop("show runs/first --attempts --failed").out.splitlines()
    assert told[4] == f"3.r7       WRONG  0.00  {SCREEN} → K2"
    assert "practicum show runs/first --attempt before.r10" in told[-1]


def test_one_attempt_is_told_from_the_task_to_what_became_of_it(workshop: Shell) -> None:
    value = workshop.json("show runs/first --attempt 3.r7")
    assert (value["task"]["id"], value["task"]["input"], value["task"]["target"]) == ("r7", SCREEN, "K7")
    assert (value["version"], value["line"]["answer"], value["line"]["score"]) == (2, "K2", 0.0)
    assert [call["role"] for call in value["calls"]] == ["agent", "agent"]
    assert "[e0] (strategies) If it is about battery, answer K5." in json.dumps(value["calls"][0]["prompt"])
    told = workshop("show runs/first --attempt 3.r7").out
    for line in ("3.r7: WRONG (0.00), step 3, version 2", "right answer: K7", "answered: K2",
                 "feedback: The answer is wrong. The right answer is: K7",
                 "  → added e1 in version 3: nothing says this yet"):  # fmt: skip
        assert line in told.splitlines()
    assert "cost: 3 calls" in told


def test_the_full_place_of_an_attempt_works_as_its_id(workshop: Shell) -> None:
    place = workshop.json("show runs/first --attempt 3.r7")["line"]["place"]
    assert workshop("show runs/first --attempt", place).out == workshop("show runs/first --attempt 3.r7").out


def test_an_unknown_id_is_refused_with_those_that_are_like_it(workshop: Shell) -> None:
    assert "3.r7" in workshop.fails("show runs/first --attempt 3.r77")
    workshop.fails("show runs/first --entry e99")
    workshop.fails("show runs/first --call 9999")


def test_a_lesson_says_what_became_of_it(workshop: Shell) -> None:
    (lesson,) = workshop.json("show runs/first --lessons --step 3")["lessons"]
    assert (lesson["text"], lesson["attempts"]) == ("If it is about screen, answer K7.", ["3.r7"])
    (fate,) = lesson["fates"]
    assert (fate["kind"], fate["entry"], fate["version"]) == ("applied", "e1", 3)
    assert lesson["findings"]["diagnosis"] == "The bench was wrong."


def test_calls_have_tokens_and_seconds_and_one_is_shown_whole(workshop: Shell) -> None:
    calls = workshop.json("show runs/first --calls")["calls"]
    assert len(calls) == 43
    for role, count in {"agent": 24, "reflector": 16, "curator": 3}.items():
        assert len(workshop.json(f"show runs/first --calls --by-role {role}")["calls"]) == count
    step = workshop.json("show runs/first --calls --step 3")["calls"]
    assert [call["role"] for call in step] == ["agent", "reflector", "agent", "curator"]
    assert all(call["ok"] and call["usage"]["input_tokens"] > 0 and call["seconds"] >= 0 for call in calls)
    one = workshop.json("show runs/first --call", step[0]["id"])
    assert SCREEN in json.dumps(one)
    assert "K2" in json.dumps(one)


def test_merges_show_the_texts_that_went(shell: Shell) -> None:
    how = "--method combee --batch-size 8 --choices auto --model scripted:script.jsonl"
    shell(f"learn train.jsonl {how} --out wide")
    merges = shell.json("show wide --merges")["merges"]
    assert len(merges) >= 1
    assert all(merge["op"] == "merge" and merge["lost"] for merge in merges)
    assert "was:" in shell("show wide --merges").out


def test_the_gate_says_what_it_decided(shell: Shell) -> None:
    shell("learn train.jsonl --val test.jsonl --set gate=true --batch-size 8 --choices auto --model "
          "scripted:script.jsonl --out gated")  # fmt: skip
    trials = shell.json("show gated --gate")["gate"]
    assert trials
    assert {trial["gate"] for trial in trials} <= {"kept", "dropped"}
    assert all(trial["tasks"] <= 4 and {"e_better", "e_worse", "mean"} <= {*trial} for trial in trials)
    shell.fails("show runs/first --gate")


def test_the_replay_buffer_is_shown(shell: Shell) -> None:
    shell("learn train.jsonl --set replay=0.5 --batch-size 4 --choices auto --model scripted:script.jsonl --out again")
    buffer = shell.json("show again --replay")["replay"]
    assert buffer
    assert {"task", "entered", "passes", "failures", "graduated", "evicted"} <= {*buffer[0]}
    shell.fails("show runs/first --replay")


@pytest.mark.slow
def test_the_delay_is_drawn_where_the_batch_size_was_found(shell: Shell) -> None:
    write_lines(shell / "many.jsonl", [{"input": f"water {n}", "target": "K2"} for n in range(40)])
    shell("learn many.jsonl --method combee --batch-size auto --choices K2,K5 --model scripted:script.jsonl --out auto")
    value = shell.json("show auto --delay --output delay.png")
    assert value
    assert (shell / "delay.png").read_bytes().startswith(b"\x89PNG")
    shell.fails("show runs/first --delay")


@pytest.mark.parametrize(
    "options",
    ["--gate --entry e0", "--attempts --lessons", "--failed", "--lessons --role agent", "--version 0 --entry e0",
     "--output a.png", "--attempts --split sideways --lessons", "--calls --task r7"],
)  # fmt: skip
def test_one_view_is_shown_at_a_time_with_the_options_that_fit_it(workshop: Shell, options: str) -> None:
    workshop.fails(f"show runs/first {options}")


@pytest.mark.slow
def test_a_run_at_work_is_shown(shell: Shell, model: Model) -> None:
    """The model server looks at the run while it answers the last request."""
    seen = []

    def look(n: int) -> None:
        if n == 3:
            with started(shell.folder, "show", "run", "--json") as process:
                seen.append(process.end())

    model.before = look
    shell(f"learn train.jsonl --method none --test test.jsonl --before --concurrency 1 --model {model.name} --out run")
    (done,) = seen
    assert done.code == 0, done.err
    assert done.json["state"] != "done"


# ---- what hides or steers

HOSTILE = "Say \x1b]0;owned\x07\x1b[2Jhi\u202e\u200b\U000e0041."
SHOWN = r"Say \x1b]0;owned\x07\x1b[2Jhi\u{202e}\u{200b}\u{e0041}."


@pytest.fixture
def hostile(shell: Shell) -> Shell:
    """A run with tasks, an answer and an entry that would steer a terminal."""
    write_lines(shell / "hostile.jsonl", [{"id": "a\x1bb", "input": HOSTILE, "target": "x"}])
    write_lines(shell / "hostile-script.jsonl", [{"role": "agent", "answer": {"answer": HOSTILE}}])
    shell("learn hostile.jsonl --method episodes --review none --model scripted:hostile-script.jsonl --out run")
    shell.file("hostile.md", f"## rules\n- {HOSTILE}\n")
    shell("space import hostile.md --out seed")
    return shell


@pytest.mark.parametrize(
    "typed",
    ["show run", "show run --attempts", "show run --calls", "show run --lessons", "show run --call 1",
     "space memory list run --section all", "review seed", "space diff seed hostile.md", "space diff run 0 1",
     "eval hostile.jsonl --model scripted:hostile-script.jsonl", "show run --attempt 1.x", "show 'a\x1b[2Jb'",
     "learn 'a\x1b[2Jb' --model local", "run 'Say hi' --context run"],
)  # fmt: skip
def test_no_learned_text_or_name_steers_the_terminal(hostile: Shell, typed: str) -> None:
    try:
        told = hostile(typed)
    except AssertionError:
        told = hostile(typed, code=2)
    assert not {"\x1b", "\x07", "\u202e", "\u200b", "\U000e0041"} & {*told.out, *told.err}


def test_characters_that_hide_or_steer_are_shown_as_escapes(hostile: Shell) -> None:
    assert SHOWN in hostile("show run").out
    assert SHOWN in hostile("show run --attempts").out
    assert SHOWN in hostile("review seed").out


def test_json_writes_such_characters_as_json_escapes(hostile: Shell) -> None:
    told = hostile("show run --json")
    assert "\x1b" not in told.out
    assert "\u202e" not in told.out
    assert told.json["entries"][0]["text"] == HOSTILE


def test_an_export_to_a_file_has_the_text_as_it_is(hostile: Shell) -> None:
    hostile("export run --format json --output out.json")
    (entry,) = json.loads((hostile / "out.json").read_text(encoding="utf-8"))["entries"]
    assert entry["text"] == HOSTILE


def test_joiners_stay_where_scripts_and_emoji_need_them(shell: Shell) -> None:
    text = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f4bb"
    shell.file("own.md", f"## rules\n- {text}\n")
    shell("space import own.md --out seed")
    told = shell("show seed").out + shell("review seed").out
    assert text in told


# ---- view


class Links(HTMLParser):
    """The addresses that a page names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


@pytest.fixture(scope="module")
def pages(_workshop: tuple[Shell, object, object], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of `runs/first` as files, by their path."""
    site = tmp_path_factory.mktemp("pages") / "site"
    value = _workshop[0].json("view runs/first --output", site)
    made = {str(p.relative_to(site)): p.read_text(encoding="utf-8") for p in site.rglob("*.html")}
    assert value["index"] == str(site / "index.html")
    assert value["pages"] == len(made)
    return made


def test_the_pages_are_written_as_files_and_every_link_leads_to_one(pages: dict[str, str]) -> None:
    assert len(pages) > 43
    for name, page in pages.items():
        for link in Links(page).found:
            where = urlsplit(link)
            assert not where.scheme or where.scheme == "data", link  # nothing from the network
            if where.path and not where.scheme:
                path = posixpath.normpath((Path(name).parent / unquote(where.path)).as_posix())
                assert path in pages or not path.endswith(".html"), f"{name} names {link}"


def test_the_pages_show_what_show_prints(pages: dict[str, str]) -> None:
    everything = "\n".join(pages.values())
    for text in (SCREEN, "If it is about screen, answer K7.", "nothing says this yet", "The bench was wrong.",
                 "You send repairs to a bench of the workshop."):  # fmt: skip
        assert text in everything


def test_pages_let_nothing_run_but_their_own_script_and_use_nothing_from_the_network(pages: dict[str, str]) -> None:
    for page in pages.values():
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', unescape(page))
        assert policy
        assert "default-src 'none'" in policy[1]
        assert "unsafe" not in policy[1]


def test_texts_are_escaped_in_pages(hostile: Shell) -> None:
    write_lines(hostile / "markup.jsonl", [{"input": "<script>alert(1)</script>", "target": "x"}])
    hostile("learn markup.jsonl --method episodes --review none --model scripted:hostile-script.jsonl --out marked")
    hostile("view marked run --output site")
    text = "\n".join(p.read_text(encoding="utf-8") for p in (hostile / "site").rglob("*.html"))
    assert "<script>alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert SHOWN in text
    assert not {"\x1b", "\u202e"} & {*text}


def test_a_folder_of_runs_is_viewed(shell: Shell) -> None:
    shell.file("own.md", "## rules\n- Look twice.\n")
    for name in ("alder", "birch"):
        shell("space import own.md --out", f"all/{name}")
    shell("view all --output site")
    index = (shell / "site" / "index.html").read_text(encoding="utf-8")
    assert "alder" in index
    assert "birch" in index


def test_files_are_written_without_a_server(workshop: Shell) -> None:
    workshop.fails("view runs/first --output x --port 1")
    workshop.fails("view runs/first --output x --no-open")
    workshop.fails("view nowhere --output x")
    assert not (workshop / "x").exists()


def test_the_server_answers_to_its_own_address_alone_and_ends_with_ctrl_c(workshop: Shell) -> None:
    with started(workshop.folder, "view", "runs/first", "--port", 0, "--no-open", "--json") as process:
        address = urlsplit(json.loads(process.line())["address"])
        assert address.hostname == "127.0.0.1"

        def get(host: str | None, method: str = "GET") -> tuple[int, str, str]:
            connection = HTTPConnection("127.0.0.1", address.port, timeout=30)
            connection.request(method, address.path or "/", headers={"Host": host} if host else {})
            answer = connection.getresponse()
            found = answer.status, answer.getheader("Content-Security-Policy") or "", answer.read().decode()
            connection.close()
            return found

        status, policy, page = get(None)
        assert (status, "If it is about" in page or "runs/first" in page) == (200, True)
        assert "default-src 'none'" in policy
        assert get("evil.example")[0] in (400, 403, 404, 421)
        assert get(None, "POST")[0] >= 400
        assert process.end(signal.SIGINT).code == 0
