"""The optimizer's state: what its prompt shows, and that it is kept when the playbook is rewritten."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runs import indoors
from scripts import added, scripted

from practicum.core.context import Context, seed_context
from practicum.core.types import Instructions, Lesson
from practicum.engine.loop import UpdateSeam
from practicum.methods.blocks.curate import Curator, append, rewrite
from practicum.methods.blocks.notes import state_entry, with_state
from practicum.models.scripted import Call, ScriptedClient

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


def test_the_prompt_shows_a_change_with_the_text_before_it() -> None:
    def updating(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": "If in doubt, ask."}]}

    model = scripted(curator=updating, state=noting)
    stepped(model, [Lesson("l0", "If you do not know, ask.")], CURATOR, RULE)
    edits = asked(model)[0].prompt.user.partition("# This step's edits\n")[2].partition("\n\n")[0]
    assert edits == "~ [e0] (rules) If in doubt, ask. (was: If in doubt, guess.)"


# ---- who sees it


def test_it_is_kept_when_the_playbook_is_rewritten() -> None:
    def rewriting(call: Call) -> str:
        return json.dumps({"entries": [{"section": "rules", "text": f"Rule {len(call.text)}."}]})

    contexts = stepped(scripted(curator=rewriting, state=noting), 3, rewrite(Instructions("Rewrite.")))
    assert [document(context).count("noted") for context in contexts] == [1, 2, 3]
    assert len(rules(contexts[-1])) == 1
