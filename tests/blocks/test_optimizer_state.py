"""The optimizer's state: what it remembers, who sees it, how large it gets, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import context_bytes, make_tasks
from runs import indoors
from scripts import Learned, added, insight, learned, number, resumed, right, scripted, shape, wrong

import practicum
from practicum.blocks.update.append import append
from practicum.blocks.update.optimizer_state import STATE, state_entry, state_text, with_state
from practicum.core.context import Context, initial_context, seed_context
from practicum.core.edits import Add
from practicum.core.errors import ProviderError
from practicum.core.types import Lesson
from practicum.core.views import count_tokens, render_annotated, render_full
from practicum.models.scripted import Call
from practicum.session.forget import forget
from practicum.store.database import Store
from practicum.store.versions import read_versions, rebuild

ON: dict[str, Any] = {"state": True, "rounds": 0}
NOTES = "# What you know of your own changes so far"
RULE = seed_context([("rules", "If in doubt, guess.")])


def noting(call: Call) -> dict[str, Any]:
    """The ledger grows by a line a step: what the lessons were about."""
    old = re.findall(r"^- (noted .*)$", call.prompt.user.partition("# This step's diagnoses")[0], re.MULTILINE)
    new = "noted " + " ".join(sorted(set(re.findall(r"word\d+", call.prompt.user.partition("diagnoses")[2]))))
    return {"ledger": [*old, new], "hypotheses": ["it may be luck"], "phase": "convergent"}


def unsure(call: Call) -> dict[str, Any]:
    return {"insight": "If you do not know, ask."}


def document(context: Context) -> str:
    entry = state_entry(context)
    return "" if entry is None else entry.text


def kept_in(run: Learned) -> list[str]:
    return [document(report.context) for report in run.reports]


def test_diagnoses_that_are_too_much_for_the_model_are_cut_and_counted() -> None:
    run = indoors(scripted(state=noting, window=4096))
    lessons = [Lesson(f"l{n}", "If a, do b.", data={"cause": "it guessed " * 200}) for n in range(20)]
    delta = asyncio.run(with_state(append("rules"), "Remember.", 800)(lessons, Context(), run))
    assert delta.edits[-1].section == STATE
    assert run.counts["shortened_prompts"] == 1


def test_hidden_entries_of_others_are_not_told_as_it(tmp_path: Path) -> None:
    seed = seed_context([(".outcomes", "what another method keeps"), ("rules", "If in doubt, guess.")])
    run = learned(tmp_path, scripted(wrong), settings={"rounds": 0}, seed_context=seed)
    (prompt,) = run.prompts("curator")
    assert NOTES not in prompt
    assert "what another method keeps" not in prompt


def test_it_is_told_how_often_entries_helped_and_harmed(tmp_path: Path) -> None:
    seed = initial_context(
        [Add("rules", "If in doubt, guess.", helpful=4, harmful=1), Add("rules", "If sure, say so.")]
    )
    run = learned(tmp_path, scripted(wrong), settings=ON, seed_context=seed)
    (prompt,) = run.prompts("state")
    assert prompt.endswith("# What entries were seen to do\n- [e0] helped 4, harmed 1")


# ---- what it is


def test_it_is_one_entry_with_versions_and_fields(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, state=noting), 3, ON)
    states = [entry for entry in run.result.context if entry.hidden]
    assert len(states) == len(run.result.context.in_section(STATE)) == 1
    assert states[0].data == {
        "ledger": [f"noted word{r.batch.tasks[0].id[1:]}" for r in run.reports], "assessment": [],
        "hypotheses": ["it may be luck"], "phase": "convergent",
    }  # fmt: skip
    with Store.open(run.folder) as store:
        versions = read_versions(store, "run")
    assert [document(rebuild(versions, v.version)) for v in versions] == ["", *kept_in(run)]
    assert [text.count("noted") for text in kept_in(run)] == [1, 2, 3]
    assert (states[0].born, states[0].changed) == (1, 3)


def test_it_is_brought_up_to_date_from_the_diagnoses_and_both_contexts(tmp_path: Path) -> None:
    def deciding(call: Call) -> dict[str, Any]:
        if "message 1" in call.prompt.user:
            return {"decisions": [{"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": "If in doubt, ask."}]}
        return {"decisions": [{"lesson": 1, "op": "DELETE", "ids": ["e0"]}, {"lesson": 1, "op": "ADD"}]}

    heads = {"attribution": "actionable_gap", "cause": "it guessed", "gap": "none said it"}
    harmed = initial_context([Add("rules", "If in doubt, guess.", harmful=1)])
    run = learned(
        tmp_path, scripted(wrong, lambda call: {**heads, **insight(call)}, deciding, noting), make_tasks(2),
        {**ON, "heads": True, "online": True}, seed_context=harmed,
    )  # fmt: skip
    first, second = run.calls("state")
    assert first.prompt.pages == ("[e0] (rules) If in doubt, guess.",)
    assert first.prompt.user == (
        "# The state so far\n(none yet)\n\n"
        "# This step's diagnoses\n"
        "- If it is message 0, answer word0. (actionable_gap; it guessed; none said it)\n\n"
        "# This step's edits\n"
        "+ [e1] (rules) If it is message 0, answer word0.\n- [e0] (rules) If in doubt, guess.\n\n"
        "# What entries were seen to do\n(nothing yet)"
    )
    assert second.prompt.pages == ("[e1] (rules) If it is message 0, answer word0.",)
    assert second.prompt.user.startswith("# The state so far\nChanges so far:\n- noted word0")
    assert "# This step's edits\n(none)" not in first.prompt.user


def test_a_change_is_told_with_what_stood_there_before(tmp_path: Path) -> None:
    def updating(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": "If in doubt, ask."}]}

    run = learned(tmp_path, scripted(wrong, unsure, updating, noting), 1, ON, seed_context=RULE)
    edits = run.prompts("state")[0].partition("# This step's edits\n")[2].partition("\n\n")[0]
    assert edits == "~ [e0] (rules) If in doubt, ask. (was: If in doubt, guess.)"


def test_a_diagnosis_that_leads_to_no_edit_is_remembered_too(tmp_path: Path) -> None:
    chance = {"attribution": "execution_variance", "cause": "it slipped", "insight": "If it slips, hold it."}
    run = learned(tmp_path, scripted(wrong, lambda call: chance, state=noting), 1, {**ON, "heads": True})
    assert run.calls("curator") == []
    assert "- (no rule) (execution_variance; it slipped)" in run.prompts("state")[0]


def test_a_step_that_teaches_nothing_asks_for_no_state(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(right, state=noting), 3, {**ON, "learn_from": "failures"})
    assert {call.role for call in run.model.calls} == {"agent"}
    assert len(run.result.context) == 0


@pytest.mark.parametrize("trouble", ["Sure!", ProviderError("gone")], ids=["bad JSON", "provider"])
def test_a_call_that_fails_leaves_it_as_it_was_and_is_counted(tmp_path: Path, trouble: str | Exception) -> None:
    def failing(call: Call) -> Any:
        return noting(call) if "(none yet)" in call.text else trouble

    run = learned(tmp_path, scripted(wrong, state=failing), 3, ON)
    assert len(set(kept_in(run))) == 1
    assert run.result.errors["lost_states"] == 2
    assert len(run.texts) == 3


# ---- who sees it


def test_the_curator_sees_it_and_agent_and_reflector_never_do(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, state=noting), 8, {"group": 2, "rollouts": 3}, "rcl")
    assert len(run.reports) > 3
    for call in run.model.calls:
        if call.role in ("agent", "reflector"):
            assert "noted" not in call.text
            assert STATE not in call.text
    first, *later = run.prompts("curator")
    assert NOTES not in first
    for prompt, text in zip(later, kept_in(run), strict=False):
        assert f"{NOTES}\n{text}\n\n# New lessons" in prompt
    assert len(later) == len(run.reports) - 1
    assert STATE not in "".join(call.text for call in run.model.calls)


def test_without_the_setting_nothing_of_it_is_asked_or_shown(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, state=noting), 3, {"rounds": 0})
    assert run.calls("state") == []
    assert not [prompt for prompt in run.prompts("curator") if NOTES in prompt]


def test_an_id_that_is_guessed_shows_nothing_and_changes_nothing(tmp_path: Path) -> None:
    """An agent, a reflector or a curator that names the document by its id, which stands in no prompt."""

    def agent(call: Call) -> dict[str, Any]:
        return {"answer": "wrong", "used": ["e1", "e2"]}

    def reflector(call: Call) -> dict[str, Any]:
        return {**insight(call), "tags": [{"id": id, "verdict": "harmful"} for id in ("e1", "e2")]}

    def curator(call: Call) -> dict[str, Any]:
        ids = [{"lesson": 1, "op": op, "ids": ["e1"], "text": "Gone."} for op in ("UPDATE", "DELETE")]
        return {"decisions": [*ids, *added(call)["decisions"]]}

    run = learned(tmp_path, scripted(agent, reflector, curator, noting), 5, ON)
    assert [text.count("noted") for text in kept_in(run)] == [1, 2, 3, 4, 5]
    assert not [prompt for prompt in run.prompts("reflector") if "noted" in prompt]
    entry = state_entry(run.result.context)
    assert entry is not None
    assert (entry.id, entry.helpful, entry.harmful, entry.uses) == ("e1", 0, 0, 0)


def test_it_outlives_a_playbook_that_is_written_anew(tmp_path: Path) -> None:
    def rewriting(call: Call) -> str:
        return json.dumps({"entries": [{"section": "rules", "text": f"Rule {len(call.text)}."}]})

    run = learned(tmp_path, scripted(wrong, curator=rewriting, state=noting), 3, {**ON, "curator": "rewrite"})
    assert [text.count("noted") for text in kept_in(run)] == [1, 2, 3]
    assert len(run.texts) == 1
    assert run.result.refused == 0


# ---- how large it gets, and what it does not touch


def long_winded(call: Call) -> dict[str, Any]:
    step = len(re.findall(r"line \d+:", call.prompt.user.partition("diagnoses")[0]))
    lines = [f"line {n}: {'so much was changed and for such good reasons ' * 3}" for n in range(step + 4)]
    rules = [{"id": f"e{n}", "says": "works poorly, or well, who knows; let us see " * 2} for n in range(8)]
    return {"ledger": lines[-12:], "assessment": rules, "hypotheses": ["it may be this, it may be that " * 4] * 6}


@pytest.mark.parametrize("tokens", [100, 300, 800])
def test_it_never_has_more_than_its_tokens_and_the_oldest_lines_go_first(tmp_path: Path, tokens: int) -> None:
    run = learned(tmp_path, scripted(wrong, state=long_winded), 4, {**ON, "state_tokens": tokens})
    for report, call in zip(run.reports, run.calls("state"), strict=True):
        entry, said = state_entry(report.context), long_winded(call)
        assert entry is not None
        assert count_tokens(entry.text) <= tokens
        assert entry.text == state_text(dict(entry.data))
        kept = {part: len(entry.data[part]) for part in ("ledger", "hypotheses", "assessment")}
        assert entry.data["ledger"] == said["ledger"][len(said["ledger"]) - kept["ledger"] :]
        # What was changed is the first to go, how the entries do the last.
        assert kept["hypotheses"] == 6 or kept["ledger"] == 0
        assert kept["assessment"] == 8 or kept["hypotheses"] == 0


def test_the_budget_of_the_playbook_is_for_rules_alone(tmp_path: Path) -> None:
    settings = {**ON, "budget": 60, "batch": 2}
    plain = learned(tmp_path / "plain", scripted(wrong), 6, {**settings, "state": False})
    run = learned(tmp_path / "state", scripted(wrong, state=long_winded), 6, settings)
    assert run.texts == plain.texts
    assert render_full(run.result.context).tokens <= 60
    assert len(document(run.result.context)) > 4 * 60


def test_it_is_merged_with_nothing(tmp_path: Path) -> None:
    """The same words in a rule and in the document stay what they are; embeddings see rules alone."""

    def echoing(call: Call) -> dict[str, Any]:
        return {"ledger": [f"If it is message {n}, answer word{n}." for n in range(4)]}

    run = learned(tmp_path, scripted(wrong, state=echoing), 4, {**ON, "dedupe": "proactive", "threshold": 0.3})
    assert len([e for e in run.result.context if e.hidden]) == 1
    assert run.texts


def test_exports_for_people_and_agents_leave_it_out_and_json_keeps_it(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, state=noting), 2, ON)
    for format in ("markdown", "agents-md"):
        text = practicum.export(run.result.context, format)  # type: ignore[arg-type]
        assert "noted" not in text
        assert STATE not in text
    assert "noted" in practicum.export(run.result.context, "json")


def test_it_shows_in_no_view_and_in_no_digest() -> None:
    plain = seed_context([("rules", "Be brief.")])
    noted = seed_context([("rules", "Be brief."), (STATE, "noted this")])
    other = seed_context([("rules", "Be brief."), (STATE, "noted that")])
    assert plain.digest == noted.digest == other.digest
    for how in (render_full, render_annotated):
        assert how(plain).pages == how(noted).pages
        assert how(plain).tokens == how(noted).tokens


def counting(call: Call) -> dict[str, Any]:
    return {"ledger": ["so it was"] * (call.prompt.user.count("so it was") + 1)}


def test_a_change_of_it_alone_costs_no_new_validation(tmp_path: Path) -> None:
    def covered(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "COVERED", "ids": ["e0"]}]}

    run = learned(tmp_path, scripted(wrong, unsure, covered, counting), 4, ON, seed_context=RULE, val=make_tasks(3, 50))
    assert len(set(kept_in(run))) == 4
    assert [report.context.version for report in run.reports] == [1, 2, 3, 4]
    assert sum(number(call) >= 50 for call in run.calls("agent")) == 3
    assert all(report.val == 0.0 for report in run.reports)


# ---- resume, forget


@pytest.mark.parametrize("calls", [6, 9, 12])
def test_a_resume_finds_it_again(tmp_path: Path, calls: int) -> None:
    whole = learned(tmp_path / "whole", scripted(wrong, state=noting), 5, ON)
    model = scripted(wrong, state=noting)
    cut = learned(tmp_path / "cut", model, 5, ON, max_calls=calls)
    again = resumed(cut, model, max_calls=1000)
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(model.calls) == len(whole.model.calls)
    assert "noted" in document(practicum.load_context(cut.folder))


def test_forgetting_a_task_it_speaks_of_takes_it_away(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, state=noting), 3, ON)
    with Store.open(run.folder) as store:
        assert forget(store, "run", tasks=["t1"]).left == 0
    context = practicum.load_context(run.folder)
    assert state_entry(context) is None
    assert sorted(e.text for e in context) == [f"If it is message {n}, answer word{n}." for n in (0, 2)]
    assert b"noted word0 word1" not in (run.folder / "run.sqlite").read_bytes()


def test_it_goes_on_from_a_seed(tmp_path: Path) -> None:
    first = learned(tmp_path / "first", scripted(wrong, state=noting), 2, ON)
    second = learned(
        tmp_path / "second", scripted(wrong, state=noting), make_tasks(1, 7), ON, seed_context=first.result.context
    )
    assert document(second.result.context).count("noted") == 3
    assert len([e for e in second.result.context if e.hidden]) == 1
    assert [shape(call) for call in second.calls("state")] == ["State"]
