"""Combee: learning from many attempts at once, by map, shuffle and reduce, on top of ACE's playbook
(Li et al., section 3; METHODS, section 2).

Deviations, each a setting: copies of a lesson never share a group; code joins the deltas of the groups, and the model
only edits in conflict; every lesson is accounted for, so that none is lost silently; the barrier is optional.
`exact=true` is the paper's own form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from practicum.blocks.accept.always import always_after
from practicum.blocks.sample.batch_size import controlled
from practicum.blocks.update.coverage import Uncovered, accounted, keep_or_drop, retried
from practicum.blocks.update.join import Join, join_by_code, join_by_model, join_side_by_side
from practicum.blocks.update.scan import Dealing, Shuffle, scan
from practicum.engine.asynchronous import without_barrier
from practicum.engine.loop import Method, UpdateSeam
from practicum.methods.ace import SECTION, curator, playbook, settled
from practicum.methods.settings import Number, PlaybookSettings, number_or


class Settings(PlaybookSettings):
    """Settings of Combee, beside those of the playbook."""

    epochs: int = Field(default=1, ge=1)
    """How often all tasks are learned from (offline)."""
    batch: Annotated[Literal["auto"] | Number, number_or("auto")] = "auto"
    """Tasks attempted at once; auto: chosen by the controller (section 3.3). asynchronous: attempts in flight."""
    slope: float = Field(default=0.05, gt=0, lt=1)
    """batch=auto: the size grows while one more task still saves this share of what it saves at the smallest size."""
    max_batch: int = Field(default=100, ge=1)
    """batch=auto: the largest size, to protect quality."""
    groups: Annotated[Literal["sqrt"] | Number, number_or("sqrt")] = "sqrt"
    """The number of groups of lessons; sqrt: the square root of the number of lessons."""
    copies: int = Field(default=2, ge=1)
    """The number of groups that each lesson is in."""
    shuffle: Shuffle = "stratified"
    """stratified: the copies of a lesson are in different groups; random: anywhere, as in the paper."""
    fan_in: int = Field(default=20, ge=3)
    """The most lessons, or deltas, that one model call reads; the number of groups or levels grows to keep to it."""
    levels: Annotated[Literal["auto"] | Number, number_or("auto")] = "auto"
    """join=model: levels of the scan; auto: as many as fan_in needs; 1: the groups are not joined."""
    join: Literal["code", "model"] = "code"
    """code: the model is asked only about edits in conflict; model: about all edits, as in the paper."""
    accounting: bool = True
    """Account for every lesson: it is covered by an edit or an entry, shown to the curator again, kept or dropped."""
    again: int = Field(default=2, ge=0)
    """accounting: how often left-out lessons are shown to the curator again, in smaller and smaller groups."""
    uncovered: Uncovered = "keep"
    """accounting: keep a lesson that is still left out as an entry, or drop it."""
    exact: bool = False
    """The paper's own form: random shuffle, groups of any size, joined by the model, no accounting."""
    asynchronous: bool = False
    """No barrier: a group of lessons is reduced as soon as it is full, and attempts start from the newest context."""
    staleness: int = Field(default=0, ge=0)
    """asynchronous: how many versions a delta may be behind the context before it is reconciled."""

    ONE_TASK: ClassVar[Mapping[str, Any]] = {
        **PlaybookSettings.ONE_TASK, "batch": 1, **dict.fromkeys(("slope", "max_batch", "asynchronous", "staleness"))
    }  # fmt: skip

    @model_validator(mode="after")
    def _can_act_together(self) -> Self:
        given = self.model_fields_set
        if self.exact and (set_ := given & {"shuffle", "fan_in", "levels", "join", "accounting", "again", "uncovered"}):
            raise ValueError(f"exact=true is the paper's own way, which settles {_listed(set_)}: leave that out")
        if self.batch != "auto" and (unused := given & {"slope", "max_batch"}):
            raise ValueError(f"{_listed(unused)} is for batch=auto")
        if self.curator != "edits" and (unused := given & {"accounting", "again", "uncovered"}):
            raise ValueError(f"{_listed(unused)} is for curator=edits: nothing is left out otherwise")
        if not self.accounting and (unused := given & {"again", "uncovered"}):
            raise ValueError(f"{_listed(unused)} needs accounting=true")
        if self.curator == "append" and (self.exact or self.join == "model"):
            raise ValueError("curator=append asks no model, which exact=true and join=model need to join the groups")
        if self.groups != "sqrt" and self.copies > self.groups:
            raise ValueError(f"copies={self.copies} is more than groups={self.groups}: each copy goes to another group")
        if self.copies > self.fan_in and not self.exact:
            raise ValueError(f"copies={self.copies} is more than fan_in={self.fan_in}: no group could hold them")
        if self.levels != "auto" and self.levels > 1 and self.join == "code":
            raise ValueError("levels counts calls of the model: it needs join=model (code joins all groups at once)")
        if self.batch == "auto" and self.online:
            raise ValueError("a stream needs a batch size of its own: give --batch-size N")
        if "staleness" in given and not self.asynchronous:
            raise ValueError("staleness needs asynchronous=true")
        if self.asynchronous:
            filled = f"the {_slots(self)} attempts in flight fill"
            if self.groups != "sqrt" and self.groups > _slots(self):
                raise ValueError(f"groups={self.groups} is more than {filled}")
            if "copies" in given and self.copies > _dealing(self).count(_slots(self)):
                raise ValueError(f"copies={self.copies} is more than the groups that {filled}")
        sync = given & {"exact", "shuffle", "levels", "join", "slope", "max_batch"}
        if self.asynchronous and sync:
            raise ValueError(
                f"{_listed(sync)} has no effect with asynchronous=true: groups are filled as lessons arrive"
            )
        return self


def method(settings: Settings) -> Method:
    """ACE with its update wrapped in a scan; asynchronous: with another schedule."""
    s = settings
    if s.asynchronous:
        return _without_barrier(s)
    size = FIRST if s.batch == "auto" else s.batch
    made = replace(playbook(s, "combee", _scanned(s), batch=size, epochs=s.epochs), costs=COSTS)
    if s.batch != "auto":
        return made
    return replace(
        made,
        sample=controlled(s.epochs, s.slope, s.max_batch, FIRST),
    )


def _without_barrier(s: Settings) -> Method:
    """Single attempts without waiting for each other. Each delta is settled when it is applied, and lessons are
    accounted for with their last copy."""
    slots, dealing = _slots(s), _dealing(s)
    update, smaller = curator(s), _smaller(s)
    group, copies = dealing.size(slots), min(s.copies, dealing.count(slots))

    return replace(
        playbook(s, "combee", update, batch=1, epochs=s.epochs),
        costs=COSTS,
        update=update,
        accept=always_after(partial(settled, s)),
        schedule=without_barrier(
            slots=slots,
            group=group,
            copies=copies,
            staleness=s.staleness,
            again=retried(update, smaller) if smaller else None,
            left=keep_or_drop(_uncovered(s), SECTION) if s.curator == "edits" else None,
        ),
    )


def _slots(s: Settings) -> int:
    return IN_FLIGHT if s.batch == "auto" else s.batch


def _scanned(s: Settings) -> UpdateSeam:
    """Map, shuffle, reduce; then the left-out lessons again."""
    by = curator(s)
    return _accounted(s, scan(by, _dealing(s), _join(s, by)))


def _dealing(s: Settings) -> Dealing:
    if s.exact:
        return Dealing(groups=s.groups, copies=s.copies, shuffle="random", fan_in=None)
    return Dealing(groups=s.groups, copies=s.copies, shuffle=s.shuffle, fan_in=s.fan_in)


def _join(s: Settings, update: UpdateSeam) -> Join:
    if s.exact:
        return join_by_model(update)
    if s.levels == 1:
        return join_side_by_side
    if s.join == "code":
        return join_by_code(update, s.fan_in, None if s.dedupe == "never" else s.threshold)
    return join_by_model(update, s.fan_in, None if s.levels == "auto" else s.levels)


def _accounted(s: Settings, update: UpdateSeam) -> UpdateSeam:
    if s.curator != "edits":
        return update
    return accounted(update, _uncovered(s), SECTION, curator(s), _smaller(s))


def _uncovered(s: Settings) -> Uncovered:
    return s.uncovered if s.accounting and not s.exact else "drop"


def _smaller(s: Settings) -> list[int]:
    """The sizes of the groups in which left-out lessons are shown again."""
    if s.curator != "edits" or not s.accounting or s.exact:
        return []
    return [max(s.fan_in >> turn, 1) for turn in range(1, s.again + 1)]


COSTS = "reflections, retries, one curation for each group of lessons"

FIRST = 10
"""The smallest batch size that the controller tries (as in the paper)."""

IN_FLIGHT = 40
"""Attempts in flight without a barrier, if no batch size is given."""


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
