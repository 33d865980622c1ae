"""Joining the deltas of many groups into one (Combee, section 3.1: the second level of the scan).

`join_by_code` keeps one of several edits that say the same, and lets edits of different entries stand side by side.
Only edits that change one entry in different ways go to the model. `join_by_model` is the paper's way: everything that
the groups propose goes through the update again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from practicum.blocks.update.dedupe import Threshold, as_number, same_rows
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Vote, changed_entries, ordered_union
from practicum.core.graph import components
from practicum.core.types import Lesson
from practicum.core.words import folded
from practicum.engine.loop import UpdateSeam
from practicum.engine.provenance import traced
from practicum.engine.run import Run
from practicum.engine.specifics import tell_apart

Join = Callable[[Sequence[Delta], Context, Run], Awaitable[Delta]]
E_ = TypeVar("E_", bound=Edit)


def join_by_code(update: UpdateSeam, fan_in: int = 20, threshold: Threshold | None = "auto") -> Join:
    """Join by plain code; edits in conflict go through `update` again as lessons, at most `fan_in` a call.

    Additions are joined into one if their texts are the same, if they come from the same lesson, or from a similarity
    of `threshold` on (None: never). A change of an entry takes precedence over its deletion.
    """

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        groups = _with_own_refs(deltas)
        adds, names = await _distinct([[e for e in group if isinstance(e, Add)] for group in groups], threshold, run)
        others = [_renamed(e, names) for group in groups for e in group if not isinstance(e, Add)]
        votes = [e for e in others if isinstance(e, Vote)]
        clear, conflicts = _without_conflicts(e for e in others if not isinstance(e, Vote))
        solved = await _solved(conflicts, update, fan_in, context, run)
        return _settled(combine([Delta((*adds, *votes, *clear)), solved]), deltas)

    return join


def join_by_model(update: UpdateSeam, fan_in: int | None = None, levels: int | None = None) -> Join:
    """Join by `update` itself: what the groups propose are its lessons.

    With `fan_in` a call joins at most so many deltas, level by level until one is left; `levels` is the number of
    levels of the scan, of which the last joins all that is left. Deletions and votes need no model.
    """

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        level = 1
        while len(deltas) > 1:
            level += 1
            size = len(deltas) if fan_in is None or level == levels else max(fan_in, 2)
            run.count(Count.WIDENED_JOINS, fan_in is not None and size > max(fan_in, 2))
            groups = enumerate(deltas[start : start + size] for start in range(0, len(deltas), size))
            jobs = [(f"level {level}, {i}", partial(_proposed, group, update, context)) for i, group in groups]
            deltas = await run.gather(jobs)
        return deltas[0] if deltas else Delta()

    return join


async def join_side_by_side(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
    """No joining: the edits of all groups, one after the other (a scan of one level)."""
    return _settled(combine(deltas), deltas)


def combine(deltas: Iterable[Delta]) -> Delta:
    """Deltas that were made from one context, independently of each other, as one.

    A change of an entry that an earlier delta changes is left out, since it would undo that change: its lessons then
    have no edit (see `accounted`). If it is the same change, the first one rests on the lessons of both.
    """
    deltas = list(deltas)
    edits: list[Edit] = []
    changed: set[str] = set()
    done: dict[str, int] = {}
    for group in _with_own_refs(deltas):
        start = len(edits)
        for edit in group:
            if changed.isdisjoint(changed_entries(edit)):
                edits.append(edit)
            elif (same := done.get(_effect(edit))) is not None:
                edits[same] = _joined(edits[same], edit)
        for n, edit in enumerate(edits[start:], start):
            if ids := changed_entries(edit):
                changed.update(ids)
                done[_effect(edit)] = n
    refused = tuple(one for delta in deltas for one in delta.refused)
    return Delta(tuple(edits), tuple(_standing(edits, deltas)), refused=refused)


async def _proposed(deltas: Sequence[Delta], update: UpdateSeam, context: Context, run: Run) -> Delta:
    """The deltas of a group, joined by the model."""
    if len(deltas) == 1:
        return deltas[0]
    edits = [e for group in _with_own_refs(deltas) for e in group]
    # The copies of a lesson often lead to the same proposal, which the model reads once.
    asked = _distinct_changes([replace(e, ref="") if isinstance(e, Add) else e for e in edits if _new_text(e, context)])
    other = [e for e in edits if not _new_text(e, context)]
    # The model's edits come first, so that they take precedence over deletions that it was not asked about.
    solved = await _asked(asked, update, context, run)
    return _settled(combine([solved, Delta(tuple(_distinct_changes(other)))]), deltas)


async def _asked(edits: Sequence[Edit], update: UpdateSeam, context: Context, run: Run) -> Delta:
    """The delta of `update` on proposals as lessons. It names the lessons on which the proposals rest."""
    rests_on = {f"{run.place}/proposal {n}": edit.lessons for n, edit in enumerate(edits)}
    lessons = [
        Lesson(id, _new_text(e, context), sources=e.sources, data=_proposal(e), section=getattr(e, "section", "") or "")
        for id, e in zip(rests_on, edits, strict=True)
    ]
    delta = traced(await update(lessons, context, run), lessons, context)
    made = tuple(replace(e, lessons=ordered_union(rests_on.get(id, (id,)) for id in e.lessons)) for e in delta.edits)
    resolutions = tuple(replace(r, lesson=id) for r in delta.resolutions for id in rests_on.get(r.lesson, (r.lesson,)))
    return Delta(made, resolutions, refused=delta.refused)


def _proposal(edit: Edit) -> dict[str, Any]:
    """What a proposal says beside its text."""
    changed = ", ".join(f"[{id}]" for id in changed_entries(edit))
    return {**(getattr(edit, "data", None) or {}), "proposal": f"{edit.op.upper()} {changed}".strip()}


async def _solved(
    conflicts: Sequence[Sequence[Edit]], update: UpdateSeam, fan_in: int, context: Context, run: Run
) -> Delta:
    """The model's solution of edits in conflict; those of one entry are read together, as far as one call can. The
    edits of several calls may be in conflict again. As long as there are fewer, they go to the model again."""
    if not conflicts:
        return Delta()
    asked = sum(map(len, conflicts))
    run.count(Count.CONFLICTING_EDITS, asked)
    calls: list[list[Edit]] = []
    for conflict in conflicts:
        for start in range(0, len(conflict), fan_in):
            part = conflict[start : start + fan_in]
            if calls and len(calls[-1]) + len(part) <= fan_in:
                calls[-1] += part
            else:
                calls.append(list(part))
    jobs = [(f"conflicts {i}", partial(_asked, call, update, context)) for i, call in enumerate(calls)]
    made = await run.gather(jobs)
    edits = [e for group in _with_own_refs(made) for e in group]
    clear, left = _without_conflicts(e for e in edits if not isinstance(e, Add | Vote))
    if len(calls) == 1 or sum(map(len, left)) >= asked:
        return combine(made)
    solved = (*(e for e in edits if isinstance(e, Add | Vote)), *clear)
    standing = Delta(solved, tuple(_standing(solved, made)))
    return combine([standing, await _solved(left, update, fan_in, context, run.at("again"))])


def _with_own_refs(deltas: Sequence[Delta]) -> list[list[Edit]]:
    """The edits of each delta, with refs that no other delta has."""
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
        case _:
            return replace(edit, id=names.get(edit.id, edit.id))


async def _distinct(
    groups: Sequence[Sequence[Add]], threshold: Threshold | None, run: Run
) -> tuple[list[Add], dict[str, str]]:
    """The first of the additions that say the same, resting on all of them; and the new ref for each old one."""
    adds = [add for group in groups for add in group]
    first = _first_same(groups)
    if threshold is not None:
        for section in dict.fromkeys(add.section for add in adds):
            rows = [n for n, add in enumerate(adds) if add.section == section and first[n] == n]
            mine = [adds[n] for n in rows]
            vectors = await run.embed([add.key or add.text for add in mine])
            texts, least = [add.text for add in mine], as_number(threshold, run)
            likes = same_rows(texts, vectors, 0, least, run, partial(_differ, mine, run))
            first_of = {n: rows[like] for n, like in zip(rows, likes, strict=True) if like is not None}
            first = [first_of.get(at, at) for at in first]
    kept: dict[int, Add] = {}
    names: dict[str, str] = {}
    for add, at in zip(adds, first, strict=True):
        kept[at] = _joined(kept[at], add) if at in kept else add
        if add.ref:
            kept[at] = replace(kept[at], ref=kept[at].ref or add.ref)
            names[add.ref] = kept[at].ref
    return list(kept.values()), names


def _differ(adds: Sequence[Add], run: Run, row: int, like: int) -> bool:
    one, other = adds[like], adds[row]
    return one.data != other.data or tell_apart(one.text, other.text, run.choices)


def _first_same(groups: Sequence[Sequence[Add]]) -> list[int]:
    """For each addition the number of the first one with its text, or that another group made of the same lesson."""
    known: dict[object, int] = {}
    first: list[int] = []
    for group in groups:
        made: Counter[object] = Counter()
        for add in group:
            text = (add.section, folded(add.text), repr(dict(add.data)))
            lesson = (add.section, add.lessons)
            made[lesson] += 1
            # A group may make several entries of one lesson; the groups with its copies make the same ones again.
            copy = (lesson, made[lesson]) if len(add.lessons) == 1 else text
            at = known.get(text, known.get(copy, len(first)))
            known.setdefault(text, at)
            known.setdefault(copy, at)
            first.append(at)
    return first


def _without_conflicts(edits: Iterable[Edit]) -> tuple[list[Edit], list[Sequence[Edit]]]:
    """Edits that can stand side by side, and groups of edits that change one entry in different ways."""
    edits = list(edits)
    # Edits by their numbers, linked to entries by their ids.
    about: dict[int | str, list[int | str]] = {n: [*changed_entries(edit)] for n, edit in enumerate(edits)}
    for n, edit in enumerate(edits):
        for id in changed_entries(edit):
            about.setdefault(id, []).append(n)
    clear: list[Edit] = []
    conflicts: list[Sequence[Edit]] = []
    for part in components(about):
        mine = _distinct_changes(edits[n] for n in sorted(p for p in part if isinstance(p, int)))
        changes = [e for e in mine if not isinstance(e, Delete)]
        rewording = [e for e in changes if isinstance(e, Merge) or getattr(e, "text", None) is not None]
        # Other changes come first: after a merge their entry may be gone.
        clear += [e for e in changes if e not in rewording] if changes else mine
        if len(rewording) > 1:
            conflicts.append(rewording)
        else:
            clear += rewording
    return clear, conflicts


def _distinct_changes(edits: Iterable[Edit]) -> list[Edit]:
    """The edits with one for each change; votes are counts, so equal votes are several."""
    kept: dict[str | int, Edit] = {}
    for edit in edits:
        effect = len(kept) if isinstance(edit, Vote) else _effect(edit)
        kept[effect] = _joined(kept[effect], edit) if effect in kept else edit
    return list(kept.values())


def _effect(edit: Edit) -> str:
    """What an edit does, whatever it rests on."""
    return repr(replace(edit, sources=(), lessons=(), reason=""))


def _joined(one: E_, other: E_) -> E_:
    """The first edit, resting on what both rest on."""
    sources, lessons = ordered_union((one.sources, other.sources)), ordered_union((one.lessons, other.lessons))
    return replace(one, sources=sources, lessons=lessons)


def _new_text(edit: Edit, context: Context) -> str:
    """The text that an edit gives an entry; empty if it gives none."""
    if isinstance(edit, Merge) and edit.text is None:
        oldest = min((e for id in edit.ids if (e := context.get(id))), key=lambda e: e.number, default=None)
        return oldest.text if oldest is not None else ""
    return getattr(edit, "text", None) or ""


def _standing(edits: Iterable[Edit], deltas: Iterable[Delta]) -> Iterator[Resolution]:
    """The resolutions of the deltas. A lesson that an entry is wrong is settled by its deletion; if that is not among
    the edits, since another change of the entry took precedence, the lesson has no resolution."""
    deltas = list(deltas)
    undone = _deleting(e for delta in deltas for e in delta.edits) - _deleting(edits)
    return (r for delta in deltas for r in delta.resolutions if r.entry or r.lesson not in undone)


def _deleting(edits: Iterable[Edit]) -> set[str]:
    return {id for edit in edits if isinstance(edit, Delete) for id in edit.lessons}


def _settled(joined: Delta, deltas: Iterable[Delta]) -> Delta:
    """The joined delta with one resolution for each lesson that no edit names; a covered copy counts before a dropped
    one."""
    deltas = list(deltas)
    named = {id for e in joined.edits if not isinstance(e, Delete | Vote) for id in e.lessons}
    found: dict[str, Resolution] = {}
    for resolution in (*joined.resolutions, *_standing(joined.edits, deltas)):
        if resolution.lesson not in named and (resolution.lesson not in found or not found[resolution.lesson].entry):
            found[resolution.lesson] = resolution
    refused = (one for delta in deltas for one in delta.refused if one not in joined.refused)
    return replace(joined, resolutions=tuple(found.values()), refused=(*joined.refused, *refused))
