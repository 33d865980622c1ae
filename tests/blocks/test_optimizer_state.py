"""The optimizer's state: what it remembers, who sees it, how large it gets, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs import indoors
from scripts import added, insight, learned, scripted, wrong

import practicum
from practicum.blocks.update.append import append, within_budget
from practicum.blocks.update.curator import Curator, rewrite
from practicum.blocks.update.dedupe import deduplicated
from practicum.blocks.update.optimizer_state import STATE, state_entry, state_text, with_state
from practicum.core.context import Context, initial_context, seed_context
from practicum.core.edits import Add
from practicum.core.types import Instructions, Lesson
from practicum.core.views import count_tokens, render_annotated, render_full
from practicum.engine.loop import UpdateSeam
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.forget import forget
from practicum.store.database import Store

ON: dict[str, Any] = {"state": True, "rounds": 0}
NOTES = {"small": "# What you know of your own changes so far", "full": "# Your notes on your changes so far"}
RULE = seed_context([("rules", "If in doubt, guess.")])
APPEND, CURATOR = append("rules"), Curator(Instructions("Curate."), guards=True)


def noting(call: Call) -> dict[str, Any]:
    """The ledger grows by a line a step: what the lessons were about."""
    old = re.findall(r"^- (noted .*)$", call.prompt.user.partition("# This step's diagnoses")[0], re.MULTILINE)
    new = "noted " + " ".join(sorted(set(re.findall(r"word\d+", call.prompt.user.partition("diagnoses")[2]))))
    return {"ledger": [*old, new], "hypotheses": ["it may be luck"], "phase": "convergent"}


def lesson(n: int, **data: str) -> Lesson:
    return Lesson(f"l{n}", f"If it is message {n}, answer word{n}.", sources=(f"task:t{n}",), data=data)


def document(context: Context) -> str:
    entry = state_entry(context)
    return "" if entry is None else entry.text


def rules(context: Context) -> list[str]:
    return [entry.text for entry in context if not entry.hidden]


def stepped(
    model: ScriptedClient, steps: int | Sequence[Lesson], update: UpdateSeam = APPEND, context: Context | None = None,
    tokens: int = 800,
) -> list[Context]:  # fmt: skip
    """The context after each step, of one lesson each."""
    run, made = indoors(model), with_state(update, Instructions("Remember."), tokens)

    async def work() -> list[Context]:
        now, seen = context or Context(), list[Context]()
        for n, one in enumerate([lesson(n) for n in range(steps)] if isinstance(steps, int) else steps):
            now = now.apply(await made([one], now, run.at(f"step {n}"))).context
            seen.append(now)
        return seen

    return asyncio.run(work())


def asked(model: ScriptedClient, role: str = "state") -> list[Call]:
    return [call for call in model.calls if call.role == role]


# ---- what it is


def test_diagnoses_beyond_the_window_are_shortened_and_counted() -> None:
    run = indoors(scripted(state=noting, window=4096))
    lessons = [Lesson(f"l{n}", "If a, do b.", data={"cause": "it guessed " * 200}) for n in range(20)]
    delta = asyncio.run(with_state(append("rules"), Instructions("Remember."), 800)(lessons, Context(), run))
    assert delta.edits[-1].section == STATE
    assert run.counts["shortened_prompts"] == 1


def test_of_a_playbook_above_the_window_it_is_shown_what_the_step_is_about() -> None:
    filler = [f"If drawer {n} of the old cabinet is open, close it." * 4 for n in range(200)]
    context = seed_context([("rules", text) for text in (*filler, "If it is message 0, ask.")])
    model = scripted(curator=added, state=noting, window=8192)
    run = indoors(model, profile="full")
    about = replace(lesson(0, cause="it guessed"), votes={"e77": "harmful"})
    asyncio.run(with_state(Curator(Instructions("Curate.")), Instructions("Remember."), 800)([about], context, run))
    (call,) = asked(model)
    shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
    assert {"e77", "e200"} < set(shown)
    assert len(shown) < 100
    assert run.counts["shortened_playbooks"] == 2


def test_it_is_one_entry_with_fields_that_changes_with_each_step() -> None:
    contexts = stepped(scripted(state=noting), 3)
    assert [document(context).count("noted") for context in contexts] == [1, 2, 3]
    (entry,) = contexts[-1].in_section(STATE)
    assert [e for e in contexts[-1] if e.hidden] == [entry]
    assert entry.data == {
        "ledger": ["noted word0", "noted word1", "noted word2"], "assessment": [],
        "hypotheses": ["it may be luck"], "phase": "convergent",
    }  # fmt: skip
    assert (entry.born, entry.changed) == (1, 3)


def test_it_is_updated_from_the_diagnoses_and_both_contexts() -> None:
    def deciding(call: Call) -> dict[str, Any]:
        if "message 1" in call.prompt.user:
            return {"decisions": [{"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": "If in doubt, ask."}]}
        return {"decisions": [{"lesson": 1, "op": "DELETE", "ids": ["e0"]}, {"lesson": 1, "op": "ADD"}]}

    model = scripted(curator=deciding, state=noting)
    harmed = initial_context([Add("rules", "If in doubt, guess.", harmful=1)])
    why = {"attribution": "actionable_gap", "cause": "it guessed", "gap": "none said it"}
    stepped(model, [lesson(0, **why), lesson(1, **why)], CURATOR, harmed)
    first, second = asked(model)
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


def test_in_full_it_is_updated_from_everything_that_reflections_say_each_told_once() -> None:
    model = scripted(state=noting)
    run, made = indoors(model, profile="full"), with_state(APPEND, Instructions("Remember."), 800)
    said = {"reasoning": "It looked.\nIt guessed.", "cause": "haste", "gap": "none", "verdicts": {"e0": "harmful"}}
    first = Lesson("l0", "If it is red:\n  stop()", votes={"e0": "harmful"}, data=said, section="code")
    second = replace(first, id="l0.2", text="Look twice.", votes={}, of="l0")
    chance = Lesson("l1", "", data={"attribution": "execution_variance"})
    asyncio.run(made([first, second, chance], RULE, run))
    (call,) = asked(model)
    assert call.prompt.pages == ("[e0] (rules) If in doubt, guess.",)
    assert call.prompt.user == (
        "# The state so far\n(none yet)\n\n"
        "# This step's diagnoses\n"
        "Analysis:\n  It looked.\n  It guessed.\nRoot cause: haste\nGap in the playbook: none\n"
        "Entries used: [e0] harmful\n"
        "Insight:\n  If it is red:\n    stop()\nInsight: Look twice.\n\n"
        "Attribution: execution_variance\nInsight: (none)\n\n"
        "# This step's edits\n+ [e1] (code)\n  If it is red:\n    stop()\n+ [e2] (code) Look twice.\n\n"
        "# What entries were seen to do\n- [e0] helped 0, harmed 1"
    )


def test_the_prompt_says_how_often_entries_helped_and_harmed() -> None:
    model = scripted(state=noting)
    seed = [Add("rules", "If in doubt, guess.", helpful=4, harmful=1), Add("rules", "If sure, say so.")]
    stepped(model, 1, context=initial_context(seed))
    (call,) = asked(model)
    assert call.prompt.user.endswith("# What entries were seen to do\n- [e0] helped 4, harmed 1")


def test_the_prompt_shows_a_change_with_the_text_before_it() -> None:
    def updating(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": "If in doubt, ask."}]}

    model = scripted(curator=updating, state=noting)
    stepped(model, [Lesson("l0", "If you do not know, ask.")], CURATOR, RULE)
    edits = asked(model)[0].prompt.user.partition("# This step's edits\n")[2].partition("\n\n")[0]
    assert edits == "~ [e0] (rules) If in doubt, ask. (was: If in doubt, guess.)"


def test_a_diagnosis_that_leads_to_no_edit_is_remembered_too() -> None:
    model = scripted(state=noting)
    chance = Lesson("l0", "", data={"attribution": "execution_variance", "cause": "it slipped"})
    stepped(model, [chance], CURATOR)
    assert asked(model, "curator") == []
    assert "- (no rule) (execution_variance; it slipped)" in asked(model)[0].prompt.user


def test_a_step_without_lessons_makes_no_call() -> None:
    model = scripted(state=noting)
    (context,) = stepped(model, [Lesson("l0", "", votes={"e0": "helpful"})], context=RULE)
    assert model.calls == []
    assert document(context) == ""


# ---- who sees it


def test_hidden_entries_of_others_are_not_taken_for_it() -> None:
    model = scripted()
    seed = seed_context([(".outcomes", "what another method keeps"), ("rules", "If in doubt, guess.")])
    asyncio.run(CURATOR([lesson(0)], seed, indoors(model)))
    (call,) = asked(model, "curator")
    assert NOTES["small"] not in call.text
    assert "what another method keeps" not in call.text


def test_naming_its_id_by_guess_has_no_effect(tmp_path: Path) -> None:
    """An agent, a reflector or a curator that names the document by its id, which stands in no prompt."""

    def agent(call: Call) -> dict[str, Any]:
        return {"answer": "wrong", "used": ["e1", "e2"]}

    def reflector(call: Call) -> dict[str, Any]:
        return {**insight(call), "tags": [{"id": id, "verdict": "harmful"} for id in ("e1", "e2")]}

    def curator(call: Call) -> dict[str, Any]:
        ids = [{"lesson": 1, "op": op, "ids": ["e1"], "text": "Gone."} for op in ("UPDATE", "DELETE")]
        return {"decisions": [*ids, *added(call)["decisions"]]}

    run = learned(tmp_path, scripted(agent, reflector, curator, noting), 3, ON)
    assert [document(report.context).count("noted") for report in run.reports] == [1, 2, 3]
    assert not [prompt for prompt in run.prompts("reflector") if "noted" in prompt]
    entry = state_entry(run.result.context)
    assert entry is not None
    assert (entry.id, entry.helpful, entry.harmful, entry.uses) == ("e1", 0, 0, 0)


def test_it_is_kept_when_the_playbook_is_rewritten() -> None:
    def rewriting(call: Call) -> str:
        return json.dumps({"entries": [{"section": "rules", "text": f"Rule {len(call.text)}."}]})

    contexts = stepped(scripted(curator=rewriting, state=noting), 3, rewrite(Instructions("Rewrite.")))
    assert [document(context).count("noted") for context in contexts] == [1, 2, 3]
    assert len(rules(contexts[-1])) == 1


# ---- how large it gets, and what it does not touch


def long_winded(call: Call) -> dict[str, Any]:
    step = len(re.findall(r"line \d+:", call.prompt.user.partition("diagnoses")[0]))
    lines = [f"line {n}: {'so much was changed and for such good reasons ' * 3}" for n in range(step + 4)]
    rules = [{"id": f"e{n}", "says": "works poorly, or well, who knows; let us see " * 2} for n in range(8)]
    return {"ledger": lines[-12:], "assessment": rules, "hypotheses": ["it may be this, it may be that " * 4] * 6}


@pytest.mark.parametrize("tokens", [100, 300, 800])
def test_it_stays_within_its_tokens_and_the_oldest_lines_are_removed_first(tokens: int) -> None:
    model = scripted(state=long_winded)
    for context, call in zip(stepped(model, 4, tokens=tokens), asked(model), strict=True):
        entry, said = state_entry(context), long_winded(call)
        assert entry is not None
        assert count_tokens(entry.text) <= tokens
        assert entry.text == state_text(dict(entry.data))
        kept = {part: len(entry.data[part]) for part in ("ledger", "hypotheses", "assessment")}
        assert entry.data["ledger"] == said["ledger"][len(said["ledger"]) - kept["ledger"] :]
        # What was changed is removed first, how the entries do last.
        assert kept["hypotheses"] == 6 or kept["ledger"] == 0
        assert kept["assessment"] == 8 or kept["hypotheses"] == 0


def test_the_budget_of_the_playbook_counts_only_rules() -> None:
    bounded = within_budget(APPEND, 60)
    context = stepped(scripted(state=long_winded), 6, bounded)[-1]
    plain = Context()
    for n in range(6):
        plain = plain.apply(asyncio.run(bounded([lesson(n)], plain, indoors(scripted())))).context
    assert rules(context) == rules(plain)
    assert render_full(context).tokens <= 60
    assert len(document(context)) > 4 * 60


def test_it_is_never_merged() -> None:
    """The same text in a rule and in the document stays what it is; embeddings see rules alone."""

    def echoing(call: Call) -> dict[str, Any]:
        return {"ledger": [lesson(n).text for n in range(4)]}

    context = stepped(scripted(state=echoing), 4, deduplicated(APPEND, 0.3))[-1]
    assert len([e for e in context if e.hidden]) == 1
    assert rules(context)


def test_no_view_or_digest_depends_on_it() -> None:
    plain = seed_context([("rules", "Be brief.")])
    noted = seed_context([("rules", "Be brief."), (STATE, "noted this")])
    other = seed_context([("rules", "Be brief."), (STATE, "noted that")])
    assert plain.digest == noted.digest == other.digest
    for how in (render_full, render_annotated):
        assert how(plain).pages == how(noted).pages
        assert how(plain).tokens == how(noted).tokens


def test_a_change_of_it_alone_needs_no_new_validation() -> None:
    """Evaluations are kept by the digest of a context."""

    def covered(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "COVERED", "ids": ["e0"]}]}

    def counting(call: Call) -> dict[str, Any]:
        return {"ledger": ["so it was"] * (call.prompt.user.count("so it was") + 1)}

    unsure = [Lesson(f"l{n}", "If you do not know, ask.") for n in range(4)]
    contexts = stepped(scripted(curator=covered, state=counting), unsure, CURATOR, RULE)
    assert len({document(context) for context in contexts}) == 4
    assert {context.digest for context in contexts} == {RULE.digest}
    assert [context.version for context in contexts] == [1, 2, 3, 4]


# ---- resume, forget


def test_forgetting_a_task_that_it_mentions_removes_it(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, state=noting), 3, ON)
    with Store.open(run.folder) as store:
        assert forget(store, "run", tasks=["t1"]).left == 0
    context = practicum.load_context(run.folder)
    assert state_entry(context) is None
    assert sorted(e.text for e in context) == [f"If it is message {n}, answer word{n}." for n in (0, 2)]
    assert b"noted word0 word1" not in (run.folder / "run.sqlite").read_bytes()


def test_it_continues_from_a_seed() -> None:
    first = stepped(scripted(state=noting), 2)[-1]
    second = stepped(scripted(state=noting), [lesson(7)], context=first)[-1]
    assert document(second).count("noted") == 3
    assert len([e for e in second if e.hidden]) == 1
