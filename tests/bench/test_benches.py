"""The benches of overload, retrieval and robustness at small sizes, their continuation and their refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command
from refusals import refused

from practicum.bench import overloaded_curator
from practicum.bench.facts import make_facts
from practicum.bench.overload import ARMS, OverloadPlan, OverloadRow, overload, targets
from practicum.bench.robustness import ReflectorSetting, robustness
from practicum.bench.robustness import targets as robustness_targets
from practicum.bench.shared_budget import SharedBudget
from practicum.models.budget import BudgetLimits
from practicum.models.scripted import ScriptedClient
from practicum.session.records import load_context


def measure(
    out: Path, size: int, arms: tuple[str, ...], client: ScriptedClient | None = None, calls: int | None = None,
    **plan: Any,
) -> dict[str, OverloadRow]:  # fmt: skip
    """The row of each method, with the overloaded curator unless another is passed."""
    budget = SharedBudget(BudgetLimits(calls=calls))
    model = client or ScriptedClient(overloaded_curator.respond)
    work = overload(OverloadPlan(sizes=(size,), arms=arms, **plan), out, client=model, budget=budget)
    return {row.method: row for row in asyncio.run(work)}


@pytest.mark.slow
def test_one_call_forgets_and_combee_does_not(tmp_path: Path) -> None:
    rows = measure(tmp_path, 40, ARMS)
    assert rows["sequential"].readable == 1
    for baseline in ("naive", "top_k", "summarized"):
        assert rows[baseline].readable <= 0.2
    assert rows["combee"].readable >= 0.8
    assert rows["unaccounted"].readable >= rows["level-1"].readable >= 0.45
    assert rows["combee"].tokens <= 1.5 * rows["sequential"].tokens
    # The curator itself adds most of them: code added at most a tenth.
    assert rows["combee"].by_code <= 4
    assert all(row.wrong == 0 for row in rows.values())
    every = list(rows.values())
    assert all(target.met for target in targets(every, "some model"))
    assert (len(targets(every, "some model")), len(targets(every, "simulated"))) == (3, 4)
    assert targets([rows["naive"]], "simulated") == []


def test_a_stopped_bench_continues_and_a_complete_one_pays_nothing(tmp_path: Path) -> None:
    def measured(client: ScriptedClient | None = None, **how: Any) -> dict[str, OverloadRow]:
        return measure(tmp_path, 6, ("sequential", "combee"), client, **how)

    first = measured(calls=4)
    assert [row.stopped for row in first.values()] == ["the budget of 4 calls is spent"]
    client = ScriptedClient(overloaded_curator.respond)
    whole = measured(client)
    assert whole["sequential"].calls == 6
    assert len(client.calls) == 2 + whole["combee"].calls
    assert whole["sequential"].readable == 1
    again = ScriptedClient(overloaded_curator.respond)
    assert measured(again) == whole
    with refused("comparison.mismatch"):
        measured(seed=1)
    assert again.calls == []
    context = load_context(whole["combee"].run)
    assert {entry.text for entry in context} == {fact.text for fact in make_facts(6)}
    assert all(entry.sources[0].startswith("task:fact-") for entry in context)


def written(folder: Path, turns: list[dict[str, Any]], questions: list[dict[str, Any]]) -> tuple[str, str]:
    for name, lines in (("turns", turns), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "turns.jsonl"), str(folder / "questions.jsonl")


def test_tasks_are_retrieved_by_their_label(tmp_path: Path) -> None:
    """Only the nearest by words has the label, by its target or by a field of its meta."""
    both, pay = {"target": "Ash", "meta": {"kinds": ["pay", "buy"]}}, {"target": "Elm", "meta": {"kinds": ["pay"]}}
    texts = {"pay ZX-81": both, "pay the bill": pay, "pay the fee": pay, "pay the rent": pay}
    tasks = [{"id": f"t{n}", "input": text, **label} for n, (text, label) in enumerate(texts.items())]
    files = written(tmp_path, tasks, [{"id": "q", "input": "ZX-81", **both}])
    for label in ([], ["--label", "kinds"]):
        done = run_command(["bench", "retrieval", *files, *label, "--json"], tmp_path)
        words = {row["way"]: row for row in done.json["rows"]}["words"]
        assert {row["way"] for row in done.json["rows"]} == {"cosine", "words", "mixed"}
        assert [words[name]["mean"] for name in ("nearest", "of 4", "majority")] == [1, 0.25, 0]
    done = run_command(["bench", "retrieval", *files, "--label", "kind"], tmp_path)
    assert (done.code, "'t0'" in done.line, "meta.kind" in done.line) == (2, True, True)


@pytest.mark.slow
def test_with_the_gate_no_run_ends_below_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few tasks, and each step harmful."""
    for name, count in (("LEARNING", 8), ("GATE", 48)):
        monkeypatch.setattr(f"practicum.bench.robustness.{name}", count)
    without, with_ = robustness([ReflectorSetting(every=1)], 1, lambda row: None)
    assert with_.gain >= 0
    assert without.gain < -0.5
    assert without.base == with_.base
    assert [target.met for target in robustness_targets([without, with_])] == [True]


ONE = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello."}
LOCOMO: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {"speaker_a": "Ann", "session_1_date_time": "1 pm on 2 May, 2023", "session_1": [ONE]},
    "qa": [{"question": "Who?", "answer": "Ann", "evidence": ["D1:1"], "category": 1}],
}


HAYSTACK: dict[str, Any] = {
    "question_id": "q1", "question_type": "single-session-user", "question": "Which colour is my bike?",
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
    "haystack_sessions": [
        [{"role": "user", "content": "What rhymes with moon?"}, {"role": "assistant", "content": "Spoon."}],
        [{"role": "user", "content": "I painted my bike green.", "has_answer": True}],
    ],
}  # fmt: skip


def test_longmemeval_is_searched_by_messages(tmp_path: Path) -> None:
    records = [HAYSTACK, {**HAYSTACK, "question_id": "q2_abs"}]
    (tmp_path / "longmemeval_s.json").write_text(json.dumps(records))
    done = run_command(["bench", "retrieval", "longmemeval_s.json", "--json"], tmp_path)
    rows = [row for row in done.json["rows"] if row["category"] == "single-session-user"]
    assert done.json["entries"] == 3
    assert [(row["way"], row["n"], row["@1"]["mean"]) for row in rows] == [
        (way, 1, 1.0) for way in ("cosine", "words", "mixed", "neighbours")
    ]
    for change in ({"haystack_dates": []}, {"haystack_sessions": [[{"role": "user"}]]}, {"question": None}):
        (tmp_path / "longmemeval_s.json").write_text(json.dumps([HAYSTACK | change]))
        done = run_command(["bench", "retrieval", "longmemeval_s.json"], tmp_path)
        assert (done.code, done.line.startswith("longmemeval_s.json record 1: ")) == (2, True)


def test_a_damaged_locomo_file_is_one_line_with_the_place(tmp_path: Path) -> None:
    for change, place in (
        ({"conversation": None}, "(conversation: "), ({"qa": [{"question": 7}]}, "(qa.0.question: "),
        ({"conversation": {"session_1": [{**ONE, "text": None}]}}, "(0.text: "),
        ({"conversation": {"session_1": 3}}, "(a session: "),
        ({"conversation": {"session_1": [ONE], "session_2": [ONE]}}, "id 'conv-1/D1:1' is already used"),
    ):  # fmt: skip
        (tmp_path / "locomo10.json").write_text(json.dumps([LOCOMO | change]))
        done = run_command(["bench", "retrieval", "locomo10.json"], tmp_path)
        assert (done.code, done.line.startswith("locomo10.json record 1")) == (2, True)
        assert place in done.line
