"""Groups of runs, the annotated twin, and the choice of tasks to reflect on."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import context_bytes
from scripts import Learned, annotated, learned, material, number, right, scripted, warm, wrong

from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Score, Task, Trace
from practicum.models.scripted import Call
from practicum.session.forget import forget
from practicum.store.database import Store

RULE = seed_context([("rules", "If in doubt, guess.")])
CONTRAST = "# Another attempt at it under the same rules, which succeeded\n"


def lucky_when_warm(call: Call) -> str:
    """The first run fails, the others succeed."""
    return right(call) if warm(call) else "wrong"


def part(prompt: str, heading: str) -> str:
    """The text under a heading of a reflector's prompt."""
    return prompt.partition(f"{heading.rstrip()}\n")[2].partition("\n\n# ")[0]


ONCE: dict[str, Any] = {"learn_from": "all", "batch": 1}
"""Settings with which small models learn as others do."""


# ---- groups


def test_the_reflector_reads_a_failed_run_beside_one_that_succeeded(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(lucky_when_warm), 1, {"group": 3})
    (prompt,) = run.prompts("reflector")
    assert "Answer: wrong\nFeedback: The answer is wrong." in part(prompt, "# The attempt")
    assert "Answer: word0\nFeedback: The answer is right." in part(prompt, CONTRAST)


def test_the_failed_run_is_reflected_on_if_the_first_one_passed(tmp_path: Path) -> None:
    run = learned(
        tmp_path, scripted(lambda call: "wrong" if warm(call) else right(call)), 1, {"group": 2, "heads": True}
    )
    assert all("Answer: wrong" in part(prompt, "# The attempt") for prompt in run.prompts("reflector"))
    assert all("Answer: word0" in part(prompt, CONTRAST) for prompt in run.prompts("reflector"))
    assert len(run.calls("reflector")) == 3


@pytest.mark.parametrize("agent", [wrong, right])
def test_without_contrast_the_reflector_reads_the_first_run_alone(tmp_path: Path, agent: Any) -> None:
    run = learned(tmp_path / "group", scripted(agent), 2, {"group": 3})
    alone = learned(tmp_path / "alone", scripted(agent), 2, {"rounds": 0})
    assert run.prompts("reflector") == alone.prompts("reflector")
    assert not [prompt for prompt in run.prompts("reflector") if CONTRAST in prompt]


@pytest.mark.parametrize("longer", ["failed", "passed"])
def test_small_models_read_both_attempts_cut_at_the_same_length_with_their_ends(tmp_path: Path, longer: str) -> None:
    def thinking(call: Call) -> dict[str, Any]:
        long = warm(call) == (longer == "passed")
        return {"answer": lucky_when_warm(call), "reasoning": ("so it is. " if long else "clear ") * 150}

    run = learned(tmp_path, scripted(thinking), 1, {"group": 2, **ONCE}, reasoning=True, profile="small")
    (prompt,) = run.prompts("reflector")
    texts = {"failed": part(prompt, "# The attempt"), "passed": part(prompt, CONTRAST)}
    cut, whole = texts.pop(longer), next(iter(texts.values()))
    assert "left out here" in cut
    assert "left out here" not in whole
    assert abs(len(cut) - len(whole)) < len("[... about 9,999 tokens left out here ...]") + 5
    for text in (cut, whole):
        assert text.startswith("Task: Message 0")
        assert "Feedback: The answer is" in text


def test_capable_models_read_both_attempts_whole_however_long_one_is(tmp_path: Path) -> None:
    steps = {"wrong": "so it is. " * 700 + "at last", "word0": "clear."}

    def thinking(call: Call) -> dict[str, Any]:
        return {"answer": lucky_when_warm(call), "reasoning": steps[lucky_when_warm(call)]}

    run = learned(tmp_path, scripted(thinking), 1, {"group": 2}, reasoning=True)
    (prompt,) = run.prompts("reflector")
    for answer, text in (("wrong", part(prompt, "# The attempt")), ("word0", part(prompt, CONTRAST))):
        assert f"Reasoning: {steps[answer]}\nAnswer: {answer}\n" in text
    assert "shortened_prompts" not in run.result.errors


@pytest.mark.parametrize("profile", ["full", "small"])
def test_short_attempts_are_not_cut_to_the_length_of_a_shorter_one(tmp_path: Path, profile: str) -> None:
    def thinking(call: Call) -> dict[str, Any]:
        return {"answer": lucky_when_warm(call), "reasoning": "so it is. " * 25 if warm(call) else ""}

    run = learned(tmp_path, scripted(thinking), 1, {"group": 2, **ONCE}, reasoning=True, profile=profile)
    (prompt,) = run.prompts("reflector")
    assert "left out here" not in prompt


@pytest.mark.parametrize("settings", [{}, {"heads": True}, {"heads": True, "head_calls": "one"}], ids=str)
def test_a_pair_too_long_for_the_reflector_is_cut_in_each_attempt(tmp_path: Path, settings: dict[str, Any]) -> None:
    def rambling(call: Call) -> dict[str, Any]:
        name = "passed" if warm(call) else "failed"
        return {"answer": lucky_when_warm(call), "reasoning": f"start {name} " + "word " * 600 + f"end {name}"}

    model = scripted(rambling, window=2048)
    run = learned(tmp_path, model, 1, {"group": 2, **settings}, reasoning=True, max_output_tokens=64)
    assert run.prompts("reflector")
    for prompt in run.prompts("reflector"):
        # What a head is told is not cut.
        assert prompt.count("left out here") == 2
        for name, heading in (("failed", "# The attempt"), ("passed", CONTRAST)):
            text = part(prompt, heading)
            assert text.startswith("Task: Message 0")
            assert f"start {name}" in text
            assert f"end {name}\nAnswer: " in text
            assert text.count("left out here") == 1
            assert "Feedback: The answer is" in text


def test_groups_and_twins_do_not_change_an_online_score(tmp_path: Path) -> None:
    def chancy(call: Call) -> str:
        return right(call) if (number(call) + warm(call) + annotated(call)) % 3 == 0 else "wrong"

    settings = {"online": True, "learn_from": "failures"}
    runs = [
        learned(tmp_path / name, scripted(chancy), 6, {**settings, **more})
        for name, more in (("plain", {"rounds": 0}), ("group", {"group": 4}), ("twin", {"twin": True}))
    ]
    assert [run.result.scores["online"] for run in runs] == [2 / 6] * 3


def test_the_use_of_an_entry_is_counted_once_a_task(tmp_path: Path) -> None:
    def citing(call: Call) -> dict[str, Any]:
        return {"answer": lucky_when_warm(call), "used": ["e0"]}

    run = learned(tmp_path, scripted(citing), 2, {"group": 3, "twin": True}, seed_context=RULE)
    rule = run.result.context.get("e0")
    assert rule is not None
    assert rule.uses == 2


# ---- which are reflected on


class Table:
    """What each task's runs answer, in order; the answer is its own score."""

    def __init__(self, rows: dict[str, Sequence[float]]) -> None:
        self.rows = rows
        self.asked: Counter[int] = Counter()

    def __call__(self, call: Call) -> str:
        key = number(call)
        self.asked[key] += 1
        return str(list(self.rows.values())[key][self.asked[key] - 1])


def reflected(run: Learned, rows: dict[str, Any]) -> list[str]:
    """The names of the tasks that were reflected on, in order."""
    return [list(rows)[number(call)] for call in run.calls("reflector")]


def score(task: Task, answer: str) -> Score:
    return Score(float(answer), float(answer) == 1.0)


ROWS: dict[str, Sequence[float]] = {
    "passes": (1, 1, 1),
    "fails": (0, 0, 0),
    "fails again": (0.2, 0.2, 0.2),
    "varies": (0.1, 0.9, 0.1),
    "varies less": (0.1, 0.3, 0.1),
    "contrast": (0, 1, 0),
    "less contrast": (0.8, 1, 0.8),
}


def chosen_of(folder: Path, batch: int, rows: dict[str, Sequence[float]], **how: Any) -> tuple[Learned, list[str]]:
    tasks = [Task(f"t{n}", f"Message {n}: which?", "-") for n in range(len(rows))]
    settings = {"batch": batch, "rollouts": len(rows), "group": 3, "learn_from": "failures"}
    run = learned(folder, scripted(Table(rows)), tasks, settings, parts={"scorer": score}, **how)
    return run, reflected(run, rows)


def in_batch(run: Learned, rows: dict[str, Any], names: set[str]) -> list[str]:
    """These tasks in the order of the batch."""
    order = [list(rows)[int(task.id[1:])] for task in run.reports[0].batch.tasks]
    return [name for name in order if name in names]


@pytest.mark.parametrize("seed", range(3))
def test_contrast_comes_first_then_variance_then_the_order_of_the_batch(tmp_path: Path, seed: int) -> None:
    run, names = chosen_of(tmp_path, 6, ROWS, seed=seed)
    assert names[:4] == ["contrast", "less contrast", "varies", "varies less"]
    assert names[4:] == in_batch(run, ROWS, {"fails", "fails again"})


def test_attempts_that_are_not_chosen_count_the_entries_they_used_and_only_successes_vote(tmp_path: Path) -> None:
    run = learned(
        tmp_path, scripted(lambda call: {"answer": "wrong" if number(call) else right(call), "used": ["e0"]}), 4,
        {"batch": 1, "rollouts": 4, "harmful": 0}, seed_context=RULE,
    )  # fmt: skip
    rule = run.result.context.get("e0")
    assert rule is not None
    assert len(run.calls("reflector")) == 1
    assert (rule.helpful, rule.harmful, rule.uses) == (1, 0, 4)


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_attempt_is_no_failure_and_is_not_chosen(tmp_path: Path, seed: int) -> None:
    """The run that counts of the first task, and a further one of the second."""

    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "overloaded") if warm(call) == (number(call) == 1) else "wrong"

    run = learned(tmp_path, scripted(away), 2, {"batch": 1, "rollouts": 2, "group": 2}, seed=seed)
    assert [number(call) for call in run.calls("reflector")] == [1]
    assert run.texts == ["If it is message 1, answer word1."]
    assert run.result.errors["lost_attempts"] == 2


# ---- the annotated twin

XML = seed_context([("rules", 'If a < b & "c", answer <d>.'), ("odd <one>", "Be brief.")])


def twin_agent(call: Call) -> dict[str, Any]:
    """Wrong; the twin consults one rule and doubts another."""
    if not annotated(call):
        return {"answer": "wrong", "used": ["e0"]}
    doubts = [{"id": "e1", "why": "too vague"}, {"id": "e9", "why": "not there"}]
    return {"answer": right(call), "used": ["e1", "e8"], "doubts": doubts, "missing": "what word0 means"}


def twins(run: Learned) -> list[Call]:
    return [call for call in run.calls("agent") if annotated(call)]


def test_the_annotated_view_is_xml_with_ids(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(twin_agent), 1, {"twin": True}, seed_context=XML)
    (twin,) = twins(run)
    page = "\n".join(twin.prompt.pages[1:-1])
    assert page == (
        '<entry id="e0" section="rules">If a &lt; b &amp; "c", answer &lt;d&gt;.</entry>\n'
        '<entry id="e1" section="odd &lt;one&gt;">Be brief.</entry>'
    )
    (plain,) = [call for call in run.calls("agent") if not annotated(call)]
    assert 'If a < b & "c", answer <d>.' in plain.prompt.head
    assert "<entry" not in plain.prompt.head
    assert twin.prompt.user == plain.prompt.user
    assert twin.options.temperature == plain.options.temperature


NOTED = "consulted: [e1]\ndoubted [e1]: too vague\nmissing: what word0 means"
LINES = ['[e0] (rules) If a < b & "c", answer <d>.', "[e1] (odd <one>) Be brief."]


@pytest.mark.parametrize("profile", ["full", "small"])
def test_citations_doubts_and_gaps_reach_the_reflector_with_the_entries_they_name(tmp_path: Path, profile: str) -> None:
    settings = {"twin": True, "rules_shown": True, **ONCE}
    run = learned(tmp_path, scripted(twin_agent), 1, settings, seed_context=XML, profile=profile)
    (call,) = run.calls("reflector")
    prompt = material(call.prompt)
    notes = part(prompt, "# The agent's notes, from another run of the same task")
    if profile == "full":
        assert notes == f"{NOTED}\nAnswer: word0"
        assert part(prompt, "# Entries that the agent says it used") == "[e0] [e1]"
        assert "\n".join(call.prompt.pages[1:-1]).splitlines() == LINES
    else:
        assert notes == NOTED
        assert part(prompt, "# Rules the agent relied on").splitlines() == LINES
    assert "Answer: wrong" in part(prompt, "# The attempt")
    assert CONTRAST not in prompt
    (rollout,) = run.rollouts
    assert rollout.twin is not None
    assert rollout.twin.used == ("e1",)
    assert rollout.twin.data == {"doubts": {"e1": "too vague"}, "missing": "what word0 means", "score": 1.0}


def test_the_reflector_may_tag_what_the_twin_named(tmp_path: Path) -> None:
    def tagging(call: Call) -> dict[str, Any]:
        return {"insight": "If so, do.", "tags": [{"id": f"e{n}", "verdict": "harmful"} for n in (0, 1, 7)]}

    run = learned(tmp_path, scripted(twin_agent, tagging), 1, {"twin": True}, seed_context=XML)
    assert [(e.harmful, e.uses) for e in list(run.result.context)[:2]] == [(1, 1), (1, 1)]
    assert run.result.errors["unknown_tags"] == 1


def all_prompts(run: Learned) -> list[tuple[str, str]]:
    return [(call.role, call.text) for call in run.model.calls]


def test_capable_models_read_the_whole_run_of_the_twin_without_its_outcome(tmp_path: Path) -> None:
    def thinking(call: Call) -> dict[str, Any]:
        return {**twin_agent(call), "reasoning": f"I look at each word. {'Then at the next. ' * 100}That is all."}

    run = learned(tmp_path, scripted(thinking), 1, {"twin": True}, seed_context=XML, reasoning=True)
    (prompt,) = run.prompts("reflector")
    notes = part(prompt, "# The agent's notes, from another run of the same task")
    assert notes == f"{NOTED}\nReasoning: {thinking(run.calls('agent')[0])['reasoning']}\nAnswer: word0"
    assert prompt.count("Feedback: ") == 1
    assert "is right." not in prompt


@pytest.mark.parametrize(("method", "profile"), [("ace", "full"), ("rcl", "full"), ("rcl", "small")])
def test_the_outcome_of_the_twin_changes_nothing(tmp_path: Path, method: str, profile: str) -> None:
    """Its score is kept to be looked at; the same run with another one asks the same of every role."""

    def agent(answer: str) -> Any:
        return lambda call: {**twin_agent(call), "answer": answer} if annotated(call) else "wrong"

    def scorer(answer: str, value: float) -> Any:
        return lambda task, said: Score(value if said == answer else 0.0, said == answer and value == 1.0)

    settings = {"twin": True, "group": 2, "batch": 2, "state": True, "heads": True}
    runs = []
    for name, value in (("right", 1.0), ("wrong", 0.0)):
        # Small models are not even shown its answer.
        answer = "the twin's" if profile == "full" else f"the twin's, {name}"
        how = {"seed_context": XML, "profile": profile, "parts": {"scorer": scorer(answer, value)}}
        runs.append(learned(tmp_path / name, scripted(agent(answer)), 4, settings, method, **how))
    assert all_prompts(runs[0]) == all_prompts(runs[1])
    assert context_bytes(runs[0].result) == context_bytes(runs[1].result)
    assert runs[0].result.scores == runs[1].result.scores
    kept = [[r.twin.data["score"] for r in run.rollouts if r.twin is not None] for run in runs]
    assert kept == [[1.0] * len(kept[0]), [0.0] * len(kept[0])]
    assert kept[0]


def test_a_twin_that_passes_makes_no_contrast(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(twin_agent), 1, {"twin": True, "group": 2, "heads": True}, seed_context=XML)
    assert len(run.calls("agent")) == 3
    assert not [prompt for prompt in run.prompts("reflector") if CONTRAST in prompt]


def test_no_judge_is_asked_about_the_twin(tmp_path: Path) -> None:
    judge = {"right": False, "reason": "no"}
    run = learned(
        tmp_path, scripted(twin_agent, judge=lambda call: judge), 2, {"twin": True, "group": 2},
        labels=False, judged=True, seed_context=XML,
    )  # fmt: skip
    assert len(twins(run)) == 2
    assert len(run.calls("judge")) == 4
    assert "word" not in "".join(part(prompt, "# Answer") for prompt in run.prompts("judge"))


def test_a_lost_twin_changes_nothing_for_the_attempt(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "overloaded") if annotated(call) else "wrong"

    run = learned(tmp_path / "twin", scripted(away), 1, {"twin": True})
    alone = learned(tmp_path / "alone", scripted(wrong), 1, {"rounds": 0})
    assert run.prompts("reflector") == alone.prompts("reflector")
    assert run.texts == alone.texts
    assert run.result.errors == {"annotated_lost_attempts": 1}


def test_faults_of_the_twin_have_their_own_counters(tmp_path: Path) -> None:
    def agent(text: str, context: str, annotated: bool) -> dict[str, Any]:
        if annotated and "Message 1" in text:
            raise ValueError("no")
        return {"answer": "wrong", "used": ["e8"] if annotated else []}

    run = learned(tmp_path, scripted(), 2, {"twin": True, "batch": 2}, parts={"agent": agent}, seed_context=XML)
    assert run.result.errors == {"annotated_failed_attempts": 1, "annotated_unknown_ids": 1}


def test_a_function_agent_reads_the_annotated_context_and_may_return_doubts(tmp_path: Path) -> None:
    def agent(text: str, context: str) -> dict[str, Any]:
        seen.append(context)
        told = {"doubts": [{"id": "e1", "why": "too vague"}, {"id": "e7"}], "missing": "more"}
        return {"answer": "wrong", "used": ["e0"], **(told if "<entry" in context else {})}

    seen: list[str] = []
    run = learned(tmp_path, scripted(), 1, {"twin": True}, parts={"agent": agent}, seed_context=XML)
    assert sorted("<entry id=" in context for context in seen) == [False, True]
    assert "consulted: [e0]\ndoubted [e1]: too vague\nmissing: more" in run.prompts("reflector")[0]


@pytest.mark.parametrize("data", [{}, {"doubts": ["e1"]}, {"doubts": {"e1": "vague"}}], ids=str)
def test_a_function_agent_may_return_a_trace(tmp_path: Path, data: dict[str, Any]) -> None:
    def agent(text: str, context: str) -> Trace:
        return Trace("wrong", used=("e0",), data=data)

    run = learned(tmp_path, scripted(), 1, {"twin": True}, parts={"agent": agent}, seed_context=XML)
    assert ("doubted [e1]: vague" in run.prompts("reflector")[0]) is (data.get("doubts") == {"e1": "vague"})


def test_a_command_agent_is_asked_for_annotations(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\nasked = json.loads(sys.stdin.readline())\n"
        "told = {'doubts': [{'id': 'e1', 'why': 'vague'}], 'missing': 'more'} if asked.get('annotated') else {}\n"
        "print(json.dumps({'answer': 'wrong', 'used': ['e0'], **told}))\n"
    )
    path.chmod(0o755)
    run = learned(tmp_path, scripted(), 1, {"twin": True}, agent=f"command:{path}", seed_context=XML)
    assert "consulted: [e0]\ndoubted [e1]: vague\nmissing: more" in run.prompts("reflector")[0]
    (rollout,) = run.rollouts
    assert rollout.trace.data == {}


def test_hidden_entries_that_an_agent_guessed_are_not_shown_to_the_reflector(tmp_path: Path) -> None:
    seed: Context = seed_context([("rules", "Be brief."), (".state", "the secret ledger")])

    def guessing(call: Call) -> dict[str, Any]:
        return {"answer": "wrong", "used": ["e1"], "doubts": [{"id": "e1", "why": "what is it?"}]}

    run = learned(tmp_path, scripted(guessing), 1, {"twin": True}, seed_context=seed)
    shown = [call.text for call in run.model.calls if call.role in ("agent", "reflector")]
    assert not [text for text in shown if "secret ledger" in text]


# ---- journal

BOTH: dict[str, Any] = {"group": 3, "twin": True, "batch": 2, "learn_from": "failures"}


def by_chance(call: Call) -> dict[str, Any]:
    """Right by a chance that hangs on the place."""
    return {"answer": right(call) if (call.options.seed or 0) % 2 else "wrong", "used": ["e0"]}


def test_a_forgotten_task_leaves_no_run_of_a_group_and_no_twin(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(by_chance), 3, BOTH, seed_context=RULE)
    with Store.open(run.folder) as store:
        assert forget(store, "run", tasks=["t1"]).left == 0
    with sqlite3.connect(run.folder / "run.sqlite") as db:
        left = [place for (place,) in db.execute("select place from journal where place like '%.t1/%'")]
        others = [place for (place,) in db.execute("select place from journal where place like '%annotated%.t2/%'")]
    db.close()
    assert left == []
    assert others
