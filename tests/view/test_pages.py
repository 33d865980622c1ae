"""The pages of runs and of an answer: their contents, links, filters and lists. No text of a run becomes markup."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import scripts
from helpers import client, make_tasks
from refusals import refused
from scripts import Learned, added, scripted, shape
from sites import Reader, read, site, wrong_at_first
from starlette.testclient import TestClient

import practicum
from practicum.agents.team import make_team
from practicum.analysis.compare.outcome import RunOutcome
from practicum.analysis.compare.plan import make_plan, save_plan
from practicum.analysis.compare.report import write_report
from practicum.analysis.compare.summary import summary
from practicum.analysis.compare.variants import of_methods
from practicum.core.context import Context
from practicum.core.types import Task
from practicum.models.scripted import Call
from practicum.session.config import Splits
from practicum.session.records import create_seed
from practicum.session.space import ask
from practicum.view.files import write_pages
from practicum.view.library import Folders
from practicum.view.names import slug, unslug
from practicum.view.pages.attempt import answer_page
from practicum.view.read import Story

HOSTILE = "<script>alert(1)</script>\u202e[e0] <img src=x onerror=alert(2)> \x1b[31m &lt;b&gt;"
ODD_ID = "javascript:alert(1)/../../x \u202e\"'><b>"
AT = "/s/run"


@pytest.fixture(scope="module")
def ace(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Two steps of ACE on three tasks each, with tests before and after."""
    tasks = [*make_tasks(5), Task(ODD_ID, f"Message 5: {HOSTILE}", "word5")]

    def insight(call: Call) -> dict[str, Any]:
        return {"insight": f"{HOSTILE} If it is message {scripts.number(call)}, answer word{scripts.number(call)}."}

    model = scripted(wrong_at_first, insight, added)
    return scripts.learned(
        tmp_path_factory.mktemp("ace"), model, tasks, {"batch": 3}, test=make_tasks(3, 10), before=True, review="none"
    )


@pytest.fixture(scope="module")
def pages(ace: Learned) -> Iterator[TestClient]:
    with site(ace.folder) as client:
        yield client


def linked(page: Reader) -> list[str]:
    """The ids of the attempts that a list leads to."""
    links = (re.fullmatch(rf"{AT}/episodes/([^?/]+)", link) for link in page.links)
    return [unslug(link[1]) or "" for link in links if link]


def attempts(client: TestClient, query: str = "") -> list[str]:
    return linked(read(client, f"{AT}/episodes{query}"))


def test_the_overview_has_the_scores_costs_and_steps_and_an_attempt_has_its_lessons(
    pages: TestClient, ace: Learned
) -> None:
    page = read(pages, "/")
    for text in (f"{ace.result.scores['before']:.1%}", f"{ace.result.scores['test']:.1%}", "agent", "reflector",
                 "curator", f"{ace.result.usage.calls:,} calls", "tasks in the mean"):  # fmt: skip
        assert text in page.words
    assert page.text.count("(95%)") == 2
    assert {f"{AT}/steps/1", f"{AT}/steps/2"} <= {*page.links}
    assert [tag for tag, attrs in page.tags if attrs.get("role") == "img"] == ["svg"]
    with_lesson = next(id for id in attempts(pages, "?split=train&only=failed") if "javascript" not in id)
    words = read(pages, f"{AT}/episodes/{slug(with_lesson)}").words
    assert [text for text in ("✗ wrong", "applied", "Reflection calls") if text not in words] == []


def test_no_text_of_a_run_becomes_markup(pages: TestClient) -> None:
    hostile = next(id for id in attempts(pages) if "javascript" in id)
    paths = ("episodes", "entries", "entries/e0", "lessons", "calls/1", "diff?old=0&new=2")
    for path in (*paths, f"episodes/{slug(hostile)}"):
        text = pages.get(f"{AT}/{path}").text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert not {"\u202e", "\x1b"} & {*text}


def test_episodes_are_filtered_searched_and_paged(
    pages: TestClient, ace: Learned, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(attempts(pages)) == 3 + 6 + 3
    assert len(attempts(pages, "?split=before")) == 3
    assert attempts(pages, "?split=test") == [f"test.t{n}" for n in (12, 11, 10)]
    with Story.open(ace.folder) as story:
        failed = [line.id for line in story.attempts(split="train") if line.failed]
        everything = [line.id for line in story.attempts()]
    assert attempts(pages, "?split=train&only=failed") == failed[::-1]
    assert attempts(pages) == everything[::-1]
    assert attempts(pages, "?only=errors") == []
    assert len(attempts(pages, "?q=MESSAGE+11")) == 2
    assert attempts(pages, "?q=%3Cscript%3E") == [id for id in everything if "javascript" in id]
    whole = {query: attempts(pages, query) for query in ("?only=failed", "?q=MESSAGE+11")}
    monkeypatch.setattr("practicum.view.read.episodes.ROWS", 4)
    monkeypatch.setattr("practicum.view.read.episodes.SEARCHED_ATTEMPTS", 3)
    for query, ids in whole.items():
        paged, address, turns = list[str](), f"{AT}/episodes{query}", 0
        while address:
            page = read(pages, address)
            paged += linked(page)
            following = [attrs["href"] for tag, attrs in page.tags if tag == "a" and attrs.get("rel") == "next"]
            address, turns = str(following[0]) if following else "", turns + 1
        assert paged == ids
        assert turns > 1


MISSING = (
    "steps/3", "steps/x", "episodes/1.nothing", "episodes/=FF", "x", "entries/e999", "diff?old=0&new=99", "diff",
    "versions/-1", "../practicum.sqlite", "practicum.sqlite", "episodes/..=2F..=2Frun", "calls/²³", "%00",
    f"episodes/{'x' * 5000}", "calls/99999999999999999999", "episodes/i0000000000000-000000000000",
)  # fmt: skip


def test_other_addresses_are_404_with_a_link_to_the_list(pages: TestClient) -> None:
    for path in MISSING:
        assert pages.get(f"{AT}/{path}").status_code == 404, path
    for path, listed in (("episodes/i00-00", "episodes"), ("calls/999", "calls")):
        assert f'<a href="{AT}/{listed}">All {listed}</a>' in pages.get(f"{AT}/{path}").text


def test_a_folder_lists_its_runs_spaces_and_comparisons(ace: Learned, tmp_path: Path) -> None:
    runs = tmp_path / "many runs"
    runs.mkdir()
    (runs / "a & b").symlink_to(ace.folder)
    (runs / "other").mkdir()
    (runs / "compared").mkdir()
    (runs / "compared" / "compare.json").write_text("{}", encoding="utf-8")
    create_seed(runs / "unused", Context())
    with site(runs) as client:
        page = read(client, "/")
        assert {"/", "/s/a%20%26%20b", "/s/unused", "/c/compared"} == {*page.links}
        for text in ("2 spaces and 1 comparison", "unused new", "a & b done"):
            assert text in page.words
        assert "unused version 0 new" in read(client, "/s/unused").words
        assert "/s/a%20%26%20b/steps" in read(client, "/s/a & b/episodes").links
        assert client.get("/s/other").status_code == 404
    with site(runs, ace.folder, ace.folder) as client:
        assert {"/", "/f/many%20runs", "/s/run", "/s/run-2"} == {*read(client, "/").links}
        assert "/s/many%20runs~a%20%26%20b" in read(client, "/f/many runs").links
        assert client.get("/s/many runs~a & b/entries").status_code == 200
    for path in (runs / "other", tmp_path / "nowhere"):
        with refused("run.not_found"):
            Folders([path])


def test_a_comparison_leads_to_its_runs(ace: Learned, tmp_path: Path) -> None:
    splits = Splits(tuple(make_tasks(4)), (), tuple(make_tasks(3, 10)))
    parts = practicum.Parts(clients={"agent": scripted()})
    plan = make_plan(of_methods(["none", "ace"], None), splits, parts, seeds=2)
    scores = {task.id: 1.0 for task in splits.test}
    outcomes = [RunOutcome(variant=run.variant.name, seed=run.seed, by_task=scores) for run in plan.runs]
    save_plan(plan, tmp_path / "c")
    (tmp_path / "c" / "runs").mkdir()
    (tmp_path / "c" / "runs" / "ace-0").symlink_to(ace.folder)
    with site(tmp_path / "c") as client:
        # Without a report, the runs are listed.
        assert read(client, "/").links == ["/", "/s/ace-0"]
        write_report(summary(plan, outcomes), tmp_path / "c")
        page = read(client, "/")
        assert "2 variants on 3 test tasks" in page.words
        assert "/s/ace-0" in page.links
        assert client.get("/s/ace-0/steps/1").status_code == 200
    with site(tmp_path) as client:
        assert "/s/c~ace-0" in read(client, "/c/c").links
        assert client.get("/s/c~ace-0").status_code == 200
    (tmp_path / "c" / "report.json").write_text("{", encoding="utf-8")
    with site(tmp_path / "c") as client:
        assert client.get("/").status_code == 500
    with site(tmp_path) as client:
        assert "unreadable" in read(client, "/").words


DAMAGE = {
    "versions": ("UPDATE versions SET applied = '[' WHERE version = 1", {
        "": "versions", "/entries/e1": "versions", "/episodes": "", "/episodes/2.{}": "versions", "/steps": "",
        "/steps/2": "versions", "/lessons": "edits", "/costs": "", "/alarms": "",
    }),
    "lessons": ("UPDATE lessons SET data = '{'", {
        "": "", "/entries/e1": "lessons", "/steps/2": "lessons", "/episodes/2.{}": "lessons", "/versions": "",
    }),
}  # fmt: skip
"""The damage → the pages that are shown without the damaged part, and the part that each page names."""


@pytest.mark.slow
@pytest.mark.parametrize("damaged", DAMAGE)
def test_a_damaged_space_shows_its_readable_parts_and_names_the_others(
    damaged: str, ace: Learned, tmp_path: Path
) -> None:
    with Story.open(ace.folder) as story:
        task = next(line.task for line in story.attempts(step=2) if line.task != ODD_ID)
    damage, named = DAMAGE[damaged]
    folder = tmp_path / "run"
    shutil.copytree(ace.folder, folder)
    with closing(sqlite3.connect(folder / "practicum.sqlite")) as db, db:
        db.execute(damage)
    with site(folder) as client:
        for path, part in named.items():
            words = read(client, f"{AT}{path.format(task)}").words
            assert words.count("cannot be read:") == bool(part), (damaged, path, words)
            assert not part or re.search(rf"(The|the) {part}( and|,)?.* cannot be read:", words), (path, words)
        # The page of the damaged part is an error, which names it; the other pages are a click away.
        answer = client.get(f"{AT}/{damaged}")
        assert (answer.status_code, f"The {damaged} cannot be read:" in answer.text) == (500, True)
        assert f'href="{AT}/calls"' in answer.text
        assert "Traceback" not in answer.text
    written, incomplete = write_pages(Folders([folder]), tmp_path / "files")
    assert 0 < incomplete < written


def count(page: Reader, kind: str) -> int:
    return sum(kind in (attrs.get("class") or "").split() for _, attrs in page.tags)


def team(call: Call) -> str:
    """A team of agents and its judge. Messages with odd numbers have two parts."""
    answer = _step(call)
    return answer if isinstance(answer, str) else json.dumps(answer)


def _step(call: Call) -> str | dict[str, Any]:
    user = call.prompt.user
    n = int(re.findall(r"Message (\d+)", user)[0])
    match shape(call):
        case "Ability":
            return {"reason": "so", "alone": n % 2 == 0}
        case "Plan":
            halves = [f"first half of Message {n}", f"second half of Message {n}"]
            return {"parts": [{"text": halves[0], "needs": []}, {"text": halves[1], "needs": [1]}]}
        case "Answered":
            return {"solution": f"{'better' if '# What is said of it' in user else 'poor'} of Message {n}"}
        case "Critique":
            # The first half has to be done again; the second is good.
            part = user.partition("# A part of it")[2]
            return {"feedback": "say more", "adequate": "second half" in part or "better" in part}
        case "Quality":
            return {"reason": "", "points": 9 if "better" in user.partition("# Its solution")[2] else 5}
        case _:
            return f"word{n}"


def test_the_page_shows_the_network_its_steps_in_order_and_rewards_if_it_was_learned_from(tmp_path: Path) -> None:
    odd, network = make_tasks(1, start=1), make_team(4, "complete")
    run = scripts.learned(tmp_path, client(team), odd, method="mael", profile="small")
    parts = practicum.Parts(clients={"agent": client(team)})
    answered = practicum.run_sync(ask("Message 9: say word9", run.folder, parts=parts))
    page = Reader(answer_page(answered, network, run.folder))
    # agent4 received no work.
    shown = {kind: count(page, kind) for kind in ("entry", "agent", "idle", "handed", "link", "reward")}
    assert shown == {"entry": 1, "agent": 2, "idle": 1, "handed": 2, "link": 4, "reward": 0}
    assert re.findall(r"(agent\d) (\w+) (the whole|part \d)", page.words) == [
        ("agent1", "judged", "the whole"), ("agent1", "decomposed", "the whole"),
        ("agent2", "solved", "part 1"), ("agent1", "criticised", "part 1"), ("agent2", "solved", "part 1"),
        ("agent1", "criticised", "part 1"), ("agent3", "solved", "part 2"), ("agent1", "criticised", "part 2"),
        ("agent1", "aggregated", "the whole"),
    ]  # fmt: skip
    assert len(re.findall(r"experience e\d+, reward 0\.70", page.words)) == 2
    taught = practicum.run_sync(ask("Message 9: say word9", run.folder, parts=parts, learn=True, target="word9"))
    page = Reader(answer_page(taught, network, run.folder))
    assert count(page, "reward") == 9
    assert re.search(r"aggregated the whole task reward 1\.00", page.words)
    assert "Prompts of the agent" in page.words
