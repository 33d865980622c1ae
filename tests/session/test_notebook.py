"""Views of results in a notebook, and their short texts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import client, make_tasks
from needs import needs

from practicum import Context, Delta, Parts, Result, ask, evaluate, learn, run_sync
from practicum.core.edits import Add
from practicum.core.html import escape
from practicum.session.space import open as open_space

PARTS = Parts(clients={"agent": client()})


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The displays of a notebook's kernel."""
    shown: list[dict[str, Any]] = []

    def display(data: dict[str, str], **how: Any) -> None:
        shown.append({**data, **how})

    shell = SimpleNamespace(kernel=object())
    about = {"get_ipython": lambda: shell, "display": SimpleNamespace(display=display), "version_info": (9, 0)}
    # matplotlib reads the version.
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(**about))
    return shown


def result_in(folder: Path, **how: Any) -> Result:
    tasks = make_tasks(6)
    settings = {"batch": 1}
    return run_sync(
        learn(tasks[:4], test=tasks[4:], out=folder, parts=PARTS, method="episodes", settings=settings, **how)
    )


def test_a_run_draws_itself_in_the_output_of_its_cell(kernel: list[dict[str, Any]], tmp_path: Path) -> None:
    result_in(tmp_path / "<run>")
    first, last = kernel[0], kernel[-1]
    assert not first["update"]
    assert {drawn["display_id"] for drawn in kernel} == {first["display_id"]}
    assert "<progress" in next(drawn for drawn in kernel if drawn["update"])["text/html"]
    assert "&lt;run&gt;" in last["text/html"]
    assert "done after 0:0" in last["text/plain"].splitlines()[-1]


def test_results_are_short_texts_and_escaped_tables(tmp_path: Path) -> None:
    result = result_in(tmp_path / "run")
    scored = run_sync(evaluate(make_tasks(2), result.context, method="episodes", parts=PARTS))
    answered = run_sync(ask("Where is <it>?", result.run, parts=PARTS))
    space = open_space(result.run, parts=PARTS)
    assert "<table>" in space._repr_html_()
    version = space.versions()[-1]
    assert repr(version) == f"<Version {version.version}, from version {version.parent}, step {version.step}: 1 edit>"
    assert escape(version.applied[0].edit.text) in version._repr_html_()
    run_sync(space.close())
    assert "closed" in space._repr_html_()
    delta = Delta(tuple(Add("rules", f"Rule <{n}>, which is a long text. " * 9) for n in range(1000)))
    many = Context().apply(delta).context
    assert repr(many) == "<Context version 1: 1,000 entries>"
    assert len(repr(list(many)[:2])) < 300
    assert "Rule &lt;0&gt;" in many._repr_html_()
    assert "and 980 more" in many._repr_html_()
    for each, part in ((result, "test score"), (scored, "95% interval"), (answered, "usage 1 call")):
        assert part in repr(each)
        assert len(repr(each)) < 600
        assert "<table>" in each._repr_html_()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_notebook_runs(tmp_path: Path) -> None:
    nbformat, nbclient = needs("nbformat", "all-tests"), needs("nbclient", "all-tests")
    notebook = nbformat.read(Path(__file__).parents[2] / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    drawn = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    assert "final test: score 100.0% on 2 tasks" in drawn[0]
    assert all("text/html" in output.data for output in outputs)
