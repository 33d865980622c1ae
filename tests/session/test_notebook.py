"""Views of results in a notebook, and their short texts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import client, make_tasks
from needs import needs

from practicum import Parts, ask, evaluate, learn, run_sync
from practicum.core.context import seed_context

PARTS = Parts(clients={"agent": client()})


def test_a_run_draws_itself_and_results_are_short_texts_and_escaped_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[dict[str, Any]] = []
    about = {
        "get_ipython": lambda: SimpleNamespace(kernel=object()),
        "display": SimpleNamespace(display=lambda data, **how: drawn.append({**data, **how})),
        "version_info": (9, 0),  # matplotlib reads it
    }
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(**about))
    tasks, how = make_tasks(6), {"out": tmp_path / "<run>", "method": "episodes", "settings": {"batch": 1}}
    result = run_sync(learn(tasks[:4], test=tasks[4:], parts=PARTS, **how))
    first, last = drawn[0], drawn[-1]
    assert not first["update"]
    assert {each["display_id"] for each in drawn} == {first["display_id"]}
    assert "<progress" in next(each for each in drawn if each["update"])["text/html"]
    assert "&lt;run&gt;" in last["text/html"]
    assert "done after 0:0" in last["text/plain"].splitlines()[-1]

    scored = run_sync(evaluate(make_tasks(2), result.context, method="episodes", parts=PARTS))
    answered = run_sync(ask("Where is <it>?", result.run, parts=PARTS))
    for each, part in ((result, "test score"), (scored, "95% interval"), (answered, "usage 1 call")):
        assert part in repr(each)
        assert len(repr(each)) < 600
        assert "<table>" in each._repr_html_()
    many = seed_context([("rules", f"Rule <{n}>, which is a long text. " * 9) for n in range(30)])
    assert repr(many) == "<Context version 0: 30 entries>"
    assert len(repr(list(many)[:2])) < 300
    assert "Rule &lt;0&gt;" in many._repr_html_()
    assert "and 10 more" in many._repr_html_()


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
