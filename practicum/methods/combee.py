"""Combee: learning from many attempts at once, by map, shuffle and reduce, on top of ACE's playbook (Li et al., section
3; METHODS, section 2).

Deviations, each a setting: copies of a lesson never share a group; code joins the deltas of the groups, and the model
edits only conflicts; every lesson is accounted for, so that no lesson is lost silently; the barrier between steps is
optional. `exact=true` is the paper's own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from practicum.core.clashes import ON, Clash, needs
from practicum.engine.asynchronous import without_barrier
from practicum.engine.loop import Method, UpdateSeam
from practicum.methods.ace import SECTION, curator, playbook, settled
from practicum.methods.blocks.gate import always_after
from practicum.methods.blocks.sample import controlled
from practicum.methods.blocks.scan import (
    Dealing,
    Join,
    Shuffle,
    Uncovered,
    accounted,
    join_by_code,
    join_by_model,
    join_side_by_side,
    keep_or_drop,
    retried,
    scan,
)
from practicum.methods.settings import Number, PlaybookSettings, number_or


class Settings(PlaybookSettings):
    """Settings of Combee, in addition to the settings of the playbook."""

    batch: Annotated[Literal["auto"] | Number, number_or("auto")] = "auto"
    """The number of tasks that a step attempts at once; auto: the controller chooses the number (section 3.3). With
    asynchronous, `batch` is the number of attempts in flight."""
    slope: float = Field(default=0.05, gt=0, lt=1)
    """batch=auto: the smallest saving for which the batch grows. The saving is the time by which one more task in the
    batch shortens an epoch, as a share of the time that one more task saves at the smallest batch size."""
    max_batch: int = Field(default=100, ge=1)
    """batch=auto: the largest batch size, to protect quality."""
    groups: Annotated[Literal["sqrt"] | Number, number_or("sqrt")] = "sqrt"
    """The number of groups of lessons; sqrt: the square root of the number of lessons."""
    copies: int = Field(default=2, ge=1)
    """The number of groups to which each lesson is dealt."""
    shuffle: Shuffle = "stratified"
    """stratified: the copies of a lesson are in different groups; random: in any groups, as in the paper."""
    fan_in: int = Field(default=20, ge=3)
    """The maximum number of lessons, or deltas, that one model call reads; if a call would read more, groups or levels
    are added."""
    levels: Annotated[Literal["auto"] | Number, number_or("auto")] = "auto"
    """join=model: the number of levels of the scan; auto: the number that fan_in needs; 1: the deltas of the groups are
    not joined."""
    join: Literal["code", "model"] = "code"
    """The way to join the deltas of the groups. code: code joins the deltas, and the model reads only edits in
    conflict; model: the model reads all edits, as in the paper."""
    accounting: bool = True
    """Account for every lesson: a lesson that no edit and no entry covers is shown to the curator again (see `again`).
    If the curator leaves the lesson out every time, the lesson is kept or dropped (see `uncovered`)."""
    again: int = Field(default=2, ge=0)
    """accounting: the maximum number of times that left-out lessons are shown to the curator again, in ever smaller
    groups."""
    uncovered: Uncovered = "keep"
    """accounting: keep: a lesson that the curator left out every time becomes an entry; drop: such a lesson is
    dropped."""
    guards: bool = False
    """Hold back an edit that would lose a number, a name or an answer of a rule, and add the lesson behind the edit
    unchanged."""
    exact: bool = False
    """The paper's own form: random shuffle, groups of any size, deltas joined by the model, no accounting, no
    guards."""
    asynchronous: bool = False
    """Learn without a barrier between steps: as soon as a group of lessons is full, the curator turns it into a delta,
    and each attempt starts from the newest context."""
    staleness: int = Field(default=0, ge=0)
    """asynchronous: the maximum number of versions by which a delta may be behind the context. A delta that is further
    behind is reconciled with the context before it is applied."""

    SMALL: ClassVar[Mapping[str, Any]] = {**PlaybookSettings.SMALL, "guards": True, "rules_shown": False}

    ONE_TASK: ClassVar[Mapping[str, Any]] = {**PlaybookSettings.ONE_TASK, "batch": 1, "asynchronous": None}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash(
            {"exact": True}, "exact=true is the paper's own form, which fixes {names}: leave out {names}",
            ("shuffle", "fan_in", "levels", "join", "accounting", "again", "uncovered", "guards"),
        ),
        needs("slope", "max_batch", batch="auto"),
        needs("accounting", "again", "uncovered", "guards", curator="edits"),
        needs("again", "uncovered", accounting=True),
        Clash(
            lambda s: s.curator == "append" and (s.exact or s.join == "model"),
            "curator=append asks no model, but exact=true and join=model join the groups by a model: change curator",
        ),
        Clash(
            lambda s: s.groups != "sqrt" and s.copies > s.groups,
            "copies={s.copies} is more than groups={s.groups}, and each copy goes to a different group: lower copies",
        ),
        Clash(
            lambda s: s.copies > s.fan_in and not s.exact,
            "copies={s.copies} is more than fan_in={s.fan_in}, a group's maximum: lower copies or raise fan_in",
        ),
        Clash(
            {"join": "code"}, "levels needs join=model: with join=code all groups are joined at once",
            ("levels",), unless={"levels": ("auto", 1)},
        ),
        Clash({"batch": "auto", "online": True}, "a stream needs a fixed batch size: pass `batch=N`"),
        needs("staleness", asynchronous=True),
        Clash({"asynchronous": True, "steps": ON}, "asynchronous=true does not count steps: leave out steps"),
        Clash(
            lambda s: s.asynchronous and s.groups != "sqrt" and s.groups > s.in_flight,
            "the {s.in_flight} attempts in flight cannot fill groups={s.groups}: lower groups",
        ),
        Clash(
            lambda s: s.asynchronous and s.were_set("copies") and s.copies > s.dealing.count(s.in_flight),
            "the {s.in_flight} attempts in flight fill fewer groups than copies={s.copies}: lower copies",
        ),
        Clash(
            {"asynchronous": True}, "{names} has no effect with asynchronous=true: groups are filled as lessons arrive",
            ("exact", "shuffle", "levels", "join", "slope", "max_batch"),
        ),
    )  # fmt: skip

    @property
    def in_flight(self) -> int:
        """asynchronous: number of attempts in flight."""
        return IN_FLIGHT if self.batch == "auto" else self.batch

    @property
    def dealing(self) -> Dealing:
        """Rule by which lessons are dealt into groups."""
        if self.exact:
            return Dealing(groups=self.groups, copies=self.copies, shuffle="random", fan_in=None)
        return Dealing(groups=self.groups, copies=self.copies, shuffle=self.shuffle, fan_in=self.fan_in)


def method(s: Settings) -> Method:
    """Build ACE with an update that is wrapped in a scan or, if `asynchronous`, with a schedule without a barrier."""
    by, edits = curator(s, guards=s.guards and not s.exact), s.curator == "edits"
    accounting = s.accounting and not s.exact
    uncovered = s.uncovered if accounting else "drop"
    # Lessons that were left out are shown again in groups of these sizes.
    sizes = [max(s.fan_in >> turn, 1) for turn in range(1, s.again + 1)] if accounting and edits else []
    if not s.asynchronous:
        update = scan(by, s.dealing, joined(s, by))
        update = accounted(update, uncovered, SECTION, by, sizes) if edits else update
        built = playbook(s, "combee", update, FIRST if s.batch == "auto" else s.batch, costs=COSTS)
        return replace(built, sample=controlled(s.epochs, s.slope, s.max_batch, FIRST)) if s.batch == "auto" else built
    schedule = without_barrier(
        slots=s.in_flight,
        group=s.dealing.size(s.in_flight),
        copies=min(s.copies, s.dealing.count(s.in_flight)),
        staleness=s.staleness,
        again=retried(by, sizes) if sizes else None,
        left=keep_or_drop(uncovered, SECTION) if edits else None,
    )
    # When a delta is applied, `settled` adds edits that prune, de-duplicate and enforce the budget.
    built = playbook(s, "combee", by, batch=1, costs=COSTS)
    return replace(built, update=by, accept=always_after(partial(settled, s)), schedule=schedule)


def joined(s: Settings, update: UpdateSeam) -> Join:
    """Build the join of the groups' deltas."""
    if s.exact:
        return join_by_model(update)
    if s.levels == 1:
        return join_side_by_side
    if s.join == "code":
        return join_by_code(update, s.fan_in, None if s.dedupe == "never" else s.threshold)
    return join_by_model(update, s.fan_in, None if s.levels == "auto" else s.levels)


COSTS = "reflections, retries, one curation per group of lessons"

FIRST = 10
"""Smallest batch size that the controller tries (as in the paper)."""

IN_FLIGHT = 40
"""Number of attempts in flight without a barrier, if no batch size is set."""
