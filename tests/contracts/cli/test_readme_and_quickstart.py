"""From installation to an agent that learned, on the command line."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import practicum
from practicum import Count

from .conftest import INSTRUCTIONS
from .kit import Model, Shell, all_bytes, write_lines

TEAMS = ("Alder", "Birch", "Cedar", "Hazel", "Juniper", "Maple", "Rowan", "Willow")
RULES = {"e0": "If it is about battery, answer K5.", "e1": "If it is about screen, answer K7.",
         "e2": "If it is about files, answer K9."}  # fmt: skip


def test_commands_are_listed_and_have_help(workshop: Shell) -> None:
    every = workshop("help").out
    for command in ("learn", "serve", "space resume", "space memory add", "key remove", "bench paper", "store copy"):
        assert re.search(rf"(?m)^  {command}  ", every), command
        text = workshop(f"{command} --help").out
        assert f"Usage: practicum {command}" in text
        assert workshop(f"help {command}").out == text


def test_the_demo_learns_to_route_messages_to_teams_with_opaque_names(shell: Shell) -> None:
    """136 support messages to learn from, 64 held out, 8 teams; the nearest solved ones raise the score."""
    nearest = {"match": rf"\n({'|'.join(TEAMS)})\n[^\n]*\Z", "answer": {"answer": r"\1"}}
    write_lines(shell / "nearest.jsonl", [{"role": "agent", **nearest}, {"role": "agent", "answer": "Alder"}])
    done = shell("demo --model scripted:nearest.jsonl --out runs/demo --json")
    assert done.json["before"] < 0.25 < 0.75 < done.json["after"]
    assert done.json["run"] == "runs/demo"
    assert all(part in done.err for part in ("136", "64", *TEAMS))
    assert len(shell.texts("runs/demo")) == 136


def test_learning_without_labels_sees_neither_targets_nor_scores(shell: Shell, model: Model) -> None:
    tasks = [json.loads(line) for line in (shell / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    write_lines(shell / "secret.jsonl", [{**task, "target": "zebra"} for task in tasks])
    value = shell.json(f"learn secret.jsonl --no-labels --steps 1 --model {model.name} --batch-size 4 --out run")
    assert value["usage"]["calls"] == len(model.bodies) > 4
    assert not any("zebra" in text for text in model.texts)


def test_learning_with_ace_raises_the_score_and_counts_the_usage_of_each_role(
    workshop: Shell, first: dict[str, Any]
) -> None:
    scores = {"before": 0.25, "test": 1.0}
    assert (first["run"], first["version"], first["context_tokens"], first["scores"]) == ("runs/first", 11, 39, scores)
    assert {entry["id"]: entry["text"] for entry in first["entries"]} == RULES
    assert {entry["section"] for entry in first["entries"]} == {"strategies"}
    calls = {role: usage["calls"] for role, usage in first["by_role"].items()}
    assert calls == {"agent": 24, "reflector": 16, "curator": 3}
    for part in ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd"):
        assert first["usage"][part] == sum(usage[part] for usage in first["by_role"].values())
    assert (first["usage"]["calls"], first["journal"]) == (43, {"hits": 0})

    shown = workshop.json("show runs/first")
    parts = ("state", "method", "version", "versions", "steps", "tokens", "helpful", "held", "scores")
    assert [shown[part] for part in parts] == ["done", "ace", 11, 12, 16, 39, 8, 0, scores]
    votes = {e["id"]: (e["helpful"], e["harmful"], e["uses"]) for e in shown["entries"]}
    assert votes == {"e0": (3, 0, 3), "e1": (3, 0, 3), "e2": (2, 0, 2)}
    assert "If it is about screen, answer K7.  (+3/-0" in workshop("show runs/first").out


def test_the_agent_gets_the_choices_and_the_instructions(workshop: Shell, shell: Shell, model: Model) -> None:
    """`--choices auto` are the targets; instructions are an option or a file."""
    call = next(call for call in workshop.json("show runs/first --calls")["calls"] if call["role"] == "agent")
    prompt = json.dumps(workshop.json("show runs/first --call", call["id"]))
    assert "K2; K5; K7; K9" in prompt
    assert INSTRUCTIONS in prompt
    shell.file("pirate.txt", "Speak like a pirate.\n")
    shell.json(f"eval test.jsonl --model {model.name} --instructions @pirate.txt")
    assert len(model.texts) == 4
    assert all("Speak like a pirate." in text for text in model.texts)


def test_a_run_without_out_is_stored_in_a_new_folder_below_runs(shell: Shell) -> None:
    runs = [shell.json("learn train.jsonl --method none --model scripted:script.jsonl")["run"] for _ in range(2)]
    assert len({*runs}) == 2
    assert all(Path(run).parent.name == "runs" and (shell / run / "practicum.sqlite").exists() for run in runs)


def test_diff_compares_versions_runs_and_playbook_files(shell: Shell) -> None:
    value = shell.json("space diff runs/first 1 3")
    assert ([e["id"] for e in value["added"]], value["removed"], value["changed"]) == (["e1"], [], [])
    assert [e["id"] for e in shell.json("space diff runs/first 3 1")["removed"]] == ["e1"]
    shell("space import runs/first --out runs/copy")
    value = shell.json("space diff runs/first runs/copy")
    assert (value["added"], value["removed"], value["changed"]) == ([], [], [])
    shell.file("b.md", "## strategies\n- If it is about screen, answer K7.\n- New.\n")
    value = shell.json("space diff runs/first b.md")
    assert [e["text"] for e in value["added"]] == ["New."]
    assert {e["text"] for e in value["removed"]} == {RULES["e0"], RULES["e2"]}


def test_the_playbook_is_exported_to_standard_output_or_a_file_with_the_same_bytes(shell: Shell) -> None:
    for form in ("markdown", "json"):
        printed = shell(f"export runs/first --format {form}").out
        assert shell.json(f"export runs/first --format {form}")["text"] == printed
        shell(f"export runs/first --format {form} --output none/yet/OUT")
        assert (shell / "none" / "yet" / "OUT").read_text(encoding="utf-8") == printed
        assert all(text in printed for text in RULES.values())


def test_rollback_makes_an_earlier_version_the_last_one_and_resume_continues_from_it(
    shell: Shell,
) -> None:
    assert shell.json("space rollback runs/first 3 --yes") == {"run": "runs/first", "version": 12, "as": 3}
    assert shell.texts("runs/first") == shell.texts("runs/first", "--version", 3) == [RULES["e0"], RULES["e1"]]
    assert shell.texts("runs/first", "--version", 11) == [*RULES.values()]
    assert "test" not in shell.json("show runs/first")["scores"]  # the score was that of version 11
    shell("space rollback runs/first 11 --yes")
    assert shell.json("show runs/first")["scores"] == {"before": 0.25, "test": 1.0}
    shell("space rollback runs/first 3 --yes")
    value = shell.json("space resume runs/first")
    assert sorted(entry["text"] for entry in value["entries"]) == sorted(RULES.values())
    assert value["scores"]["test"] == 1.0
    assert value["usage"]["calls"] > 43


def test_a_name_is_accepted_in_place_of_a_version(shell: Shell) -> None:
    assert shell.json("space name runs/first prod 1") == {"run": "runs/first", "names": {"prod": 1}}
    assert shell.json("space name runs/first last")["names"] == {"prod": 1, "last": 11}
    assert shell.texts("runs/first", "--version", "prod") == shell.texts("runs/first@prod") == [RULES["e0"]]
    assert len(shell.json("space diff runs/first prod last")["added"]) == 2
    assert shell.json("eval test.jsonl --context runs/first@prod")["score"] < 1.0
    assert shell.json("space import runs/first@prod --out seeded")["entries"] == 1
    assert shell.json("run --context runs/first@prod hello")["version"] == 1
    early = shell("export runs/first --version 1").out
    assert RULES["e1"] not in early
    assert shell("export runs/first --version prod").out == shell("export runs/first@prod").out == early
    assert shell.json("space name runs/first prod 3")["names"]["prod"] == 3
    assert shell.json("space name runs/first prod --delete")["names"] == {"last": 11}
    shell.fails("show runs/first --version prod")
    shell.fails("space name runs/first missing --delete")
    shell.fails("space name runs/first x 99")


def test_learning_starts_from_another_run_in_sections_of_a_list_a_file_or_the_profile(shell: Shell) -> None:
    shell.file("sections.txt", "rules: what to do\ncode\n")
    learn = "learn train.jsonl --model scripted:script.jsonl --choices auto"
    value = shell.json(f"{learn} --seed-playbook runs/first --sections sections.txt --steps 1 --out seeded")
    assert {*RULES.values()} <= {e["text"] for e in value["entries"]}
    assert shell.texts("seeded", "--version", 0) == [*RULES.values()]
    assert shell.json("show seeded")["sections"] == {"rules": "what to do", "code": ""}
    value = shell.json(f"{learn} --steps 2 --sections 'checks, code' --out listed")
    assert [*shell.json("show listed")["sections"]] == ["checks", "code"]
    assert [*shell.json("show runs/first")["sections"]] == [
        "strategies", "facts and formulas", "tools and formats", "code", "pitfalls", "checks",
    ]  # fmt: skip
    # An entry for a missing section is stored in the first one, and counted.
    assert {entry["section"] for entry in value["entries"]} == {"checks"}
    assert value["errors"][Count.UNKNOWN_SECTIONS.value] >= 1


def test_an_edited_playbook_is_a_new_version(shell: Shell) -> None:
    shell("export runs/first --output playbook.md")
    text = (shell / "playbook.md").read_text(encoding="utf-8")
    rest = "\n".join(line for line in text.splitlines() if "[e2]" not in line)
    shell.file("playbook.md", rest.replace("screen, answer K7", "screen, answer K8") + "\n- Look twice.\n")
    shell.fails("space edit runs/first --file playbook.md")  # a deletion needs a confirmation
    assert shell.json("show runs/first")["version"] == 11
    value = shell.json("space edit runs/first --file playbook.md --yes")
    assert (value["version"], [e["text"] for e in value["added"]]) == (12, ["Look twice."])
    assert [e["id"] for e in value["removed"]] == ["e2"]
    entries = {e["id"]: e for e in shell.json("show runs/first")["entries"]}
    assert (entries["e1"]["text"], entries["e1"]["helpful"]) == ("If it is about screen, answer K8.", 3)


def test_an_editor_changes_the_playbook_and_a_text_that_cannot_be_applied_is_saved(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = "import sys\np = sys.argv[1]\nt = open(p).read().replace('K7', 'K8')\nopen(p, 'w').write(t)\n"
    twice = shell.file("twice.py", "import sys\nopen(sys.argv[1], 'a').write('\\n- [e0] Twice.\\n')\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} -S {shell.file('editor.py', replace)}")
    assert shell.json("space edit runs/first")["version"] == 12
    assert shell.texts("runs/first")[1] == "If it is about screen, answer K8."
    assert shell.json("space edit runs/first")["version"] is None  # nothing was changed
    monkeypatch.setenv("EDITOR", "no-such-editor")
    shell.fails("space edit runs/first")
    monkeypatch.setenv("TMPDIR", str(shell.folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("VISUAL", f"{sys.executable} -S {twice}")
    saved = re.search(r"practicum space edit runs/first --file (\S+)", shell.fails("space edit runs/first"))
    assert saved
    assert "[e0] Twice." in Path(saved[1]).read_text(encoding="utf-8")
    assert shell.json("show runs/first")["version"] == 12
    monkeypatch.delenv("VISUAL")
    monkeypatch.delenv("EDITOR")
    shell.fails("space edit runs/first")


def test_a_retired_entry_is_moved_back_in_the_editor_and_has_no_votes_then(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def retire() -> None:
        async with practicum.open(shell / "runs/first") as space:
            await space.edit(practicum.Vote("e1", harmful=9), practicum.Update("e1", section=".retired rules"))

    practicum.run_sync(retire())
    before = {entry["id"]: entry for entry in shell.json("show runs/first")["entries"]}
    monkeypatch.delenv("VISUAL", raising=False)

    def edited(heading: str, old: str = "Retired: rules") -> dict[str, Any]:
        replace = f"t = open(p).read().replace('## {old}', '## {heading}')"
        script = shell.file("editor.py", f"import sys\np = sys.argv[1]\n{replace}\nopen(p, 'w').write(t)\n")
        monkeypatch.setenv("EDITOR", f"{sys.executable} -S {script}")
        return shell.json("space edit runs/first")

    assert edited("Retired: rules")["version"] is None  # a retired entry that stays is unchanged
    export = shell.file("export.md", "## rules\n\n- [e1] Look.\n")  # an export has no retired entries
    shell.fails(f"space edit runs/first --file {export}", error="entry.unknown")
    value = edited("rules")
    assert value["added"] == []
    after = {entry["id"]: entry for entry in shell.json("show runs/first")["entries"]}
    assert after.keys() == before.keys()
    entry = after["e1"]
    assert (entry["section"], entry["text"], entry["helpful"], entry["harmful"]) == ("rules", RULES["e1"], 0, 0)
    assert {*before["e1"]["sources"]} < {*entry["sources"]}
    assert edited("Retired: rules", "rules")["version"] == value["version"] + 1
    retired = {entry["id"]: entry["section"] for entry in shell.json("show runs/first")["entries"]}
    assert retired["e1"] == ".retired rules"


def test_a_context_is_scored_with_the_settings_of_its_run(workshop: Shell) -> None:
    value = workshop.json("eval test.jsonl --context runs/first")
    assert (value["score"], value["n"], value["usage"]["calls"]) == (1.0, 4, 4)
    assert [round(bound, 3) for bound in value["ci95"]] == [0.51, 1.0]
    assert [(a["id"], a["value"], a["correct"], a["error"]) for a in value["attempts"]] == [
        (id, 1.0, True, None) for id in ("r9", "r10", "r11", "r12")
    ]
    assert all("note" in attempt for attempt in value["attempts"])
    value = workshop.json("eval test.jsonl --model scripted:script.jsonl --choices K2,K5,K7,K9")
    assert (value["score"], [round(bound, 3) for bound in value["ci95"]]) == (0.25, [0.046, 0.699])


def test_a_program_is_an_agent_and_reads_the_task_without_its_target(shell: Shell) -> None:
    shell.file("spy.py", "import sys\nopen('seen', 'a').write(sys.stdin.readline())\nprint('{\"answer\": \"K5\"}')\n")
    shell.file("short.jsonl", "".join((shell / "test.jsonl").read_text().splitlines(keepends=True)[:2]))
    value = shell.json("eval short.jsonl --choices K2,K5,K7,K9 --agent", f"command:{sys.executable} spy.py")
    assert (value["score"], value["usage"]["calls"]) == (0.5, 0)
    lines = [json.loads(line) for line in (shell / "seen").read_text(encoding="utf-8").splitlines()]
    assert {line["task"]["id"] for line in lines} == {"r9", "r10"}
    assert all({*line["task"]} == {"id", "input"} for line in lines)


def test_a_stream_is_predicted_before_it_is_learned_from(shell: Shell) -> None:
    value = shell.json("learn train.jsonl --online --choices auto --model scripted:script.jsonl --out run")
    assert [*value["scores"]] == ["online"]
    attempts = [a for a in shell.json("show run --attempts")["attempts"] if a["split"] == "train"]
    assert value["scores"]["online"] == sum(a["correct"] for a in attempts) / 8


QUERY = 'run --context runs/bank "The screen of my phone is dark."'


def test_a_query_is_answered_with_the_retrieved_entries_and_changes_nothing(workshop: Shell) -> None:
    workshop("show runs/bank")  # moves the last writes into the database file
    before = all_bytes(workshop / "runs/bank")
    value = workshop.json(QUERY)
    assert value["answer"] == "K7"
    assert [e["id"] for e in value["used"]] == ["e2"]
    memories = value["memories"]
    assert memories[0]["id"] == "e2"
    assert [e["similarity"] for e in memories] == sorted((e["similarity"] for e in memories), reverse=True)
    assert [a["answer"] for a in value["attempts"]] == ["K7", "K7"]
    assert (value["choice"]["by"], value["choice"]["of"], value["usage"]["calls"]) == ("agreement", 2, 2)
    assert value["learned"] is None
    assert all_bytes(workshop / "runs/bank") == before


def test_the_number_of_attempts_at_a_query_is_an_option(workshop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("The screen of my phone is dark."))
    value = workshop.json("run --context runs/bank - --scaling none")
    assert (value["answer"], value["usage"]["calls"]) == ("K7", 1)
    assert len(workshop.json(f"{QUERY} --preset critical")["attempts"]) > 2
    workshop.fails(f"{QUERY} --preset heroic")


def test_a_query_takes_a_playbook_file_and_writes_its_page(shell: Shell) -> None:
    shell.file("own.md", "## strategies\n- If it is about screen, answer K7.\n")
    how = "--context own.md --method ace --model scripted:script.jsonl --trace-out page.html"
    value = shell.json(f"run 'A dark screen.' {how}")
    assert (value["answer"], [e["text"] for e in value["used"]]) == ("K7", ["If it is about screen, answer K7."])
    page = (shell / "page.html").read_text(encoding="utf-8")
    assert "A dark screen." in page
    assert "K7" in page


def test_a_run_learns_from_a_query_as_a_step_that_can_be_undone_and_forgotten(shell: Shell) -> None:
    value = shell.json('run --context runs/bank --learn --target K9 "All files are lost."')
    assert (value["answer"], value["learned"]["step"], value["learned"]["version"]) == ("K2", 9, 7)
    assert [e["id"] for e in value["learned"]["applied"]] == ["e5"]
    assert shell.json("show runs/bank --entry e5")["attempts"]
    shell("space rollback runs/bank 6 --yes")
    assert "e5" not in [e["id"] for e in shell.json("show runs/bank")["entries"]]
    assert shell.json("space forget runs/bank --task asked-9 --yes --no-copy")["left"] == 0
    assert b"All files are lost." not in all_bytes(shell / "runs/bank")


def test_memories_are_listed_and_searched_by_outcome_tag_and_number(workshop: Shell) -> None:
    for options, ids in {"--outcome failure": ["e0", "e1", "e2", "e3", "e4"], "--outcome success": [],
                         "-k 2": ["e3", "e4"], "--tag laptop": ["e1", "e3", "e4"]}.items():  # fmt: skip
        assert [e["id"] for e in workshop.json(f"space memory list runs/bank {options}")["entries"]] == ids
    (match,) = workshop.json('space memory search runs/bank "a broken display" -k 1')["entries"]
    assert match["id"] == "e2"
    assert 0 < match["similarity"] < 1


def test_memories_are_added_and_removed_each_as_a_new_version(shell: Shell) -> None:
    value = shell.json("space memory add runs/bank mine.jsonl")
    assert (value["version"], [e["id"] for e in value["added"]]) == (7, ["e5"])
    assert value["added"][0]["data"]["outcome"] == "failure"
    (match,) = shell.json('space memory search runs/bank "a phone that fell into water" -k 1')["entries"]
    assert match["id"] == "e5"
    assert shell.json("space memory remove runs/bank e0")["version"] == 8
    assert "e0" not in [e["id"] for e in shell.json("space memory list runs/bank")["entries"]]
    shell.fails("space memory remove runs/bank e0")
    shell.file("own.md", "## rules\n- Be brief.\n- Be kind.\n")
    value = shell.json("space memory add runs/bank own.md --section style")
    assert [(e["section"], e["text"]) for e in value["added"]] == [("style", "Be brief."), ("style", "Be kind.")]
    assert shell.json("space memory reembed runs/bank")["embedded"] > 0
