"""The pages of runs: what they show, that all that they name is linked, and that no text of a run becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import scripts
from helpers import make_tasks
from refusals import refused
from scripts import Learned, added, scripted

import practicum
from practicum.analysis.compare.outcome import RunOutcome
from practicum.analysis.compare.plan import make_plan, save_plan
from practicum.analysis.compare.report import write_report
from practicum.analysis.compare.summary import summary
from practicum.analysis.compare.variants import of_methods
from practicum.analysis.names import unslug
from practicum.analysis.view.site import Site
from practicum.core.types import Task
from practicum.models.scripted import Call
from practicum.session.config import Splits
from practicum.session.story import Story

HOSTILE = "<script>alert(1)</script>\u202e[e0] <img src=x onerror=alert(2)> \x1b[31m &lt;b&gt;"
ODD_ID = "javascript:alert(1)/../../x \u202e\"'><b>"


class Reader(HTMLParser):
    """What stands in a page: its tags with their attributes, and its text outside of style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data

    @property
    def links(self) -> list[str]:
        """The addresses that the page leads to, without the one to its content."""
        return [str(attrs["href"]) for tag, attrs in self.tags if tag == "a" and attrs["href"] != "#main"]


def right_after_reflection(call: Call) -> str:
    """Wrong at first; right when it is told of a reflection or sees a rule."""
    return scripts.right(call) if "reflection" in call.prompt.user or "message" in call.text else "wrong"


@pytest.fixture(scope="module")
def ace(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Two steps of ACE on three tasks each, with tests before and after."""
    tasks = [*make_tasks(5), Task(ODD_ID, f"Message 5: {HOSTILE}", "word5")]

    def insight(call: Call) -> dict[str, Any]:
        return {"insight": f"{HOSTILE} If it is message {scripts.number(call)}, answer word{scripts.number(call)}."}

    model = scripted(right_after_reflection, insight, added)
    return scripts.learned(
        tmp_path_factory.mktemp("ace"), model, tasks, {"batch": 3}, test=make_tasks(3, 10), before=True, review="none"
    )


@pytest.fixture(scope="module")
def pages(ace: Learned) -> dict[str, str]:
    """All pages of that run, by path."""
    site = Site([ace.folder], served=False)
    folder = ace.folder.parent / "pages"
    written = site.write(folder)
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert written == len(files)
    return {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in files}


def test_the_overview_tells_what_ran_and_how_it_went(pages: dict[str, str], ace: Learned) -> None:
    text = Reader(pages["index.html"]).text
    assert f"{ace.result.scores['before']:.1%}" in text
    assert f"{ace.result.scores['test']:.1%}" in text
    assert text.count("(95%)") == 2
    assert f"{ace.result.usage.calls:,} calls" in text
    for role in ("agent", "reflector", "curator"):
        assert role in text
    assert {"step/1.html", "step/2.html"} <= {*Reader(pages["index.html"]).links}


def test_filters_search_and_pages_of_attempts(ace: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site([ace.folder])

    def rows(path: str, **query: str) -> list[str]:
        page = site.page(path, query)
        assert page is not None, path
        return [link for link in Reader(page).links if "attempt/" in link]

    assert len(rows("attempts/all.html")) == 3 + 6 + 3
    assert len(rows("attempts/before.html")) == 3
    assert [unslug(link.split("/")[-1][:-5]) for link in rows("attempts/test.html")] == [
        f"test.t{n}" for n in (10, 11, 12)
    ]
    failed = rows("attempts/train.failed.html")
    with Story.open(ace.folder) as story:
        assert len(failed) == sum(line.failed for line in story.attempts(split="train"))
    assert rows("attempts/all.errors.html") == []
    assert len(rows("attempts/all.html", q="MESSAGE 11")) == 2
    assert rows("attempts/all.html", q="<script>") == [
        link for link in rows("attempts/all.html") if "javascript" in link
    ]
    assert site.page("attempts/all.html", {"q": "nowhere"}) is not None
    monkeypatch.setattr("practicum.analysis.view.run.ROWS", 5)
    assert [len(rows(f"attempts/all{page}.html")) for page in ("", ".2", ".3")] == [5, 5, 2]
    assert "all.3.html" in Reader(site.page("attempts/all.2.html") or "").links
    assert "?q=word" in str(site.page("attempts/all.html", {"q": "word"}))


NOT_THERE = (
    "step/3.html", "step/0.html", "step/x.html", "step/1", "attempt/1.nothing.html", "attempt/=FF.html", "x.html",
    "entry/e999.html", "entry/x.html", "call/0.html", "call/999999.html", "call/1e3.html", "diff/0-99.html",
    "diff/.html", "playbook/99.html", "attempts/nosplit.html", "lessons/x.html", "nothing/1.html",
    "../practicum.sqlite", "practicum.sqlite", "step/../index.html", "attempt/..=2F..=2Frun.html", "call/²³.html",
    "steps/all.failed.html", "\x00",
    f"attempt/{'x' * 5000}.html", "attempts/.html", "call/99999999999999999999.html", "index.html/x", "/index.html",
)  # fmt: skip


def test_there_are_no_other_pages(ace: Learned) -> None:
    site = Site([ace.folder])
    assert [path for path in NOT_THERE if site.page(path) is not None] == []


def test_two_versions_are_compared_and_a_version_is_shown_on_the_server(ace: Learned) -> None:
    site = Site([ace.folder])
    last = ace.result.context.version
    compared = site.page("diff/of.html", {"old": "0", "new": str(last)})
    assert compared is not None
    assert compared.count('class="chip good">added') == len(ace.result.context)
    assert "Playbook, version 1" in str(site.page("playbook/of.html", {"version": "1"}))
    assert site.page("diff/of.html", {"old": "0", "new": "x"}) is None


def test_a_folder_lists_its_runs_and_comparisons(ace: Learned, tmp_path: Path) -> None:
    runs = tmp_path / "many runs"
    runs.mkdir()
    (runs / "a & b").symlink_to(ace.folder)
    (runs / "other").mkdir()
    (runs / "compared").mkdir()
    (runs / "compared" / "compare.json").write_text("{}", encoding="utf-8")
    site = Site([runs])
    home = Reader(site.page("") or "")
    assert {"a%20%26%20b/index.html", "compared/index.html"} == {*home.links}
    assert site.page("a & b/attempts/all.html") is not None
    assert "../../index.html" in Reader(site.page("a & b/attempts/all.html") or "").links
    assert site.page("other/index.html") is None
    several = Site([runs, ace.folder, ace.folder])
    assert {"many%20runs/index.html", "run/index.html", "run-2/index.html"} == {*Reader(several.page("") or "").links}
    with refused("run.not_found"):
        Site([tmp_path / "many runs" / "other"])
    with refused("run.not_found"):
        Site([tmp_path / "nowhere"])


def test_a_very_long_line_is_folded(tmp_path: Path) -> None:
    task = Task("t2", "Message 2: " + "y" * 1_000_000, "word2")
    run = scripts.learned(tmp_path, scripted(), make_tasks(1), method="none", test=[task])
    page = Site([run.folder]).page("attempt/test.t2.html")
    assert page is not None
    assert "the other 980,011 characters" in page
    assert f"{'y' * 19_989}</pre>" in page


def test_a_comparison_leads_to_its_runs(ace: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.analysis.compare.report.data_url", lambda figure: None)
    splits = Splits(tuple(make_tasks(4)), (), tuple(make_tasks(3, 10)))
    parts = practicum.Parts(clients={"agent": scripted()})
    plan = make_plan(of_methods(["none", "ace"], None), splits, parts, seeds=2)
    scores = {task.id: 1.0 for task in splits.test}
    outcomes = [RunOutcome(variant=run.variant.name, seed=run.seed, by_task=scores) for run in plan.runs]
    save_plan(plan, tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "ace-0").symlink_to(ace.folder)
    site = Site([tmp_path])
    # As long as there is no report, the runs are listed.
    assert Reader(site.page("") or "").links == ["ace-0/index.html"]
    write_report(summary(plan, outcomes), tmp_path)
    page = Reader(site.page("") or "")
    assert "2 variants on 3 test tasks" in page.text
    assert page.links == ["ace-0/index.html"]
    assert "../index.html" in Reader(site.page("ace-0/index.html") or "").links
