"""Captured sessions become lessons that wait for review, and then lines of CLAUDE.md."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, run_command

from practicum.core import instructions
from practicum.session.records import load_context

LESSON = "If a number is a price, use Decimal."
OWN = "# Shop\n\nRun `make test` before you commit.\n\n## Style\n\n- No abbreviations.\n"
RULES = [
    {"role": "reflector", "match": "Decimal", "answer": {
        "reasoning": "", "diagnosis": "It used float.", "cause": "", "correction": "", "tags": [],
        "insights": [{"section": "checks", "text": LESSON}]}},
    {"role": "reflector", "answer": {
        "reasoning": "", "diagnosis": "", "cause": "", "correction": "", "tags": [], "insights": []}},
    {"role": "curator", "answer": {"changes": [{"op": "ADD", "insights": [1], "reason": "new"}]}},
    {"role": "judge", "answer": {"reasoning": "", "correct": True}},
]  # fmt: skip


class Desk:
    """A repository with a CLAUDE.md, a store, and a model that has one lesson about prices."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project, self.store = folder, folder / "shop", folder / "store"
        self.project.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        (self.project / "CLAUDE.md").write_text(OWN)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "first")
        (folder / "script.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in RULES))

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=n@localhost")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=self.project, check=True, capture_output=True, text=True
        ).stdout

    def session(self, name: str, *turns: tuple[str, str | dict[str, Any]]) -> Path:
        """Write a session of Claude Code, and note it as the hook does."""
        path = self.folder / f"{name}.jsonl"
        lines = []
        for role, text in turns:
            about = {"sessionId": name, "uuid": f"{name}-{len(lines)}", "parentUuid": None, "cwd": str(self.project)}
            part = {"type": "text", "text": text} if isinstance(text, str) else text
            lines.append({**about, "type": role, "message": {"role": role, "content": [part]}})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        event = {"session_id": name, "transcript_path": str(path), "cwd": str(self.project), "reason": "other"}
        self("capture", "claude-code", json.dumps(event), "--store", self.store)
        return path

    def __call__(self, *arguments: object) -> Done:
        done = run_command(arguments, self.folder)
        assert done.code == 0, done.err
        return done

    def night(self, *options: object) -> dict[str, Any]:
        """The only project of a night."""
        model = ("--model", f"scripted:{self.folder / 'script.jsonl'}")
        value = self("nightly", "--store", self.store, *model, *options, "--json").json
        assert value["problems"] == []
        (project,) = value["projects"]
        return dict(project)

    @property
    def claude(self) -> str:
        return (self.project / "CLAUDE.md").read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


EDIT = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"old_string": "0", "new_string": "float(0)"}}
PRICES: tuple[tuple[str, Any], ...] = (
    ("user", "Add up the prices of the basket."), ("assistant", EDIT), ("assistant", "Done, with float."),
    ("user", "No, use Decimal for prices!"), ("assistant", "Now with Decimal."),
)  # fmt: skip
OTHER = (("user", "Rename the module basket to cart."), ("assistant", "Renamed."))


def test_a_lesson_waits_with_its_session_and_is_written_after_the_approval(desk: Desk) -> None:
    desk.session("s1", *PRICES)
    night = desk.night("--apply")
    assert night["applied"] == []
    assert night["waiting"] == {"1.1": ["s1/1"]}
    assert f"+- {LESSON}" in night["diff"]
    assert Path(night["diff_file"]).read_text() == night["diff"]
    assert desk.claude == OWN
    desk("review", night["space"], "--approve", "all", "--yes")
    again = desk.night("--apply")
    assert (again["result"], again["applied"], again["waiting"]) == (None, ["CLAUDE.md"], {})
    assert desk.claude.startswith(OWN + f"\n{instructions.BEGIN}\n")
    assert desk.claude.endswith(f"\n## checks\n\n- {LESSON}\n{instructions.END}\n")
    assert (desk.project / "CLAUDE.md.practicum-backup").read_text() == OWN
    exported = desk.folder / "other" / "CLAUDE.md"
    exported.parent.mkdir()
    exported.write_text(OWN)
    desk("export", night["space"], "--format", "agents-md", "--output", exported)
    assert exported.read_text() == desk.claude


def test_a_night_learns_from_new_and_grown_requests_only(desk: Desk) -> None:
    desk.session("s1", *OTHER)
    assert desk.night()["new"] == 1
    again = desk.night()
    assert (again["new"], again["result"]) == (0, None)
    desk.session("s2", *OTHER[:1], ("assistant", "Renamed it."))
    assert desk.night()["new"] == 1
    desk.session("s1", *OTHER, *PRICES)
    last = desk.night()
    assert (last["new"], last["waiting"]) == (1, {"3.1": ["s1/2"]})


def test_a_complaint_in_any_words_belongs_to_the_request_before_and_is_learned_from_once(desk: Desk) -> None:
    reading = {"messages": [{"message": 2, "begins": False, "work": "wrong"}]}
    rules = [{"role": "judge", "match": "# Session", "answer": reading}, *RULES]
    (desk.folder / "script.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    complaint = "The sum on the receipt of Mrs. Brown is three cents too high since this morning, she says."
    desk.session("s1", *PRICES[:3], ("user", complaint), *PRICES[4:])
    night = desk.night()
    assert (night["new"], night["waiting"]) == (2, {"1.1": ["s1/1"]})
    (attempt,) = desk("show", night["space"], "--attempts", "--json").json["attempts"]
    assert complaint in json.dumps(attempt["feedback"])
    assert desk.night()["new"] == 0


def test_a_night_keeps_its_limit_and_the_next_one_goes_on(desk: Desk) -> None:
    for number in range(4):
        desk.session(f"s{number}", ("user", f"Do the part {number}."), *PRICES[1:])
    first = desk.night("--max-calls", 3)
    assert first["result"]["stopped"]
    assert first["result"]["usage"]["calls"] <= 3
    ids = [one["id"] for one in desk("show", first["space"], "--attempts", "--json").json["attempts"]]
    last = desk.night()["result"]
    assert "stopped" not in last
    after = [one["id"] for one in desk("show", first["space"], "--attempts", "--json").json["attempts"]]
    assert (len(ids) < 4, len(after)) == (True, 4)


def test_the_branch_has_the_proposal_and_a_merge_approves_it(desk: Desk) -> None:
    desk.session("s1", *PRICES)
    (desk.project / "CLAUDE.md").write_text(OWN + "\nNot committed.\n")
    before = desk.git("status", "--porcelain", "--branch"), desk.git("rev-parse", "HEAD")
    name = desk.night("--branch")["branch"]
    assert name.startswith("practicum/")
    assert (desk.git("status", "--porcelain", "--branch"), desk.git("rev-parse", "HEAD")) == before
    assert desk.git("worktree", "list").count("\n") == 1
    assert f"- {LESSON}" in desk.git("show", f"{name}:CLAUDE.md")
    assert "Not committed" not in desk.git("show", f"{name}:CLAUDE.md")
    assert "s1/1" in desk.git("log", "-1", "--format=%B", name)
    assert desk.night("--branch")["branch"] == name
    desk.git("checkout", "--quiet", "CLAUDE.md")
    desk.git("merge", "--quiet", name)
    merged = desk.night()
    assert (merged["waiting"], merged["diff"]) == ({}, "")
    assert LESSON in [entry.text for entry in load_context(merged["space"])]


def test_the_space_follows_the_text_of_the_user(desk: Desk) -> None:
    desk.session("s1", *PRICES)
    space = desk.night()["space"]
    assert [e.text for e in load_context(space)] == ["# Shop\n\nRun `make test` before you commit.",
                                                     "## Style\n\n- No abbreviations."]  # fmt: skip
    (desk.project / "CLAUDE.md").write_text("# Shop\n\nRun `tox`.\n")
    assert "make test" not in desk.night()["diff"]
    assert [e.text for e in load_context(space)] == ["# Shop\n\nRun `tox`."]


def test_a_skill_changes_in_its_own_files(desk: Desk) -> None:
    head = "---\nname: prices\ndescription: Prices. Use when a task is about money.\n---\n"
    skill = f"{head}\n# Prices\n\nIn cents.\n"
    path = desk.project / ".claude" / "skills" / "prices" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(skill)
    script = desk.folder / "script.jsonl"
    script.write_text(script.read_text().replace("checks", "prices"))
    desk.session("s1", *PRICES)
    diff = desk.night()["diff"]
    assert "b/.claude/skills/prices/SKILL.md" in diff
    assert "b/CLAUDE.md" not in diff
    path.write_text(skill.replace("cents", "euros"))
    assert "SKILL.md" not in desk.night()["diff"]


def test_sessions_that_cannot_be_read_are_counted(desk: Desk) -> None:
    desk.session("s1", *OTHER).unlink()
    cut = desk.session("s2", *OTHER)
    cut.write_text(cut.read_text()[:-30])
    desk("capture", "claude-code", "{", "--store", desk.store)
    with (desk.store / "captured.jsonl").open("a") as file:
        file.write("{}\nno\n")
    value = desk("nightly", "--store", desk.store, "--model", f"scripted:{desk.folder / 'script.jsonl'}", "--json").json
    assert (value["unreadable"], value["capture_failures"]) == (2, 1)
    assert (value["missing"], len(value["problems"])) == (1, 1)


def test_a_night_that_was_cut_short_pays_for_no_call_twice(desk: Desk) -> None:
    desk.session("s1", *PRICES)
    script = desk.folder / "script.jsonl"
    rules = script.read_text()
    script.write_text(json.dumps({"role": "curator", "error": "401"}) + "\n" + rules)
    model = ("--model", f"scripted:{script}")
    assert run_command(("nightly", "--store", desk.store, *model), desk.folder).code != 0
    script.write_text(rules)
    result = desk.night()["result"]
    assert result["journal"]["hits"] == 1
    assert result["by_role"]["curator"]["calls"] == 1
    assert "reflector" not in result["by_role"]


def test_a_file_of_one_project_does_not_stop_the_others(desk: Desk) -> None:
    desk.session("s1", *PRICES)
    (desk.project / "CLAUDE.md").write_text(f"{instructions.END}\n")
    desk.project = desk.folder / "other"
    desk.project.mkdir()
    desk.session("s2", *PRICES)
    model = ("--model", f"scripted:{desk.folder / 'script.jsonl'}")
    done = run_command(("nightly", "--store", desk.store, *model, "--json"), desk.folder)
    assert (done.code, len(done.json["problems"])) == (1, 1)
    assert [one["waiting"] for one in done.json["projects"]] == [{"1.1": ["s2/1"]}]


def test_the_limit_holds_for_all_projects_together(desk: Desk) -> None:
    desk.session("s1", *PRICES)
    first, desk.project = desk.project, desk.folder / "other"
    desk.project.mkdir()
    desk.session("s2", *PRICES)
    first.rename(desk.folder / "moved")
    model = ("--model", f"scripted:{desk.folder / 'script.jsonl'}", "--max-calls", "2", "--apply", "--json")
    one, two = desk("nightly", "--store", desk.store, *model).json["projects"]
    assert (one["result"]["usage"]["calls"], two["result"], two["new"]) == (2, None, 1)
    assert (one["diff"].splitlines(), one["applied"]) == (["# 1.1, from s1/1"], [])
    assert not first.exists()


def test_a_link_out_of_the_project_is_neither_read_nor_written(desk: Desk) -> None:
    (desk.folder / "secret").write_text("# Secret\n\nprivate key\n")
    (desk.project / "CLAUDE.md").unlink()
    (desk.project / "CLAUDE.md").symlink_to(desk.folder / "secret")
    (desk.project / ".claude").symlink_to(desk.folder)
    desk.session("s1", *PRICES)
    model = ("--model", f"scripted:{desk.folder / 'script.jsonl'}")
    done = desk("nightly", "--store", desk.store, *model, "--json")
    assert "CLAUDE.md is a link" in done.err
    assert "private" not in done.out
    (night,) = done.json["projects"]
    desk("review", night["space"], "--approve", "all", "--yes")
    assert desk.night("--apply", "--branch")["applied"] == []
    assert (desk.folder / "secret").read_text() == "# Secret\n\nprivate key\n"
