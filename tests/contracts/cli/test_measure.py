"""`space monitor`, `space dynamics` and `space pools`."""

from __future__ import annotations

import pytest

from .kit import Model, Shell

PNG = b"\x89PNG\r\n\x1a\n"


def test_monitor_reports_the_metrics_of_a_run(workshop: Shell) -> None:
    value = workshop.json("space monitor runs/first")
    parts = ("run", "method", "state", "steps")
    assert [value[part] for part in parts] == ["runs/first", "ace", "done", [*range(1, 17)]]
    success = value["success"]
    assert (success["by"], success["attempts"], success["rate"], success["reused"]) == ("score", 16, 13 / 16, 3)
    assert success["by_step"]["rate"][0] == 0.0
    context = value["context"]
    assert (context["version"], context["entries"], context["tokens"], context["helpful"]) == (11, 3, 39, 8)
    assert len(context["by_step"]["drift"]) == 16
    calls = {role: used["calls"] for role, used in value["tokens"]["learning"]["by_role"].items()}
    assert calls == {"agent": 16, "reflector": 16, "curator": 3}
    assert "retrieval" not in value  # a metric that the method does not have
    bank = workshop.json("space monitor runs/bank")
    assert bank["memory"]["entries"] == bank["memory"]["failures"] == 5
    assert 0 < bank["retrieval"]["similarity"] < 1
    assert bank["contrast"]["agreement"] == 1.0


def test_a_judge_is_asked_again_and_nothing_is_stored(shell: Shell, model: Model) -> None:
    shell(f"learn test.jsonl --method reasoning_bank --no-labels --judge --model {model.name} --out judged")
    before = shell.json("show judged")
    model.bodies.clear()
    value = shell.json("space monitor judged --judge-again 3")
    assert len(model.bodies) == 3
    assert value["judge"]["again"]
    assert shell.json("show judged") == before


def test_dynamics_scores_every_checkpoint_and_pays_for_each_once(shell: Shell) -> None:
    value = shell.json("space dynamics runs/first --every 4")
    rows = [(row["step"], row["version"], row["current"], row["best"]) for row in value["checkpoints"]]
    assert rows == [(0, 0, 0.25, 0.25), (4, 4, 0.75, 0.75), (8, 6, 1.0, 1.0), (12, 9, 1.0, 1.0), (16, 11, 1.0, 1.0)]
    assert (value["tasks"], value["unlearned"], value["final"]) == (4, 0, 1.0)
    assert (value["usage"]["calls"], value["hits"]) == (4, 8)
    again = shell.json("space dynamics runs/first --every 4")
    assert again["checkpoints"] == value["checkpoints"]
    assert again["usage"]["calls"] == 0
    other = shell.json("space dynamics runs/first --every 8 --tasks train.jsonl")
    assert (other["tasks"], other["checkpoints"][-1]["current"]) == (8, 1.0)
    shell.fails("space dynamics runs/first --tasks nowhere.jsonl", error="tasks.not_found")


@pytest.mark.slow
def test_pictures_are_drawn(shell: Shell, model: Model) -> None:
    shell("space monitor runs/first --plot pictures")
    names = {path.name for path in (shell / "pictures").iterdir()}
    assert {"success.png", "context.png", "drift.png", "latency.png", "tokens.png"} <= names
    shell("space dynamics runs/first --every 8 --plot pictures/dynamics.png")
    shell(f"learn test.jsonl --method mael --model {model.name} --out network")
    shell("space pools network --plot pictures/pools.png")
    assert len([*(shell / "pictures").iterdir()]) == len(names) + 2
    assert all(path.read_bytes().startswith(PNG) for path in (shell / "pictures").iterdir())


def test_pools_show_the_experience_of_the_agents_of_a_network(shell: Shell, model: Model) -> None:
    shell(f"learn test.jsonl --method mael --model {model.name} --out network")
    value = shell.json("space pools network")
    assert sum(pool["size"] for pool in value["pools"]) == len(shell.texts("network"))
    (first, *_) = value["pools"]
    assert sum(first["rewards"]) == first["size"] == sum(kind["size"] for kind in first["by_kind"].values())
    assert shell.json("space pools network --pool", first["agent"])["pools"] == [first]
    shell.fails("space pools network --pool boss", error="pool.unknown")
    shell.fails("space pools runs/first")
