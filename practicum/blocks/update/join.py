"""Joining the deltas of many groups into one (Combee, section 3.1: the second level of the scan).

`join_by_code` does what code can: it keeps one of several edits that say the same, and lets edits of different entries
stand side by side. Only edits that change one entry in different ways go to the model. `join_by_model` is the paper's
way: everything that the groups propose goes through the update again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import networkx as nx
import numpy as np

from practicum.blocks.specifics import tell_apart
from practicum.blocks.update.dedupe import duplicates
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Update, Vote, ordered_union, targets
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

Join = Callable[[Sequence[Delta], Context, Run], Awaitable[Delta]]
E_ = TypeVar("E_", bound=Edit)


def join_by_code(update: UpdateSeam, fan_in: int = 20, threshold: float | None = 0.85) -> Join:
    """Join by plain code; edits in conflict go through `update` again as lessons, at most `fan_in` a call.

    Additions are one where their words are the same, where they come from the same lesson, or where they are as similar
    as `threshold` (None: never). A deletion gives way to a change of the same entry.
    """

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        groups = _apart(deltas)
        adds, names = await _once([_of(group, Add) for group in groups], threshold, run)
        others = [_renamed(e, names) for group in groups for e in group if not isinstance(e, Add)]
        clear, conflicts = _sorted_out(e for e in others if not isinstance(e, Vote))
        solved = await _solved(conflicts, update, fan_in, context, run)
        joined = combine([Delta((*adds, *_of(others, Vote), *clear)), solved])
        return replace(joined, resolutions=_settled(joined, deltas))

    return join


def join_by_model(update: UpdateSeam, fan_in: int | None = None, levels: int | None = None) -> Join:
    """Join by `update` itself: what the groups propose are its lessons.

    With `fan_in` a call joins at most so many deltas, level by level until one is left; `levels` is how many levels
    the scan has in all, where the last takes all that is left. Deletions and votes need no model.
    """

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        level = 1
        while len(deltas) > 1:
            level += 1
            size = len(deltas) if fan_in is None or level == levels else max(fan_in, 2)
            run.count(Count.WIDENED_JOINS, fan_in is not None and size > max(fan_in, 2))
            groups = [deltas[start : start + size] for start in range(0, len(deltas), size)]
            jobs = [
                (f"level {level}, {i}", partial(_proposed, group, update, context)) for i, group in enumerate(groups)
            ]
            deltas = await run.gather(jobs)
        return deltas[0] if deltas else Delta()

    return join


async def join_side_by_side(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
    """No joining: the edits of all groups, one after the other (a scan of one level)."""
    joined = combine(deltas)
    return replace(joined, resolutions=_settled(joined, deltas))


def combine(deltas: Iterable[Delta]) -> Delta:
    """Deltas that were made from one context, none knowing of the others, as one.

    A change of an entry that an earlier delta changes is left out, since it would undo that one unseen: its lessons are
    then in no edit (see `accounted`). Where it is the same change, it is one that rests on both.
    """
    deltas = list(deltas)
    edits: list[Edit] = []
    changed: set[str] = set()
    done: dict[str, int] = {}
    for group in _apart(deltas):
        start = len(edits)
        for edit in group:
            if changed.isdisjoint(targets(edit)):
                edits.append(edit)
            elif (same := done.get(_what(edit))) is not None:
                edits[same] = _joined(edits[same], edit)
        for n, edit in enumerate(edits[start:], start):
            if ids := targets(edit):
                changed.update(ids)
                done[_what(edit)] = n
    return Delta(tuple(edits), tuple(resolution for delta in deltas for resolution in delta.resolutions))


async def _proposed(deltas: Sequence[Delta], update: UpdateSeam, context: Context, run: Run) -> Delta:
    if len(deltas) == 1:
        return deltas[0]
    asked: list[Edit] = []
    through: list[Edit] = []
    for edit in (e for group in _apart(deltas) for e in group):
        (asked if _words(edit, context) else through).append(edit)
    # What the model decides comes first, so that a deletion it was not asked about gives way to a change.
    joined = combine([await _again(asked, update, context, run), Delta(tuple(_alike(through)))])
    return replace(joined, resolutions=_settled(joined, deltas))


async def _again(edits: Sequence[Edit], update: UpdateSeam, context: Context, run: Run) -> Delta:
    """Proposals as lessons; what comes of them names the lessons that the proposals rest on."""
    rests_on = {f"{run.place}/proposal {n}": edit.lessons for n, edit in enumerate(edits)}
    lessons = [
        Lesson(id, _words(e, context), sources=e.sources, data=getattr(e, "data", None) or {})
        for id, e in zip(rests_on, edits, strict=True)
    ]
    delta = await update(lessons, context, run)
    made = tuple(replace(e, lessons=ordered_union(rests_on.get(id, (id,)) for id in e.lessons)) for e in delta.edits)
    resolutions = tuple(replace(f, lesson=id) for f in delta.resolutions for id in rests_on.get(f.lesson, (f.lesson,)))
    return Delta(made, resolutions)


async def _solved(
    conflicts: Sequence[Sequence[Edit]], update: UpdateSeam, fan_in: int, context: Context, run: Run
) -> Delta:
    """Edits in conflict, put to the model; those of one entry are read together, as far as one call can read them.

    What comes of several calls may be in conflict again. As long as it becomes less, it is put to the model again.
    """
    if not conflicts:
        return Delta()
    asked = sum(map(len, conflicts))
    run.count(Count.CONFLICTING_EDITS, asked)
    calls = _packed(conflicts, fan_in)
    jobs = [(f"conflicts {i}", partial(_again, call, update, context)) for i, call in enumerate(calls)]
    made = await run.gather(jobs)
    edits = [e for group in _apart(made) for e in group]
    clear, left = _sorted_out(e for e in edits if not isinstance(e, Add | Vote))
    if len(calls) == 1 or sum(map(len, left)) >= asked:
        return combine(made)
    solved = Delta(
        (*(e for e in edits if isinstance(e, Add | Vote)), *clear), tuple(f for d in made for f in d.resolutions)
    )
    return combine([solved, await _solved(left, update, fan_in, context, run.at("again"))])


def _packed(conflicts: Iterable[Sequence[Edit]], fan_in: int) -> list[list[Edit]]:
    """What each call reads: at most `fan_in` edits."""
    calls: list[list[Edit]] = []
    for conflict in conflicts:
        for start in range(0, len(conflict), fan_in):
            part = conflict[start : start + fan_in]
            if calls and len(calls[-1]) + len(part) <= fan_in:
                calls[-1] += part
            else:
                calls.append(list(part))
    return calls


def _apart(deltas: Sequence[Delta]) -> list[list[Edit]]:
    """The edits of each group, with refs that cannot be taken for another group's."""
    groups: list[list[Edit]] = []
    for number, delta in enumerate(deltas):
        refs = {e.ref: f"group {number}: {e.ref}" for e in delta.edits if isinstance(e, Add) and e.ref}
        groups.append([_renamed(e, refs) if refs else e for e in delta.edits])
    return groups


def _renamed(edit: Edit, names: dict[str, str]) -> Edit:
    match edit:
        case Add():
            return replace(edit, ref=names.get(edit.ref, edit.ref))
        case Merge():
            return replace(edit, ids=tuple(names.get(id, id) for id in edit.ids))
        case Update() | Delete() | Vote():
            return replace(edit, id=names.get(edit.id, edit.id))


def _of(edits: Iterable[Edit], kind: type[E_]) -> list[E_]:
    return [e for e in edits if isinstance(e, kind)]


async def _once(groups: Sequence[Sequence[Add]], threshold: float | None, run: Run) -> tuple[list[Add], dict[str, str]]:
    """Additions that say the same are one, the first of them; and by which ref each is called now."""
    adds = [add for group in groups for add in group]
    first = _same(groups)
    if threshold is not None:
        await _near(adds, first, threshold, run)
    kept: dict[int, Add] = {}
    names: dict[str, str] = {}
    for n, add in enumerate(adds):
        at = first[n]
        kept[at] = _joined(kept[at], add) if at in kept else add
        if add.ref:
            kept[at] = replace(kept[at], ref=kept[at].ref or add.ref)
            names[add.ref] = kept[at].ref
    return list(kept.values()), names


def _same(groups: Sequence[Sequence[Add]]) -> list[int]:
    """For each addition the number of the first one with its words, or made of the same lesson by another group."""
    known: dict[object, int] = {}
    first: list[int] = []
    for group in groups:
        made: Counter[object] = Counter()
        for add in group:
            words = (add.section, " ".join(add.text.split()).casefold(), repr(dict(add.data)))
            lesson = (add.section, add.lessons)
            made[lesson] += 1
            # A group may make several entries of one lesson; copies of it elsewhere make the same ones again.
            again = (lesson, made[lesson]) if len(add.lessons) == 1 else words
            at = known.get(words, known.get(again, len(first)))
            known.setdefault(words, at)
            known.setdefault(again, at)
            first.append(at)
    return first


async def _near(adds: Sequence[Add], first: list[int], threshold: float, run: Run) -> None:
    """Point additions that are similar, of one section and without other data, to the first of them."""
    sections: dict[str, list[int]] = defaultdict(list)
    for n, add in enumerate(adds):
        if first[n] == n:
            sections[add.section].append(n)
    for rows in sections.values():
        vectors = await run.embed([adds[n].key or adds[n].text for n in rows])
        mine = [adds[n] for n in rows]

        def apart(row: int, like: int, mine: Sequence[Add] = mine) -> bool:
            one, other = mine[like], mine[row]
            return one.data != other.data or tell_apart(one.text, other.text, run.choices)

        alike = duplicates(np.zeros((0, vectors.shape[1]), np.float32), vectors, threshold, apart)
        for n, row in zip(rows, alike, strict=True):
            first[n] = n if row is None else rows[row]
    for n, at in enumerate(first):
        first[n] = first[at]


def _sorted_out(edits: Iterable[Edit]) -> tuple[list[Edit], list[Sequence[Edit]]]:
    """Edits that can stand side by side, and groups of edits that change one entry in different ways."""
    edits = list(edits)
    about: nx.Graph = nx.Graph()
    for n, edit in enumerate(edits):
        about.add_node(("edit", n))
        about.add_edges_from((("edit", n), ("entry", id)) for id in targets(edit))
    clear: list[Edit] = []
    conflicts: list[Sequence[Edit]] = []
    for part in nx.connected_components(about):
        mine = _alike(edits[n] for kind, n in sorted(p for p in part if p[0] == "edit"))
        changes = [e for e in mine if not isinstance(e, Delete)]
        rewording = [e for e in changes if isinstance(e, Merge) or getattr(e, "text", None) is not None]
        # Other changes come first: after a merge their entry may be gone.
        clear += [e for e in changes if e not in rewording] if changes else mine
        if len(rewording) > 1:
            conflicts.append(rewording)
        else:
            clear += rewording
    return clear, conflicts


def _alike(edits: Iterable[Edit]) -> list[Edit]:
    """Changes that are the same are one; votes are counts, so two that look alike are two."""
    kept: dict[str | int, Edit] = {}
    for edit in edits:
        does = len(kept) if isinstance(edit, Vote) else _what(edit)
        kept[does] = _joined(kept[does], edit) if does in kept else edit
    return list(kept.values())


def _what(edit: Edit) -> str:
    """What an edit does, whatever it rests on."""
    return repr(replace(edit, sources=(), lessons=(), reason=""))


def _joined(one: E_, other: E_) -> E_:
    """The first edit, resting on what both rest on."""
    sources, lessons = ordered_union((one.sources, other.sources)), ordered_union((one.lessons, other.lessons))
    return replace(one, sources=sources, lessons=lessons)


def _words(edit: Edit, context: Context) -> str:
    """What an edit would have an entry say; empty where it says nothing."""
    if isinstance(edit, Merge) and edit.text is None:
        oldest = min((e for id in edit.ids if (e := context.get(id))), key=lambda e: e.number, default=None)
        return oldest.text if oldest is not None else ""
    return getattr(edit, "text", None) or ""


def _settled(joined: Delta, deltas: Iterable[Delta]) -> tuple[Resolution, ...]:
    """One resolution per lesson that no edit names; a copy that is covered counts before one that was dropped."""
    named = {id for e in joined.edits if not isinstance(e, Delete | Vote) for id in e.lessons}
    found: dict[str, Resolution] = {}
    for resolution in (*joined.resolutions, *(resolution for delta in deltas for resolution in delta.resolutions)):
        if resolution.lesson not in named and (resolution.lesson not in found or not found[resolution.lesson].entry):
            found[resolution.lesson] = resolution
    return tuple(found.values())
