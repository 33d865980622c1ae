"""Parallel scan aggregation: combine many reflections into one delta without a model call that reads them all (Combee,
sections 3.1 and 3.2).

The reflections, each with all its lessons, are copied and dealt into groups. Each group goes through the wrapped
update, concurrently. Then the deltas of the groups are joined. Any update can be wrapped: edits of a playbook, appended
memories, a rewritten prompt. Lessons that an update left out are accounted for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from random import Random
from typing import Any, Literal, TypeVar

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Vote, changed_entries, ordered_union
from practicum.core.graph import components
from practicum.core.types import Lesson
from practicum.core.words import folded
from practicum.engine.asynchronous import Fallback
from practicum.engine.loop import UpdateSeam, by_reflection
from practicum.engine.provenance import traced
from practicum.engine.run import Run
from practicum.engine.specifics import differ_in_particulars
from practicum.methods.blocks.curate import as_entries, left_out, votes
from practicum.methods.blocks.dedupe import Threshold, as_number, same_rows

Join = Callable[[Sequence[Delta], Context, Run], Awaitable[Delta]]
E_ = TypeVar("E_", bound=Edit)

Shuffle = Literal["stratified", "random"]

FEW = 4
"""Minimum number of reflections for a scan; fewer go through the update directly."""


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """Rule by which n lessons are dealt into groups.

    `groups` is a number, or "sqrt" for the square root of n. Each lesson goes to `copies` groups. `fan_in` is the
    maximum number of lessons in a group; None: no limit. If groups would be larger, more groups are made. `shuffle`
    deals the copies of a lesson into different groups (stratified) or into any groups (random). Raises ValueError if
    `copies` is below 1, or above the number of groups or `fan_in`.
    """

    groups: int | Literal["sqrt"] = "sqrt"
    copies: int = 2
    shuffle: Shuffle = "stratified"
    fan_in: int | None = 20

    def __post_init__(self) -> None:
        groups = self.copies if self.groups == "sqrt" else self.groups
        fan_in = self.copies if self.fan_in is None else self.fan_in
        if not 1 <= self.copies <= min(groups, fan_in):
            raise ValueError("copies must be at least 1, and not more than groups or fan_in")

    def count(self, n: int) -> int:
        """Return the number of groups for n lessons, between 1 and n."""
        k = isqrt(n) if self.groups == "sqrt" else min(self.groups, n)
        if self.fan_in is not None:
            # Each copy of the lessons fills the groups evenly, so a group has at most `copies` times (n / k, rounded
            # up) lessons.
            k = max(k, -(-n // max(self.fan_in // self.copies, 1)))
        return max(min(k, n), 1)

    def size(self, n: int) -> int:
        """Return the maximum number of lessons in a group if n lessons are dealt."""
        k = self.count(n)
        return -(-n * self.copies // k) if self.shuffle == "random" else min(self.copies, k) * -(-n // k)

    def deal(self, n: int, rng: Random) -> list[list[int]]:
        """Return groups of lesson indices, in linear time. If stratified, a group contains a lesson at most once."""
        k = self.count(n)
        if self.shuffle == "random":
            pool = [i for i in range(n) for _ in range(self.copies)]
            rng.shuffle(pool)
            return [pool[g::k] for g in range(k)]
        copies = min(self.copies, k)
        order = list(range(n))
        rng.shuffle(order)
        groups: list[list[int]] = [[] for _ in range(k)]
        for start in range(0, n, k):
            # The lessons are dealt in rows of k. Each copy of a row puts one lesson into each group. The copies of a
            # row are shifted by different amounts, so that the copies of a lesson meet different neighbours.
            shifts = [0, *rng.sample(range(1, k), copies - 1)]
            for column, lesson in enumerate(order[start : start + k]):
                for shift in shifts:
                    groups[(column + shift) % k].append(lesson)
        return groups


def scan(update: UpdateSeam, dealing: Dealing, join: Join) -> UpdateSeam:
    """Build an update seam that runs `update` on groups of reflections, concurrently, and joins the deltas of the
    groups by `join`. Votes are counted once for each reflection, before it is copied. Fewer than four reflections go
    through `update` directly."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        reflections = by_reflection(replace(lesson, votes={}) for lesson in lessons if lesson.text)
        if len(reflections) < FEW:
            return await update(lessons, context, run)
        k = dealing.count(len(reflections))
        asked = k if dealing.groups == "sqrt" else dealing.groups
        run.count(Count.GROUPS_LOWERED, asked > k)
        run.count(Count.GROUPS_RAISED, asked < k)
        run.count(Count.COPIES_LOWERED, dealing.shuffle == "stratified" and dealing.copies > k)
        dealt = dealing.deal(len(reflections), run.rng("shuffle"))
        groups = [[lesson for i in group for lesson in reflections[i]] for group in dealt]
        jobs = [(f"group {g}", partial(update, group, context)) for g, group in enumerate(groups)]
        return votes(lessons) + await join(await run.gather(jobs), context, run.at("join"))

    return wrapped


# ---- joining the deltas of many groups (Combee, section 3.1: the second level of the scan)
#
# `join_by_code` keeps one of several equal edits, and keeps all edits of different entries. Only edits that change one
# entry in different ways go to the model. `join_by_model` follows the paper: all proposals of the groups go through the
# update again.


def join_by_code(update: UpdateSeam, fan_in: int = 20, threshold: Threshold | None = "auto") -> Join:
    """Build a join by code. Edits in conflict go through `update` again as lessons, at most `fan_in` per call.

    Additions are joined into one if their texts are the same, if they come from the same lesson, or if their similarity
    is at least `threshold` (None: similarity does not count). A change of an entry takes precedence over a deletion of
    the same entry."""

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        groups = _with_own_refs(deltas)
        adds, names = await _distinct([[e for e in group if isinstance(e, Add)] for group in groups], threshold, run)
        others = [_renamed(e, names) for group in groups for e in group if not isinstance(e, Add)]
        votes = [e for e in others if isinstance(e, Vote)]
        compatible, conflicts = _without_conflicts(e for e in others if not isinstance(e, Vote))
        solved = await _solve_conflicts(conflicts, update, fan_in, context, run)
        return _with_resolutions(combine([Delta((*adds, *votes, *compatible)), solved]), deltas)

    return join


def join_by_model(update: UpdateSeam, fan_in: int | None = None, levels: int | None = None) -> Join:
    """Build a join in which `update` joins the deltas: the edits of the groups are proposals, which `update` reads as
    lessons.

    With `fan_in`, a call joins at most `fan_in` deltas, level by level until one delta is left. `levels` is the number
    of levels of the scan; the last level joins all remaining deltas. Deletions and votes need no model."""

    async def join(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
        level = 1
        while len(deltas) > 1:
            level += 1
            size = len(deltas) if fan_in is None or level == levels else max(fan_in, 2)
            run.count(Count.WIDENED_JOINS, fan_in is not None and size > max(fan_in, 2))
            groups = enumerate(deltas[start : start + size] for start in range(0, len(deltas), size))
            jobs = [(f"level {level}, {i}", partial(_join_group, group, update, context)) for i, group in groups]
            deltas = await run.gather(jobs)
        return deltas[0] if deltas else Delta()

    return join


async def join_side_by_side(deltas: Sequence[Delta], context: Context, run: Run) -> Delta:
    """Return the edits of all groups, one after the other, without a model (a scan of one level). `combine` leaves out
    changes that would undo the change of another group."""
    return _with_resolutions(combine(deltas), deltas)


def combine(deltas: Iterable[Delta]) -> Delta:
    """Combine deltas that were made from the same context, independently of each other, into one delta.

    A change of an entry that an earlier delta changes is left out, because it would undo the earlier change. The
    lessons of the left-out change then have no edit (see `accounted`). If the two changes are equal, the earlier change
    also gets the lessons of the left-out change."""
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
                edits[same] = _united(edits[same], edit)
        for n, edit in enumerate(edits[start:], start):
            if ids := changed_entries(edit):
                changed.update(ids)
                done[_effect(edit)] = n
    refused = tuple(one for delta in deltas for one in delta.refused)
    return Delta(tuple(edits), tuple(_valid_resolutions(edits, deltas)), refused=refused)


async def _join_group(deltas: Sequence[Delta], update: UpdateSeam, context: Context, run: Run) -> Delta:
    """Join the deltas of a group by the model."""
    if len(deltas) == 1:
        return deltas[0]
    edits = [e for group in _with_own_refs(deltas) for e in group]
    # The copies of a lesson often lead to the same proposal, which the model needs to read only once.
    asked = _distinct_changes([replace(e, ref="") if isinstance(e, Add) else e for e in edits if _new_text(e, context)])
    other = [e for e in edits if not _new_text(e, context)]
    # The model's edits come first, so that they take precedence over deletions that the model was not asked about.
    solved = await _update_on_proposals(asked, update, context, run)
    return _with_resolutions(combine([solved, Delta(tuple(_distinct_changes(other)))]), deltas)


async def _update_on_proposals(edits: Sequence[Edit], update: UpdateSeam, context: Context, run: Run) -> Delta:
    """Run `update` on these edits, which are passed as lessons (proposals). The edits of the returned delta name the
    original lessons behind the proposals."""
    proposals = {f"{run.place}/proposal {n}": edit.lessons for n, edit in enumerate(edits)}
    lessons = [
        Lesson(id, _new_text(e, context), sources=e.sources, data=_proposal(e), section=getattr(e, "section", "") or "")
        for id, e in zip(proposals, edits, strict=True)
    ]
    delta = traced(await update(lessons, context, run), lessons, context)
    traced_edits = tuple(
        replace(e, lessons=ordered_union(proposals.get(id, (id,)) for id in e.lessons)) for e in delta.edits
    )
    resolutions = tuple(replace(r, lesson=id) for r in delta.resolutions for id in proposals.get(r.lesson, (r.lesson,)))
    return Delta(traced_edits, resolutions, refused=delta.refused)


def _proposal(edit: Edit) -> dict[str, Any]:
    """Return the data of the lesson that proposes this edit."""
    changed = ", ".join(f"[{id}]" for id in changed_entries(edit))
    return {**(getattr(edit, "data", None) or {}), "proposal": f"{edit.op.upper()} {changed}".strip()}


async def _solve_conflicts(
    conflicts: Sequence[Sequence[Edit]], update: UpdateSeam, fan_in: int, context: Context, run: Run
) -> Delta:
    """Ask the model to solve conflicts between edits. Edits of one entry are read together, up to `fan_in` in
    one call. The edits that several calls return may conflict again. Conflicting edits go to the model again as long as
    their number decreases."""
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
    jobs = [(f"conflicts {i}", partial(_update_on_proposals, call, update, context)) for i, call in enumerate(calls)]
    solutions = await run.gather(jobs)
    edits = [e for group in _with_own_refs(solutions) for e in group]
    compatible, conflicting = _without_conflicts(e for e in edits if not isinstance(e, Add | Vote))
    if len(calls) == 1 or sum(map(len, conflicting)) >= asked:
        return combine(solutions)
    solved = (*(e for e in edits if isinstance(e, Add | Vote)), *compatible)
    settled = Delta(solved, tuple(_valid_resolutions(solved, solutions)))
    return combine([settled, await _solve_conflicts(conflicting, update, fan_in, context, run.at("again"))])


def _with_own_refs(deltas: Sequence[Delta]) -> list[list[Edit]]:
    """Return the edits of each delta, with refs that no other delta has."""
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
    """Return one addition of each set of equal additions, with the lessons of the whole set. Also return the ref of
    this addition, by the ref of each addition of the set."""
    adds = [add for group in groups for add in group]
    first = _first_same(groups)
    if threshold is not None:
        for section in dict.fromkeys(add.section for add in adds):
            rows = [n for n, add in enumerate(adds) if add.section == section and first[n] == n]
            section_adds = [adds[n] for n in rows]
            vectors = await run.embed([add.key or add.text for add in section_adds])
            texts, least = [add.text for add in section_adds], as_number(threshold, run)
            likes = same_rows(texts, vectors, 0, least, run, partial(_differ, section_adds, run))
            first_of = {n: rows[like] for n, like in zip(rows, likes, strict=True) if like is not None}
            first = [first_of.get(at, at) for at in first]
    distinct: dict[int, Add] = {}
    names: dict[str, str] = {}
    for add, at in zip(adds, first, strict=True):
        distinct[at] = _united(distinct[at], add) if at in distinct else add
        if add.ref:
            distinct[at] = replace(distinct[at], ref=distinct[at].ref or add.ref)
            names[add.ref] = distinct[at].ref
    return list(distinct.values()), names


def _differ(adds: Sequence[Add], run: Run, row: int, like: int) -> bool:
    one, other = adds[like], adds[row]
    return one.data != other.data or differ_in_particulars(one.text, other.text, run.choices)


def _first_same(groups: Sequence[Sequence[Add]]) -> list[int]:
    """Return, for each addition, the index of the first addition with the same text, or of the first addition that
    another group made from the same lesson."""
    first_with: dict[object, int] = {}
    first: list[int] = []
    for group in groups:
        numbers: Counter[object] = Counter()
        for add in group:
            text = (add.section, folded(add.text), repr(dict(add.data)))
            lesson = (add.section, add.lessons)
            numbers[lesson] += 1
            # A group may make several entries from one lesson. The groups with copies of this lesson are assumed to
            # make the same entries in the same order.
            copy = (lesson, numbers[lesson]) if len(add.lessons) == 1 else text
            at = first_with.get(text, first_with.get(copy, len(first)))
            first_with.setdefault(text, at)
            first_with.setdefault(copy, at)
            first.append(at)
    return first


def _without_conflicts(edits: Iterable[Edit]) -> tuple[list[Edit], list[Sequence[Edit]]]:
    """Return the edits that can be applied together, and groups of edits that change one entry in different ways."""
    edits = list(edits)
    # Graph of edits, by index, and entries, by id.
    about: dict[int | str, list[int | str]] = {n: [*changed_entries(edit)] for n, edit in enumerate(edits)}
    for n, edit in enumerate(edits):
        for id in changed_entries(edit):
            about.setdefault(id, []).append(n)
    compatible: list[Edit] = []
    conflicts: list[Sequence[Edit]] = []
    for part in components(about):
        part_edits = _distinct_changes(edits[n] for n in sorted(p for p in part if isinstance(p, int)))
        changes = [e for e in part_edits if not isinstance(e, Delete)]
        rewording = [e for e in changes if isinstance(e, Merge) or getattr(e, "text", None) is not None]
        # Changes without a new text come first, because a merge may remove the entry that they change.
        compatible += [e for e in changes if e not in rewording] if changes else part_edits
        if len(rewording) > 1:
            conflicts.append(rewording)
        else:
            compatible += rewording
    return compatible, conflicts


def _distinct_changes(edits: Iterable[Edit]) -> list[Edit]:
    """Return one edit for each distinct change. Equal votes are not joined, because votes are counts."""
    distinct: dict[str | int, Edit] = {}
    for edit in edits:
        effect = len(distinct) if isinstance(edit, Vote) else _effect(edit)
        distinct[effect] = _united(distinct[effect], edit) if effect in distinct else edit
    return list(distinct.values())


def _effect(edit: Edit) -> str:
    """Return a text that identifies the change that an edit makes. Sources, lessons and reason of the edit do not
    count."""
    return repr(replace(edit, sources=(), lessons=(), reason=""))


def _united(one: E_, other: E_) -> E_:
    """Return the edit `one`, with the sources and lessons of the two edits."""
    sources, lessons = ordered_union((one.sources, other.sources)), ordered_union((one.lessons, other.lessons))
    return replace(one, sources=sources, lessons=lessons)


def _new_text(edit: Edit, context: Context) -> str:
    """Return the text that an edit gives an entry; empty if the edit gives no text."""
    if isinstance(edit, Merge) and edit.text is None:
        oldest = min((e for id in edit.ids if (e := context.get(id))), key=lambda e: e.number, default=None)
        return oldest.text if oldest is not None else ""
    return getattr(edit, "text", None) or ""


def _valid_resolutions(edits: Iterable[Edit], deltas: Iterable[Delta]) -> Iterator[Resolution]:
    """Yield the resolutions of the deltas. The deletion of an entry settles the lessons that call the entry wrong. If
    another change of the entry took precedence over the deletion, the resolutions of these lessons are left out."""
    deltas = list(deltas)
    cancelled = _deleting(e for delta in deltas for e in delta.edits) - _deleting(edits)
    return (r for delta in deltas for r in delta.resolutions if r.entry or r.lesson not in cancelled)


def _deleting(edits: Iterable[Edit]) -> set[str]:
    return {id for edit in edits if isinstance(edit, Delete) for id in edit.lessons}


def _with_resolutions(joined: Delta, deltas: Iterable[Delta]) -> Delta:
    """Return the joined delta with one resolution for each lesson that no edit names. If copies of a lesson have
    different resolutions, being covered by an entry takes precedence over being dropped."""
    deltas = list(deltas)
    named = {id for e in joined.edits if not isinstance(e, Delete | Vote) for id in e.lessons}
    final: dict[str, Resolution] = {}
    for resolution in (*joined.resolutions, *_valid_resolutions(joined.edits, deltas)):
        if resolution.lesson not in named and (resolution.lesson not in final or not final[resolution.lesson].entry):
            final[resolution.lesson] = resolution
    refused = (one for delta in deltas for one in delta.refused if one not in joined.refused)
    return replace(joined, resolutions=tuple(final.values()), refused=(*joined.refused, *refused))


# ---- accounting: no lesson that enters an update is lost silently, even if the model ignores it
#
# Each lesson is named by an edit, covered by an entry, or dropped with a reason. Lessons that the model left out go
# through the update again in smaller groups, a few times. Lessons that are then still left out are added unchanged or
# dropped, and counted. (This is not in the papers: a curator of the papers loses the lessons that it does not mention,
# which Combee, section 2.2, calls context overload.)

Uncovered = Literal["keep", "drop"]

LEFT_OUT = "no edit of the curator covered the lesson"


def accounted(
    update: UpdateSeam, uncovered: Uncovered, section: str, by: UpdateSeam | None = None, again: Sequence[int] = ()
) -> UpdateSeam:
    """Build an update seam that runs `update` and accounts for every lesson.

    Lessons that `update` left out go through `by` (default: `update`) once for each group size in `again`, all groups
    concurrently. A lesson that is left out every time becomes an entry in its own words, or is dropped, as `uncovered`
    says. `section` is the section of the entry if the lesson names none.
    """
    settle = keep_or_drop(uncovered, section)

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await retried(by or update, again, await update(lessons, context, run))(lessons, context, run)
        valid = tuple(resolution for resolution in delta.resolutions if resolution.entry not in delta.deleted)
        return replace(delta, resolutions=valid) + settle(left_out(lessons, delta), run)

    return wrapped


def retried(by: UpdateSeam, again: Sequence[int], first: Delta | None = None) -> UpdateSeam:
    """Build an update seam that starts from `first`, the delta of another update (None: an empty delta). For each size
    in `again`, the lessons that are still left out go through `by` once, in groups of this size. The result is all
    these deltas combined. A lesson that is left out every time has no edit and no resolution."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = Delta() if first is None else first
        for turn, size in enumerate(again, 1):
            # The first update has counted the votes of the lessons.
            left = [replace(lesson, votes={}) for lesson in left_out(lessons, delta)]
            if not left:
                break
            run.count(Count.REPEATED_LESSONS, len(left))
            groups = [left[start : start + size] for start in range(0, len(left), size)]
            jobs = [(str(i), partial(by, group, context)) for i, group in enumerate(groups)]
            delta = combine([delta, *await run.at(f"again {turn}").gather(jobs)])
        return delta

    return update


def keep_or_drop(uncovered: Uncovered, section: str) -> Fallback:
    """Build a function that settles and counts lessons that are left out in the end: keep them as entries of `section`
    in their own words, or drop them."""

    def settle(lessons: Sequence[Lesson], run: Run, why: str = LEFT_OUT) -> Delta:
        if uncovered == "keep":
            run.count(Count.KEPT_LESSONS, len(lessons))
            return as_entries(lessons, section, why)
        run.count(Count.DROPPED_LESSONS, len(lessons))
        return Delta(resolutions=tuple(Resolution(lesson.id, reason=why) for lesson in lessons))

    return settle
