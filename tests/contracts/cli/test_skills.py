"""Agent Skills: export, import and diff of folders with SKILL.md, checked by the reference validator."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from helpers import asynchronous
from hypothesis import given
from hypothesis import strategies as st
from needs import needs

import practicum
from practicum import Add, Context, Delta
from practicum.core.views import count_tokens

from .kit import Shell

skills_ref = needs("skills_ref", "dev")

HEAD = "---\nname: {name}\ndescription: Does things. Use when needed.\n---\n"
FOREIGN = {
    "SKILL.md": HEAD.format(name="deploy") + "\n\n# Deploy \t\n\n## Steps\r\n1. Build.\n\n   ```sh\n   # no heading\n"
    "   make\n   ```\n\n## Gotchas\n\n- [e9] Wait for the lock.\n- A zero\u200bwidth <|im_start|>.\n\n\n",
    "references/flags.md": "\n\nIntro: see https://example.com/x\n# Flags\n`-v` is loud.",
    "scripts/run.sh": "#!/bin/sh\nexit 0\n",
    "assets/logo.bin": "\x00\xff",
    "empty.txt": "",
}  # fmt: skip
"""A skill as people write it: CR LF, code, hidden characters, a file without a line end, binary and empty files."""

CASES = {
    **dict.fromkeys(("-lead", "Upper", "a" * 65, "two--hyphens", "under_score", "plain", "навык", "123"), HEAD),
    "other": HEAD.format(name="x"),
    "none": "",
    "blank": "\n" + HEAD,
    "mark": "\ufeff" + HEAD,
    "open": "---\nname: open\n",
    "list": "---\n- a\n---\n",
    "nothing": "---\nname: nothing\n---\n",
    "empty": "---\nname: empty\ndescription: ''\n---\n",
    "colon": "---\nname: colon\ndescription: Use this: when x\n---\n",
    "anchor": "---\nname: anchor\ndescription: &a x\n---\n",
    "tag": "---\nname: tag\ndescription: !!str x\n---\n",
    "twice": HEAD.replace("desc", "name: x\ndesc"),
    "flow": HEAD.replace("desc", "metadata: {a: b}\ndesc"),
    "extra": HEAD.replace("desc", "version: 1\ndesc"),
    "long": HEAD.replace("Does", "x" * 1025),
    "compat": HEAD.replace("desc", f"compatibility: {'x' * 501}\ndesc"),
    "crlf": HEAD.replace("\n", "\r\n"),
    "folded": HEAD.replace("Does", ">-\n  Does"),
    "cut": HEAD.replace("Does", "Does --- or"),
    "comment": HEAD.replace("desc", "# x\ndesc"),
    "tools": HEAD.replace("desc", 'allowed-tools: Bash(git:*) Read\nmetadata:\n  a: "1"\ndesc'),
}
"""SKILL.md files by the name of their folder, valid ones and others."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of all skills in a folder, by path."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith(".")}


def foreign(shell: Shell) -> Path:
    for name, text in FOREIGN.items():
        path = shell.file(f"mine/deploy/{name}", "")
        path.write_bytes(text.encode("latin-1" if name.endswith(".bin") else "utf-8"))
    (shell / "mine/deploy/scripts/run.sh").chmod(0o755)
    return shell / "mine"


def valid(folder: Path) -> list[Path]:
    """The skills in a folder. The reference validator finds no fault in any of them."""
    skills = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    assert skills
    assert {skill.name: skills_ref.validate(skill) for skill in skills} == {skill.name: [] for skill in skills}
    return skills


def test_sections_become_skills_that_a_validator_accepts_and_an_import_gives_back(shell: Shell) -> None:
    shell.file(
        "seed.md",
        '## refunds: "when" <b> ---\n\n- If late, `a: b` --- "c" <x>.\n- Two\n\n  ```\n  # lines\n  ```\n\n'
        "## Сроки\n\n- До трёх дней.\n\n## !!!\n\n- <|im_start|>system\n",
    )
    done = shell.json("export seed.md --format skills --output skills")
    assert [(one["name"], one["entries"]) for one in done["skills"]] == [
        ("refunds-when-b", {"SKILL.md": ["e0", "e1"]}), ("lessons", {"SKILL.md": ["e2"]}),
        ("lessons-2", {"SKILL.md": ["e3"]}),
    ]  # fmt: skip
    text = (shell / "skills/refunds-when-b/SKILL.md").read_text(encoding="utf-8")
    assert '- [e0] If late, `a: b` --- "c" <x>.\n- [e1]\n  Two\n\n  ```\n  # lines\n  ```\n' in text
    assert "\\x3c|im_start|>system" in (shell / "skills/lessons-2/SKILL.md").read_text(encoding="utf-8")
    for skill in valid(shell / "skills"):
        description = skills_ref.read_properties(skill).description
        assert "Use when" in description
        assert not {"<", ">"} & {*description}
    shell("space import skills --out again")
    assert {e["id"] for e in shell.json("show again")["entries"]} >= {"e0", "e1", "e2", "e3"}
    shell("export again --format skills --output same")
    assert contents(shell / "same") == contents(shell / "skills")
    assert shell.json("space diff skills same")["changed"] == []


TEXT = st.text(max_size=30) | st.sampled_from(
    [
        "a\n\n  b",
        "- [e1] x",
        "```\nx",
        "# h\n---\n",
        "\r\n x\u2028y",
        "<|im_start|>",
        "--- : '\"",
        "\u200bx",
        "    code",
    ]
)
ADDS = st.lists(
    st.builds(Add, st.sampled_from(["rules", "C#: --- <x>", "навык", "---", "a" * 80]) | st.text(max_size=9), TEXT),
    min_size=1, max_size=8,
)  # fmt: skip


@given(adds=ADDS)
@asynchronous
async def test_export_import_export_is_the_same_and_valid_for_any_entries(adds: list[Add]) -> None:
    context = Context().apply(Delta(tuple(adds))).context
    if not [entry for entry in context if not entry.hidden]:
        return
    with TemporaryDirectory() as name:
        one, two = Path(name) / "one", Path(name) / "two"
        async with practicum.open(context) as space:
            skills = await space.export_skills(one)
        assert sorted(id for skill in skills for ids in skill.entries.values() for id in ids) == sorted(
            entry.id for entry in context if not entry.hidden
        )
        async with practicum.open(one) as space:
            await space.export_skills(two)
        valid(one)
        assert contents(one) == contents(two)


LINE = TEXT | st.sampled_from(
    ["# a", "## b", "", "  ", "- [e1] x", "- [e2]", "  y", "- z", "~~~", "```", "---", "\x1f", "x\r"]
)
BODY = st.lists(LINE, max_size=9).map("\n".join)


@given(body=BODY, reference=BODY)
@asynchronous
async def test_any_text_of_a_skill_stays_byte_for_byte(body: str, reference: str) -> None:
    with TemporaryDirectory() as name:
        one, two = Path(name) / "one", Path(name) / "two"
        (one / "a/references").mkdir(parents=True)
        (one / "a/SKILL.md").write_bytes((HEAD.format(name="a") + body.replace("\0", "")).encode())
        (one / "a/references/b.md").write_bytes(reference.encode())
        async with practicum.open(one) as space:
            await space.export_skills(two)
        assert contents(one) == contents(two)


def test_a_skill_of_others_stays_byte_for_byte_and_an_edit_changes_its_own_bytes(shell: Shell) -> None:
    """Not even a link makes a part wait, with the default trust; new lessons follow at the end of SKILL.md."""
    folder = foreign(shell)
    before = contents(folder)
    done = shell.json("space import mine --out space")
    assert (done["waiting"], done["flagged"]) == (0, 2)
    shell("export space --format skills --output out")
    assert contents(shell / "out") == before
    assert (shell / "out/deploy/scripts/run.sh").stat().st_mode & 0o100
    # A folder that only has the imported files, or unchanged ones of an export, is replaced.
    shell("export space --format skills --output mine")

    text = shell("export space").out
    assert "exit 0" not in text
    shell.file("edited.md", text.replace("`-v` is loud.", "`-q` is quiet.") + "- New: check the disk.\n")
    shell("space edit space --file edited.md --yes")
    shell("export space --format skills --output out")
    after = contents(shell / "out")
    name = "deploy/references/flags.md"
    assert after.pop(name) == before[name].replace(b"`-v` is loud.", b"`-q` is quiet.")
    added = after["deploy/SKILL.md"].removeprefix(before["deploy/SKILL.md"]).decode()
    assert added.startswith("\n## Learned from earlier tasks\n\n- [e")
    assert added.endswith("] New: check the disk.\n")
    assert after.items() - before.items() == {("deploy/SKILL.md", after["deploy/SKILL.md"])}
    changed = shell.json("space diff mine out")
    assert [(one["before"]["text"], one["after"]["text"]) for one in changed["changed"]] == [
        ("# Flags\n`-v` is loud.", "# Flags\n`-q` is quiet.")
    ]
    assert [one["text"] for one in changed["added"] if one["section"] == "deploy"] == ["New: check the disk."]
    valid(shell / "out")


def test_a_folder_with_other_files_is_not_replaced(shell: Shell) -> None:
    shell.file("seed.md", "## one\n\n- A.\n\n## two\n\n- B.\n")
    shell("space import seed.md --out space")
    shell("export space --format skills --output out")
    shell.file("seed.md", "## one\n\n- A.\n\n## three\n\n- B.\n")
    shell("export seed.md --format skills --output out")
    assert [*contents(shell / "out")] == ["one/SKILL.md", "three/SKILL.md"]
    for change in ("one/SKILL.md", "one/more.md", "README.md"):
        shutil.copytree(shell / "out", shell / "copy", dirs_exist_ok=True)
        shell.file(f"copy/{change}", "changed")
        line = shell.fails("export space --format skills --output copy", error="file.exists")
        assert str(shell / "copy" / change) in line
        assert (shell / "copy" / change).read_text() == "changed"
        shutil.rmtree(shell / "copy")
    shell.fails("export space --format skills --output seed.md", error="file.wrong_kind")
    shell.fails("export space --format skills", error="settings.missing")
    shell.fails("export space --model scripted:x", error="settings.unused")
    assert not [*shell.folder.glob(".*")]


def test_foreign_skills_wait_for_review_part_by_part(shell: Shell) -> None:
    before = contents(foreign(shell))
    done = shell.json("space import mine --trust foreign --out space")
    assert (done["entries"], done["waiting"] > 6) == (0, True)
    shell.fails("export space --format skills --output out", error="playbook.empty")
    shell("review space --approve all --flagged --yes")
    shell("export space --format skills --output out")
    assert contents(shell / "out") == before


@pytest.mark.parametrize("name", CASES)
def test_the_rules_are_those_of_the_reference_validator(shell: Shell, name: str) -> None:
    file = shell / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_bytes(CASES[name].replace("{name}", name).encode())
    shell.file("skills/good/SKILL.md", HEAD.format(name="good"))
    if rules := skills_ref.validate(file.parent):
        report = shell("space import skills --out space --json", code=2).json["error"]
        assert report["code"] == "skills.invalid"
        assert {problem["file"] for problem in report["fields"]["problems"]} == {f"skills/{name}/SKILL.md"}
        assert len(report["message"].splitlines()) == len(report["fields"]["problems"]) <= len(rules) + 1
    else:
        shell("space import skills --out space")
        shell("export space --format skills --output out")
        assert contents(shell / "out") == contents(shell / "skills")


def test_a_folder_that_is_not_a_skill_is_named(shell: Shell) -> None:
    """A skill folder without SKILL.md, links, files next to the skills, and too many bytes."""
    foreign(shell)
    shell.file("mine/README.md", "x")
    (shell / "mine/deploy/link").symlink_to("/etc/passwd")
    assert {part["text"] for part in shell.json("space import mine --out space")["left_out"]} == {"README.md", "link"}
    (shell / "mine/deploy/scripts/large").write_bytes(b"x" * 2**24)
    shell.fails("space import mine --out other", error="skills.too_large")
    shell.file("mine/nothing/notes.md", "x")
    (shell / "mine/deploy/scripts/large").unlink()
    assert "mine/nothing/SKILL.md" in shell.fails("space import mine --out other", error="skills.invalid")
    shell.fails("space import mine/nothing --out other", error="run.not_found")


def test_a_long_topic_is_divided_and_a_long_section_is_clustered(shell: Shell) -> None:
    """SKILL.md has what the specification recommends at most, and the best entries; it names each reference."""
    topics = {"refund": "customer money card billing", "sql": "database query index join table",
              "phone": "battery display water repair screen"}  # fmt: skip
    items = [{"id": f"e{n}", "section": "rules", "helpful": 9 * (n == 179),
              "text": f"If the {word} case {n} is about {about}, then {(about + ' ') * 9}"}
             for n, (word, about) in enumerate([*topics.items()] * 60)]  # fmt: skip
    shell.file("seed.json", json.dumps(items))
    done = shell.json("export seed.json --format skills --output out")
    again = shell.json("export seed.json --format skills --output out2")
    assert contents(shell / "out") == contents(shell / "out2")
    assert done["skills"] == again["skills"]
    assert len(done["skills"]) == len(topics)
    for skill, word in zip(done["skills"], topics, strict=True):
        text = (shell / "out" / skill["name"] / "SKILL.md").read_text()
        assert {id for ids in skill["entries"].values() for id in ids} == {
            item["id"] for item in items if f"the {word} " in item["text"]
        }
        assert count_tokens(text) < 5_000
        assert len(text.splitlines()) < 500
        references = [file for file in skill["files"] if file != "SKILL.md"]
        assert references
        assert all(f"- Read {file} if " in text for file in references)
    assert "e179" in done["skills"][2]["entries"]["SKILL.md"]
    valid(shell / "out")


@contextmanager
def scripted(shell: Shell, **answer: str) -> Iterator[str]:
    shell.file("model", json.dumps({"role": "curator", "answer": answer}) + "\n")
    yield "scripted:model"


def test_a_model_names_a_cluster_and_describes_it(shell: Shell) -> None:
    shell.file("seed.md", "## rules\n\n- If late, wait.\n")
    hostile = "Helps with <b>delays</b>: 'x' --- \"y\".\nUse when late."
    with scripted(shell, name="Late Parcels!", description=hostile) as model:
        shell("export seed.md --format skills --output out --model", model)
    (skill,) = valid(shell / "out")
    assert skill.name == "late-parcels"
    assert skills_ref.read_properties(skill).description == "Helps with bdelays/b: 'x' - \"y\". Use when late."


def test_a_crafted_place_leads_to_no_other_folder(shell: Shell) -> None:
    places = [("..", "SKILL.md"), ("a", "../../x"), ("a/b", "x"), ("a", "/tmp/x"), ("a", "x/../../y"), ("", "x")]
    entries = [{"section": s, "text": "---\nname: a\n---", "data": {"part": {"skill": skill, "file": file}}}
               for skill, file in places for s in (".skills", "rules")]  # fmt: skip
    shell.file("work/seed.json", json.dumps(entries))
    shell("export work/seed.json --format skills --output work/out")
    assert [path.name for path in shell.folder.iterdir()] == ["work"]
    assert [path.name for path in valid(shell / "work/out")] == ["name"]
