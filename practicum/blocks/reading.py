"""The playbook as reflectors and curators read it."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Entry
from practicum.core.views import count_tokens, entry_line, render_full, render_selected
from practicum.engine.run import Run

NEAREST = 100
"""Entries that are looked up for each text if a playbook is larger than its reader's window."""


async def playbook_pages(
    context: Context, used: Sequence[str], about: Sequence[str], role: str, run: Run, *without: str
) -> tuple[str, ...]:
    """The playbook as a reflector or a curator reads it, except for the sections `without`. If it takes more than half
    of what the model of the role reads, then the entries in `used`, and those most similar to the texts `about`, as
    many as fit."""
    whole = render_full(context, *without)
    room = run.room(role) // 2
    if whole.tokens <= room:
        return whole.pages or ("(no entries yet)",)
    run.count(Count.SHORTENED_PLAYBOOKS)
    matches = [await run.at(f"playbook {n}").nearest(context, text, NEAREST) for n, text in enumerate(about)]
    near = sorted((match for found in matches for match in found), key=lambda match: -match.similarity)
    chosen: dict[str, Entry] = {}
    for id in (*used, *(match.entry.id for match in near)):
        entry = context.get(id)
        if entry is None or entry.hidden or entry.section in without or id in chosen:
            continue
        room -= count_tokens(entry_line(entry)) + 1
        if room < 0:
            break
        chosen[id] = entry
    return (f"(of {len(context)} entries, those used or nearest to this)", *render_selected(chosen.values()).pages)


def track_record(context: Context) -> str:
    """How often each entry helped and harmed, an entry a line. Pages have no counters: they change at each step, and a
    page should not."""
    voted = [e for e in context if not e.hidden and (e.helpful or e.harmful)]
    return "\n".join(f"- [{e.id}] helped {e.helpful}, harmed {e.harmful}" for e in voted)
