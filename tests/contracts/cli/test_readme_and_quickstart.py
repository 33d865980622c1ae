"""From installation to an agent that learned, on the command line."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from practicum import Count

from .conftest import FIRST, INSTRUCTIONS
from .kit import ROOT, Model, Shell, all_bytes, write_lines

TEAMS = ("Alder", "Birch", "Cedar", "Hazel", "Juniper", "Maple", "Rowan", "Willow")
RULES = {"e0": "If it is about battery, answer K5.", "e1": "If it is about screen, answer K7.",
         "e2": "If it is about files, answer K9."}  # fmt: skip
FIRST_COMMANDS = ["demo", "learn", "run", "eval", "compare", "serve", "mcp", "show", "view", "export", "review", "help"]
OPERATIONS = (
    "recall", "report", "remember", "interactions", "playbook", "history", "corrections", "remove", "decide-rollout",
    "learn", "spaces", "add-space", "remove-space",
)  # fmt: skip
COMMANDS = [
    *FIRST_COMMANDS, "space resume", "space edit", "space import", "space name", "space rollback", "space forget",
    "space diff", "space monitor", "space dynamics", "space pools", *(f"space {name}" for name in OPERATIONS),
    "space memory list",
    "space memory search", "space memory add", "space memory remove", "space memory reembed", "key add", "key list",
    "key remove", "bench advise", "bench tasks", "bench methods", "bench plugins", "bench paper", "bench overload",
    "bench retrieval", "bench robustness", "store", "store copy", "store connect", "store list", "store remove",
]  # fmt: skip


# ---- README


def listed(text: str) -> list[str]:
    """The commands that a help lists."""
    return [name for name in re.findall(r"^  ([a-z]+(?: [a-z-]+)*)  ", text, re.M) if not name.startswith("-")]


def test_the_first_help_has_twelve_commands_and_says_how_to_see_all(workshop: Shell) -> None:
    text = workshop("--help").out
    assert listed(text) == FIRST_COMMANDS
    assert "practicum help lists all commands" in text
    assert max(map(len, text.splitlines())) <= 80


def test_help_lists_every_command_on_one_line(workshop: Shell) -> None:
    text = workshop("help").out
    assert listed(text) == COMMANDS
    assert max(len(line) for line in text.splitlines() if not line.startswith("  store")) <= 80


@pytest.mark.parametrize("command", [*COMMANDS, "space", "space memory", "key", "bench"])
def test_every_command_has_help(workshop: Shell, command: str) -> None:
    text = workshop(f"{command} --help").out
    assert f"Usage: practicum {command}" in text
    assert workshop(f"help {command}").out == text


@pytest.mark.parametrize("command", ["learn", "run", "eval", "compare", "serve", "space resume"])
def test_a_short_help_names_the_option_that_shows_all(workshop: Shell, command: str) -> None:
    short, long = (workshop(f"{command} {option}").out for option in ("--help", "--help-all"))
    first, every = (re.findall(r"^│ \*?\s*(--[a-z-]+)", text, re.M) for text in (short, long))
    assert {*first} < {*every}
    assert "--help-all" in short.rstrip().splitlines()[-1]
    assert "--help-all" not in long
    if command == "learn":
        assert len([option for option in first if option != "--help"]) == 15
        assert {"--val", "--test", "--method", "--model", "--max-usd", "--out", "--json"} <= {*first}


def test_the_version_is_printed(workshop: Shell) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", workshop("--version").out)


def test_the_demo_learns_to_route_messages_to_teams_with_opaque_names(shell: Shell) -> None:
    """136 support messages to learn from, 64 held out, 8 teams; the score rises by what the nearest solved ones say."""
    names = "|".join(TEAMS)
    rules: list[dict[str, Any]] = [
        {"role": "agent", "match": rf"\n({names})\n[^\n]*\Z", "answer": {"answer": r"\1"}},
        {"role": "agent", "answer": {"answer": "Alder"}},
    ]
    write_lines(shell / "nearest.jsonl", rules)
    told = shell("demo --model scripted:nearest.jsonl --out runs/demo --json")
    assert told.json["before"] < 0.25 < 0.75 < told.json["after"]
    assert told.json["run"] == "runs/demo"
    assert f"136 support messages to learn from, 64 held out, 8 teams: {', '.join(TEAMS)}." in told.err
    assert len(shell.texts("runs/demo")) == 136


def test_methods_prints_the_costs_and_settings_of_each(workshop: Shell) -> None:
    value = workshop.json("bench methods ace")["ace"]
    assert value["paper"]
    assert value["settings"]["rounds"][1]
    told = workshop("bench methods ace --set rounds=0")
    assert "costs in addition to the attempts" in told.out
    assert "--set rounds=" in told.out
    workshop.fails("bench methods nothing")


def test_without_labels_none_leaks(shell: Shell, model: Model) -> None:
    """Learning without labels sees neither targets nor scores."""
    tasks = [json.loads(line) for line in (shell / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    write_lines(shell / "secret.jsonl", [{**task, "target": "zebra"} for task in tasks])
    value = shell.json(f"learn secret.jsonl --no-labels --model {model.name} --batch-size 4 --out run")
    assert value["usage"]["calls"] == len(model.bodies) > 8
    assert not any("zebra" in text for text in model.texts)


# ---- the quickstart's first run


def test_learning_with_ace_makes_the_score_rise(first: dict[str, Any]) -> None:
    assert first["scores"] == {"before": 0.25, "test": 1.0}
    assert (first["run"], first["version"], first["context_tokens"]) == ("runs/first", 11, 39)
    assert {entry["id"]: entry["text"] for entry in first["entries"]} == RULES
    assert {entry["section"] for entry in first["entries"]} == {"strategies"}


def test_the_usage_is_said_in_all_and_for_each_role(first: dict[str, Any]) -> None:
    assert {role: usage["calls"] for role, usage in first["by_role"].items()} == {
        "agent": 24, "reflector": 16, "curator": 3,
    }  # fmt: skip
    parts = ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd")
    for part in parts:
        assert first["usage"][part] == sum(usage[part] for usage in first["by_role"].values())
    assert first["usage"]["calls"] == 43
    assert first["journal"] == {"hits": 0}


def test_what_was_counted_is_listed_and_progress_is_lines_outside_a_terminal(shell: Shell) -> None:
    told = shell(FIRST.replace("runs/first", "again"))
    assert "counted" in told.out
    assert re.search(r"^ +3 attempts? reused", told.out, re.M)

    assert re.search(r"^learning 16/16 steps: ", told.out, re.M)
    assert "\x1b" not in told.out


def test_choices_auto_are_the_targets_and_the_agent_is_told_them(workshop: Shell) -> None:
    call = next(call for call in workshop.json("show runs/first --calls")["calls"] if call["role"] == "agent")
    asked = workshop.json("show runs/first --call", call["id"])
    assert "K2; K5; K7; K9" in json.dumps(asked)
    assert INSTRUCTIONS in json.dumps(asked)


def test_instructions_are_read_from_a_file(shell: Shell, model: Model) -> None:
    shell.file("told.txt", "Speak like a pirate.\n")
    shell.json(f"eval test.jsonl --model {model.name} --instructions @told.txt")
    assert all("Speak like a pirate." in text for text in model.texts)


def test_a_run_without_out_is_kept_in_a_new_folder_below_runs(shell: Shell) -> None:
    made = [shell.json("learn train.jsonl --method none --model scripted:script.jsonl")["run"] for _ in range(2)]
    assert len({*made}) == 2
    assert all(Path(run).parent.name == "runs" and (shell / run / "practicum.sqlite").exists() for run in made)


# ---- reading what was learned


def test_show_prints_the_scores_and_the_entries(workshop: Shell) -> None:
    value = workshop.json("show runs/first")
    assert (value["state"], value["method"], value["version"], value["versions"], value["steps"]) == (
        "done", "ace", 11, 12, 16,
    )  # fmt: skip
    assert value["scores"] == {"before": 0.25, "test": 1.0}
    assert (value["tokens"], value["helpful"], value["held"]) == (39, 8, 0)
    votes = {e["id"]: (e["helpful"], e["harmful"], e["uses"]) for e in value["entries"]}
    assert votes == {"e0": (3, 0, 3), "e1": (3, 0, 3), "e2": (2, 0, 2)}
    told = workshop("show runs/first").out.splitlines()
    assert "[e1] (strategies) If it is about screen, answer K7.  (+3 -0, used 3)" in told


def test_diff_says_what_changed_between_two_versions(workshop: Shell) -> None:
    value = workshop.json("space diff runs/first 1 3")
    assert [entry["id"] for entry in value["added"]] == ["e1"]
    assert (value["removed"], value["changed"]) == ([], [])
    back = workshop.json("space diff runs/first 3 1")
    assert [entry["id"] for entry in back["removed"]] == ["e1"]
    assert "1 added, 0 removed, 0 changed" in workshop("space diff runs/first 1 3").out


@pytest.mark.parametrize("form", ["markdown", "json", "agents-md"])
def test_the_playbook_is_exported_to_standard_output_or_a_file_with_the_same_bytes(shell: Shell, form: str) -> None:
    printed = shell(f"export runs/first --format {form}").out
    value = shell.json(f"export runs/first --format {form}")
    assert value["text"] == printed
    said = shell(f"export runs/first --format {form} --output none/yet/OUT")
    assert (shell / "none" / "yet" / "OUT").read_text(encoding="utf-8") == printed
    assert "version 11 with 3 entries written to none/yet/OUT" in said.out
    assert all(text in printed for text in RULES.values())


def test_export_takes_a_version_or_its_name(shell: Shell) -> None:
    assert RULES["e1"] not in shell("export runs/first --version 1").out
    shell("space name runs/first early 3")
    assert shell("export runs/first --version early").out == shell("export runs/first --version 3").out
    assert shell("export runs/first@early").out == shell("export runs/first --version 3").out


def test_rollback_makes_an_earlier_version_the_last_one_and_nothing_is_lost(shell: Shell) -> None:
    assert shell.json("space rollback runs/first 3 --yes") == {"run": "runs/first", "version": 12, "as": 3}
    assert shell.texts("runs/first") == shell.texts("runs/first", "--version", 3) == [RULES["e0"], RULES["e1"]]
    assert shell.texts("runs/first", "--version", 11) == [*RULES.values()]
    assert "test" not in shell.json("show runs/first")["scores"]  # the score was that of version 11
    shell("space rollback runs/first 11 --yes")
    assert shell.json("show runs/first")["scores"] == {"before": 0.25, "test": 1.0}


def test_resume_after_a_rollback_learns_on_from_that_version(shell: Shell) -> None:
    shell("space rollback runs/first 3 --yes")
    value = shell.json("space resume runs/first")
    assert sorted(entry["text"] for entry in value["entries"]) == sorted(RULES.values())
    assert value["scores"]["test"] == 1.0
    assert value["usage"]["calls"] > 43


def test_a_name_stands_for_its_version_wherever_a_context_is_read(shell: Shell) -> None:
    assert shell.json("space name runs/first prod 1") == {"run": "runs/first", "names": {"prod": 1}}
    assert shell.json("space name runs/first last")["names"] == {"prod": 1, "last": 11}
    assert shell.texts("runs/first", "--version", "prod") == shell.texts("runs/first@prod") == [RULES["e0"]]
    assert len(shell.json("space diff runs/first prod last")["added"]) == 2
    assert shell.json("eval test.jsonl --context runs/first@prod")["score"] < 1.0
    assert shell.json("space import runs/first@prod --out seeded")["entries"] == 1
    assert shell.json("run --context runs/first@prod hello")["version"] == 1
    assert shell.json("space name runs/first prod 3")["names"]["prod"] == 3
    assert shell.json("space name runs/first prod --delete")["names"] == {"last": 11}
    shell.fails("show runs/first --version prod")
    shell.fails("space name runs/first gone --delete")
    shell.fails("space name runs/first x 99")


# ---- many attempts, traces, playbooks


def test_combee_learns_from_a_batch_at_once_and_keeps_every_lesson(shell: Shell) -> None:
    value = shell.json(
        "learn train.jsonl --test test.jsonl --method combee --batch-size 8 --choices auto --model "
        f"scripted:script.jsonl --instructions '{INSTRUCTIONS}' --out runs/wide"
    )
    assert (value["version"], value["scores"]["test"], value["usage"]["calls"]) == (1, 1.0, 30)
    assert {entry["text"] for entry in value["entries"]} == {*RULES.values()}
    counted = {Count.DUPLICATE_ENTRIES: 3, Count.KEPT_LESSONS: 3, Count.REPEATED_LESSONS: 9}
    assert {count: value["errors"][count.value] for count in counted} == counted


def test_learning_from_logs_runs_no_agent(shell: Shell) -> None:
    value = shell.json(
        "learn --from-traces logs.jsonl --trust own --test test.jsonl --method combee --batch-size 3 --choices "
        f"K2,K5,K7,K9 --model scripted:script.jsonl --instructions '{INSTRUCTIONS}' --out runs/logs"
    )
    assert (value["scores"]["test"], value["usage"]["calls"]) == (1.0, 10)
    assert value["by_role"]["agent"]["calls"] == 4  # the held-out tasks
    assert {entry["text"] for entry in value["entries"]} == {*RULES.values()}


CODE = "Interfaces give their results in pages. Go on until a page is empty:\n\n```python\nitems, page = [], 0\n```"
OWN = "# Ours\n\n## Code\n\n- " + CODE.replace("\n", "\n  ") + "\n- One line.\n"


def test_entries_of_several_lines_are_kept_word_for_word(shell: Shell) -> None:
    shell.file("own.md", OWN)
    assert shell.json("space import own.md --out runs/seed") == {
        "run": "runs/seed",
        "entries": 2,
        "waiting": 0,
        "left_out": [],
    }
    assert shell.texts("runs/seed") == [CODE, "One line."]
    for form in ("markdown", "json"):
        shell(f"export runs/seed --format {form} --output again-{form}")
        shell(f"space import again-{form} --out runs/{form}")
        assert shell.texts(f"runs/{form}") == [CODE, "One line."]


def test_learning_starts_from_a_playbook_or_from_another_run(shell: Shell) -> None:
    shell.file("AGENTS.md", "## strategies\n\n- Look twice.\n")
    how = "--model scripted:script.jsonl --choices auto --out"
    value = shell.json(f"learn train.jsonl --seed-playbook AGENTS.md {how} runs/third")
    assert value["entries"][0]["text"] == "Look twice."
    assert shell.texts("runs/third", "--version", 0) == ["Look twice."]
    again = shell.json(f"learn train.jsonl --seed-playbook runs/third {how} runs/fourth")
    assert {e["text"] for e in value["entries"]} <= {e["text"] for e in again["entries"]}
    assert shell.texts("runs/fourth", "--version", 0) == [e["text"] for e in value["entries"]]


def test_the_sections_of_a_playbook_are_yours(shell: Shell, model: Model) -> None:
    shell.file("own.md", OWN)
    learn = f"learn train.jsonl --steps 1 --batch-size 2 --model {model.name}"
    named = {
        "seeded": (f"{learn} --seed-playbook own.md", "Code"),
        "listed": (f"{learn} --sections 'checks, code'", "checks"),
        "file": (f"{learn} --sections sections.txt", "rules"),
        "default": (learn, "strategies"),
        "small": (f"{learn} --profile small", "rules"),
    }
    shell.file("sections.txt", "rules: what to do\ncode\n")
    sections = {}
    for name, (typed, _) in named.items():
        shell.json(typed, "--out", name)
        sections[name] = shell.json("show", name)["sections"]
    assert {name: next(iter(found)) for name, found in sections.items()} == {n: one for n, (_, one) in named.items()}
    assert [*sections["listed"]] == ["checks", "code"]
    assert sections["file"] == {"rules": "what to do", "code": ""}
    assert [*sections["default"]] == [
        "strategies", "facts and formulas", "tools and formats", "code", "pitfalls", "checks",
    ]  # fmt: skip
    assert [*sections["small"]] == ["rules"]


def test_a_section_that_does_not_exist_is_counted_and_its_entry_kept(shell: Shell) -> None:
    value = shell.json(
        "learn train.jsonl --model scripted:script.jsonl --choices auto --sections 'checks, code' --out run"
    )
    assert {entry["section"] for entry in value["entries"]} == {"checks"}
    assert value["errors"][Count.UNKNOWN_SECTIONS.value] >= 1


def test_an_edited_playbook_is_a_new_version(shell: Shell) -> None:
    shell("export runs/first --output playbook.md")
    text = (shell / "playbook.md").read_text(encoding="utf-8")
    kept = "\n".join(line for line in text.splitlines() if "[e2]" not in line)
    shell.file("playbook.md", kept.replace("screen, answer K7", "screen, answer K8") + "\n- Look twice.\n")
    shell.fails("space edit runs/first --file playbook.md")  # a deletion is asked about
    assert shell.json("show runs/first")["version"] == 11
    value = shell.json("space edit runs/first --file playbook.md --yes")
    assert (value["version"], [e["text"] for e in value["added"]]) == (12, ["Look twice."])
    assert [e["id"] for e in value["removed"]] == ["e2"]
    entries = {e["id"]: e for e in shell.json("show runs/first")["entries"]}
    assert (entries["e1"]["text"], entries["e1"]["helpful"]) == ("If it is about screen, answer K8.", 3)


def test_an_editor_changes_the_playbook(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = shell.file("editor.py", "import sys\np = sys.argv[1]\nt = open(p).read().replace('K7', 'K8')\n"
                                     "open(p, 'w').write(t)\n")  # fmt: skip
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    assert shell.json("space edit runs/first")["version"] == 12
    assert shell.texts("runs/first")[1] == "If it is about screen, answer K8."
    assert shell.json("space edit runs/first")["version"] is None  # nothing was changed
    monkeypatch.setenv("EDITOR", "no-such-editor")
    shell.fails("space edit runs/first")
    monkeypatch.delenv("EDITOR")
    shell.fails("space edit runs/first")


def test_a_text_that_cannot_be_applied_is_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = shell.file("editor.py", "import sys\nopen(sys.argv[1], 'a').write('\\n- [e0] Twice.\\n')\n")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {editor}")
    monkeypatch.setenv("TMPDIR", str(shell.folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    said = shell.fails("space edit runs/first")
    kept = re.search(r"practicum space edit runs/first --file (\S+)", said)
    assert kept
    assert "[e0] Twice." in Path(kept[1]).read_text(encoding="utf-8")
    assert shell.json("show runs/first")["version"] == 11


def test_two_runs_or_playbook_files_are_compared(shell: Shell) -> None:
    shell("space import runs/first --out runs/copy")
    assert shell.json("space diff runs/first runs/copy") == {"added": [], "removed": [], "changed": []} | {
        key: value
        for key, value in shell.json("space diff runs/first runs/copy").items()
        if key not in ("added", "removed", "changed")
    }
    shell.file("b.md", "## strategies\n- If it is about screen, answer K7.\n- New.\n")
    value = shell.json("space diff runs/first b.md")
    assert [e["text"] for e in value["added"]] == ["New."]
    assert {e["text"] for e in value["removed"]} == {RULES["e0"], RULES["e2"]}


# ---- scores


def test_a_context_is_scored_with_the_settings_of_its_run(workshop: Shell) -> None:
    value = workshop.json("eval test.jsonl --context runs/first")
    assert (value["score"], value["n"], value["usage"]["calls"]) == (1.0, 4, 4)
    assert [round(bound, 3) for bound in value["ci95"]] == [0.51, 1.0]
    assert [(a["id"], a["value"], a["correct"], a["error"]) for a in value["attempts"]] == [
        (id, 1.0, True, None) for id in ("r9", "r10", "r11", "r12")
    ]
    assert all("note" in attempt for attempt in value["attempts"])


def test_without_a_context_the_agent_is_scored_with_an_empty_one(workshop: Shell) -> None:
    value = workshop.json("eval test.jsonl --model scripted:script.jsonl --choices K2,K5,K7,K9")
    assert value["score"] == 0.25
    assert [round(bound, 3) for bound in value["ci95"]] == [0.046, 0.699]
    workshop.fails("eval test.jsonl --model scripted:script.jsonl --choices auto")


def test_a_playbook_file_is_scored(shell: Shell) -> None:
    shell.file("own.md", "## strategies\n- If it is about screen, answer K7.\n")
    value = shell.json("eval test.jsonl --context own.md --model scripted:script.jsonl --choices K2,K5,K7,K9")
    assert value["score"] == 0.5


def test_repeat_attempts_each_task_several_times(shell: Shell, model: Model) -> None:
    value = shell.json(f"eval test.jsonl --model {model.name} --repeat 3 --temperature 0.7")
    assert (value["usage"]["calls"], len(model.bodies), value["n"]) == (12, 12, 4)
    assert {body["temperature"] for body in model.bodies} == {0.7}


def test_an_evaluation_that_is_kept_goes_on_and_pays_nothing_twice(shell: Shell, model: Model) -> None:
    kept = f"eval test.jsonl --model {model.name} --out kept"
    first, again = shell.json(kept), shell.json(kept)
    assert len(model.bodies) == 4
    assert (again["score"], again["attempts"]) == (first["score"], first["attempts"])


# ---- asking a run


def test_a_query_is_answered_with_the_entries_that_were_retrieved_and_used(workshop: Shell) -> None:
    value = workshop.json('run --context runs/bank "The screen of my phone is dark."')
    assert value["answer"] == "K7"
    assert [e["id"] for e in value["used"]] == ["e2"]
    found = value["memories"]
    assert found[0]["id"] == "e2"
    assert [e["similarity"] for e in found] == sorted((e["similarity"] for e in found), reverse=True)
    assert [a["answer"] for a in value["attempts"]] == ["K7", "K7"]
    assert (value["choice"]["by"], value["choice"]["of"], value["usage"]["calls"]) == ("agreement", 2, 2)
    assert value["learned"] is None


def test_a_query_changes_nothing_in_the_run(workshop: Shell) -> None:
    before = all_bytes(workshop / "runs/bank")
    workshop('run --context runs/bank "The screen of my phone is dark."')
    assert all_bytes(workshop / "runs/bank") == before


def test_a_query_is_read_from_standard_input(workshop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("The screen of my phone is dark."))
    assert workshop.json("run --context runs/bank -")["answer"] == "K7"


def test_how_a_query_is_attempted_can_be_chosen(workshop: Shell) -> None:
    query = 'run --context runs/bank "The screen of my phone is dark."'
    assert workshop.json(f"{query} --scaling none")["usage"]["calls"] == 1
    assert workshop.json(f"{query} --scaling parallel --k 3")["usage"]["calls"] == 3
    assert len(workshop.json(f"{query} --preset critical")["attempts"]) > 2
    workshop.fails(f"{query} --preset heroic")


def test_a_query_takes_a_playbook_file(shell: Shell) -> None:
    shell.file("own.md", "## strategies\n- If it is about screen, answer K7.\n")
    value = shell.json("run 'A dark screen.' --context own.md --method ace --model scripted:script.jsonl")
    assert (value["answer"], [e["text"] for e in value["used"]]) == ("K7", ["If it is about screen, answer K7."])


def test_the_page_of_one_answer_is_written(shell: Shell) -> None:
    shell.file("own.md", "## strategies\n- If it is about screen, answer K7.\n")
    shell("run 'A dark screen.' --context own.md --model scripted:script.jsonl --trace-out page.html")
    page = (shell / "page.html").read_text(encoding="utf-8")
    assert "A dark screen." in page
    assert "K7" in page


def test_a_run_learns_from_a_query_as_a_step_that_forget_and_rollback_treat_like_any_other(shell: Shell) -> None:
    value = shell.json('run --context runs/bank --learn --target K9 "All files are gone."')
    assert (value["answer"], value["learned"]["step"], value["learned"]["version"]) == ("K2", 9, 7)
    assert [e["id"] for e in value["learned"]["applied"]] == ["e5"]
    assert [e["id"] for e in shell.json("space diff runs/bank 6 7")["added"]] == ["e5"]
    assert shell.json("show runs/bank --entry e5")["attempts"]
    shell("space rollback runs/bank 6 --yes")
    assert "e5" not in [e["id"] for e in shell.json("show runs/bank")["entries"]]
    removed = shell.json("space forget runs/bank --task asked-9 --yes --no-copy")
    assert removed["left"] == 0
    assert b"All files are gone." not in all_bytes(shell / "runs/bank")


# ---- memories


def test_memories_are_listed_and_searched_by_outcome_tag_and_number(workshop: Shell) -> None:
    listed = workshop.json("space memory list runs/bank --outcome failure")["entries"]
    assert [e["id"] for e in listed] == ["e0", "e1", "e2", "e3", "e4"]
    assert workshop.json("space memory list runs/bank --outcome success")["entries"] == []
    assert [e["id"] for e in workshop.json("space memory list runs/bank -k 2")["entries"]] == ["e3", "e4"]
    tagged = workshop.json("space memory list runs/bank --tag laptop")["entries"]
    assert [e["id"] for e in tagged] == ["e1", "e3", "e4"]
    (found,) = workshop.json('space memory search runs/bank "a broken display" -k 1')["entries"]
    assert found["id"] == "e2"
    assert 0 < found["similarity"] < 1


def test_memories_are_added_and_removed_each_as_a_new_version(shell: Shell) -> None:
    shell.copy("runs/bank", "bank")
    value = shell.json("space memory add bank mine.jsonl")
    assert (value["version"], [e["id"] for e in value["added"]]) == (7, ["e5"])
    assert value["added"][0]["data"]["outcome"] == "failure"
    (found,) = shell.json('space memory search bank "a phone that fell into water" -k 1')["entries"]
    assert found["id"] == "e5"
    assert shell.json("space memory remove bank e0")["version"] == 8
    assert "e0" not in [e["id"] for e in shell.json("space memory list bank")["entries"]]
    shell.fails("space memory remove bank e0")
    write_lines(shell / "plain.jsonl", [{"text": "Be brief."}])
    assert shell.json("space memory add bank plain.jsonl --section style")["added"][0]["section"] == "style"
    assert [e["text"] for e in shell.json("space memory list bank --section style")["entries"]] == ["Be brief."]
    assert shell.json("space memory reembed bank")["embedded"] > 0


@pytest.mark.parametrize("form", ["markdown", "json", "list"])
def test_memories_are_added_from_a_playbook_or_a_list(shell: Shell, form: str) -> None:
    shell.file("own.md", "## rules\n- Be brief.\n- Be kind.\n")
    shell("space import own.md --out seed")
    shell(f"export seed --format {form if form != 'list' else 'json'} --output own")
    if form == "list":
        shell.file("own", json.dumps([{"text": "Be brief."}, {"text": "Be kind."}]))
    value = shell.json("space memory add runs/bank own --section style")
    assert [(e["section"], e["text"]) for e in value["added"]] == [("style", "Be brief."), ("style", "Be kind.")]


# ---- forgetting


def test_what_was_learned_from_a_task_is_removed_for_good(shell: Shell) -> None:
    shell.fails("space forget runs/first --task r7")  # it is asked for
    value = shell.json("space forget runs/first --task r7 --yes")
    assert [e["text"] for e in value["removed"]] == [RULES["e1"]]
    assert value["left"] == 0
    assert (shell / "runs/first-before-forget").is_dir()
    assert RULES["e1"] in shell.texts("runs/first-before-forget")
    assert b"Half of the screen stays black" not in all_bytes(shell / "runs/first")


# ---- your own agent


def test_a_program_is_an_agent(shell: Shell) -> None:
    """It reads one JSON line with the task and the context, and prints one with the answer. No model is asked."""
    program = f"command:{sys.executable} {ROOT / 'examples' / 'agent_command.py'}"
    shell.file("short.jsonl", "".join((shell / "test.jsonl").read_text().splitlines(keepends=True)[1:3]))
    value = shell.json(
        "learn train.jsonl --test short.jsonl --method episodes --set k=8 --batch-size 8 --out run --agent", program
    )
    assert value["scores"]["test"] == 1.0
    assert value["usage"]["calls"] == 0


def test_a_program_is_told_the_task_without_its_target(shell: Shell) -> None:
    shell.file("spy.py", "import sys\nopen('seen', 'a').write(sys.stdin.readline())\nprint('{\"answer\": \"K5\"}')\n")
    value = shell.json("eval test.jsonl --choices K2,K5,K7,K9 --agent", f"command:{sys.executable} spy.py")
    assert value["score"] == 0.25
    seen = [json.loads(line) for line in (shell / "seen").read_text(encoding="utf-8").splitlines()]
    assert {task["task"]["id"] for task in seen} == {"r9", "r10", "r11", "r12"}
    assert all({*line["task"]} == {"id", "input"} for line in seen)


def test_a_function_is_an_agent_and_another_one_a_scorer(shell: Shell) -> None:
    shell.file("mine_cli.py", "async def agent(text, context):\n    return 'K5'\n\n"
                              "def half(task, answer):\n    return 0.5 if answer == task.target else 0\n")  # fmt: skip
    value = shell.json("eval test.jsonl --agent mine_cli:agent --scorer mine_cli:half")
    assert [a["value"] for a in value["attempts"]] == [0, 0.5, 0, 0]


def test_a_stream_is_predicted_before_it_is_learned_from(shell: Shell) -> None:
    value = shell.json("learn train.jsonl --online --choices auto --model scripted:script.jsonl --out run")
    assert [*value["scores"]] == ["online"]
    attempts = [a for a in shell.json("show run --attempts")["attempts"] if a["split"] == "train"]
    assert value["scores"]["online"] == sum(a["correct"] for a in attempts) / 8
