"""The optimizer's state reads a playbook above the window in part: the entries of the step."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from runs import indoors
from scripts import added, scripted

from practicum.core.context import seed_context
from practicum.core.types import Instructions, Lesson
from practicum.methods.blocks.curate import Curator
from practicum.methods.blocks.notes import with_state
from practicum.models.scripted import Call


def noting(call: Call) -> dict[str, Any]:
    return {"ledger": ["noted"], "hypotheses": ["it may be luck"], "phase": "convergent"}


def test_the_state_of_a_playbook_above_the_window_reads_the_entries_of_the_step() -> None:
    filler = [f"If drawer {n} of the old cabinet is open, close it." * 4 for n in range(200)]
    context = seed_context([("rules", text) for text in (*filler, "If it is message 0, ask.")])
    model = scripted(curator=added, state=noting, window=8192)
    run = indoors(model, profile="full")
    data = {"cause": "it guessed"}
    about = Lesson("l0", "If it is message 0, answer word0.", sources=("task:t0",), data=data, votes={"e77": "harmful"})
    asyncio.run(with_state(Curator(Instructions("Curate.")), Instructions("Remember."), 800)([about], context, run))
    (call,) = [call for call in model.calls if call.role == "state"]
    shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
    assert {"e77", "e200"} < set(shown)
    assert len(shown) < 100
    assert run.counts["shortened_playbooks"] == 2
