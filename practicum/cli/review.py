"""`practicum review`: lists the edits that wait for review, each with its evidence, and approves, rejects or tries
edits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Option

from practicum.cli import options as opt
from practicum.cli.operations import Key, Space, Where, folder_of, perform_at, require_none
from practicum.cli.output import Printer, confirm
from practicum.cli.versions import diff_json
from practicum.core.errors import UsageError
from practicum.core.visible import visible_line
from practicum.core.words import in_number, one_line, quantity
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    from practicum.session.review import Effect, Present, Review, ReviewFilter
    from practicum.store.database import Store
    from practicum.view.read import LessonStory, Story

ALL = "all"

LISTED = 20
"""Default number of listed edits."""

NAMED = 3
"""Maximum number of lessons that are shown with an edit, and of attempts that are shown with a lesson."""

TRYING: dict[str, Any] = {"rich_help_panel": opt.TRY}
TRY: dict[str, Any] = {**TRYING, "metavar": "IDS"}
ONLY: dict[str, Any] = {"rich_help_panel": opt.ONLY}
DECIDE: dict[str, Any] = {"rich_help_panel": opt.DECIDE, "metavar": "IDS"}


@opt.settings(
    "model", "roles", "prices", "api_key_env", "concurrency", "max_calls", "max_tokens", "max_usd", "max_minutes",
)  # fmt: skip
def review(
    where: Where,
    approve: str | None = Option(None, help="Apply these edits as a new version: 3.1,4.2 or all.", **DECIDE),
    reject: str | None = Option(
        None, help="Reject these edits, or all. Later edits that say the same are refused.", **DECIDE
    ),
    reason: str | None = Option(None, help="With --reject: the reason, which is stored.", rich_help_panel=opt.DECIDE),
    undo: str | None = Option(None, help="Return these rejected edits to review.", **DECIDE),
    flagged: bool = Option(
        False,
        "--flagged",
        help="With --approve all: also approve flagged edits (default: skip them).",
        rich_help_panel=opt.DECIDE,
    ),
    try_: str | None = Option(
        None, "--try", help="Score tasks with and without these edits (all: all unflagged edits).", **TRY
    ),
    val: Path | None = opt.option(None, panel=opt.TRY),
    fields: opt.Fields = None,
    approve_better: bool = Option(
        False,
        "--approve-better",
        help="With --try: approve each unflagged edit that the test finds better than no edit.",
        **TRYING,
    ),
    state: Literal["pending", "approved", "rejected"] = Option("pending", help="List the edits in this state.", **ONLY),
    trust: opt.TrustFilter = None,
    flag: Literal["characters", "length", "unread", "instruction", "link", "secret", "personal"] | None = Option(
        None, metavar="NAME", help="Only edits with this flag: instruction, link, secret, personal, ...", **ONLY
    ),
    section: str | None = opt.option(None, panel=opt.ONLY),
    limit: int | None = Option(
        None, min=1, help=f"Show at most N, the oldest first (default: {LISTED}; --json: all).", **ONLY
    ),
    yes: opt.Yes = False,
    trust_run: opt.TrustRun = False,
    space: Space = None,
    key: Key = None,
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """List, approve or reject the edits that wait for review.

    Edits that wait are not in any prompt. For the address of a service, only --approve IDS and --reject IDS are
    supported.
    """
    from practicum.session.review import ReviewFilter

    out = Printer(json_)
    if reason is not None and reject is None:
        raise UsageError("settings.unused", "--reason needs --reject IDS: pass both, or neither")
    if where.startswith(ADDRESSES):
        local = {
            "undo": undo, "flagged": flagged, "try": try_, "val": val, "fields": fields, "trust_run": trust_run,
            "approve_better": approve_better, "only_trust": trust, "flag": flag, "section": section, "limit": limit,
            "state": state if state != "pending" else None, **options,
        }  # fmt: skip
        require_none(where, local)
        _review_at(where, space, key, approve, reject, reason, out)
        return 0
    run, criteria = folder_of(where, space), ReviewFilter(trust, flag, section)
    if flagged and approve != ALL:
        raise UsageError("settings.unused", "--flagged needs --approve all: pass both, or neither")
    if approve or reject or undo:
        if state != "pending":
            raise UsageError("settings.unused", f"--state {state} applies to the list only: omit --state")
        if try_ is not None:
            raise UsageError(
                "settings.conflict", "--try cannot be combined with a decision: try the edits first, then decide"
            )
        _decide(run, approve, reject, reason or "", undo, criteria, flagged, yes, out)
        return 0
    if try_ is not None:
        return _try(run, try_, criteria, val, fields, approve_better, {**options, "trust_run": trust_run}, out)
    if named := [
        name for name, value in {**options, "val": val, "approve_better": approve_better or None}.items() if value
    ]:
        raise UsageError("settings.unused", f"--{named[0].replace('_', '-')} needs --try: pass both, or neither")
    _list(run, state, criteria, limit, out)
    return 0


def _list(run: Path, state: str, criteria: ReviewFilter, limit: int | None, out: Printer) -> None:
    """Print the edits in a state."""
    from practicum.session.review import Present, ReviewFilter, read_reviews
    from practicum.view.read import Story

    with Story.open(run) as story:
        present = Present(story.store)
        matches = [one for one in read_reviews(story.store, (state,)) if criteria(one, present.context)]
        shown = matches[: limit or (None if out.as_json else LISTED)]
        about = {"run": str(run), "version": present.context.version, state: len(matches)}
        for one in out.each(about, "reviews", shown, lambda one: _review_json(one, present, story)):
            _print_review(out, run, one, present, story)
    if len(shown) < len(matches):
        out.print(f"… {len(matches) - len(shown):,} more (--limit N shows N edits)")
    narrowed = "" if criteria == ReviewFilter() else " matching these options"
    if state != "pending":
        out.print(f"{in_number(len(matches), f'{len(matches):,} edit[|s] {state}')}{narrowed}")
    elif not matches:
        out.print(f"no edit{narrowed} waits for review in {run}")
    else:
        example = matches[0].id
        waits = in_number(len(matches), "edit[|s] wait[s|]")
        out.print(
            f"{len(matches):,} {waits}{narrowed}: practicum review {run} --approve {example}, or --reject {example} "
            "--reason TEXT"
        )


def _review_at(
    where: str, space: str | None, key: str | None, approve: str | None, reject: str | None, reason: str | None,
    out: Printer,
) -> None:  # fmt: skip
    """List the edits that wait for review in a space of a service, or decide about edits."""
    chosen = [(id, "approve") for id in _ids(approve or "")] + [(id, "reject") for id in _ids(reject or "")]
    if any(id == ALL for id, _ in chosen):
        raise UsageError("settings.unused", "`all` applies to folders only: pass the ids that the list shows")
    if not chosen:
        waiting = perform_at("review", where, space, key)
        out.result(waiting.as_json())
        out.print(waiting.as_text())
        return
    decided = list[dict[str, Any]]()
    for id, decision in chosen:
        why = reason if decision == "reject" else None
        done = perform_at("decide", where, space, key, id=id, decision=decision, reason=why)
        decided.append(done.as_json())
        out.print(done.as_text())
    out.result({"decided": decided})


def _decide(
    run: Path, approve: str | None, reject: str | None, reason: str, undo: str | None, criteria: Any, flagged: bool,
    yes: bool, out: Printer,
) -> None:  # fmt: skip
    """Approve, reject and reopen edits. For `all`, ask for confirmation: first of the approvals, then of the
    rejections. Print the edits that could not be approved, for example because another user decided about the same
    edits first."""
    from dataclasses import replace

    from practicum import run_sync
    from practicum.session.review import Approval, count_pending, find_reviews
    from practicum.session.space import open as open_space
    from practicum.store.database import Store, as_stored
    from practicum.store.reviews import REJECTED

    with as_stored(run), Store.read(run) as store:
        approving = _chosen(store, approve, replace(criteria, flagged=flagged), out)
        rejecting = _chosen(store, reject, criteria, out, held=True)
        undoing = [one.id for one in find_reviews(store, _ids(undo), (REJECTED,))] if undo else []
    if both := {one.id for one in approving} & {one.id for one in rejecting}:
        raise UsageError("settings.conflict", f"{', '.join(sorted(both))} cannot be both approved and rejected")
    for verb, ids, chosen in (("Approve", approve, approving), ("Reject", reject, rejecting)):
        if ids == ALL and chosen:
            flags = sum(bool(one.held.flags) for one in chosen)
            marked = f", {flags:,} of them flagged" if flags else ""
            confirm(f"{verb} {in_number(len(chosen), f'{len(chosen):,} edit[|s]')} of {run}{marked}?", yes)

    async def work() -> tuple[list[Review], list[Review], Approval | None]:
        async with open_space(run) as space:
            rejected = await space.reject([one.id for one in rejecting], reason) if reject else []
            reopened = await space.reopen(undoing) if undo else []
            return rejected, reopened, await space.approve([one.id for one in approving]) if approve else None

    rejected, reopened, approval = run_sync(work())
    with Store.read(run) as store:
        left = count_pending(store)
    approved = approval.approved if approval is not None else ()
    refused = dict(approval.refused) if approval is not None else {}
    edited = [one for one in approved if one.correction is None]
    version = approval.context.version if approval is not None and edited else None
    out.result({
        "run": str(run), "version": version, "approved": [one.id for one in approved], "not_approved": refused,
        "rejected": [one.id for one in rejected], "undone": [one.id for one in reopened], "pending": left,
    })  # fmt: skip
    if version is not None:
        out.print(
            f"{in_number(len(edited), f'{len(edited):,} edit[|s]')} approved: version {version} of {run}; undo the "
            f"approval with practicum space rollback {run} {version - 1}"
        )
    for one in approved:
        if one.correction is not None:
            withdrawing = f"practicum review {run} --reject {one.id} --reason TEXT"
            out.print(
                f"{one.id} approved: a running service uses {one.id} within a second; to withdraw {one.id}: "
                f"{withdrawing}"
            )
    for id, why in refused.items():
        out.item(visible_line(f"{id} is not approved and still waits for review: {why}"))
    if edits := [one for one in rejected if one.correction is None]:
        out.print(
            f"{in_number(len(edits), f'{len(edits):,} edit[|s]')} rejected: the same edits will be refused from now on"
        )
    for one in rejected:
        if one.correction is not None:
            out.print(f"{one.id} is rejected and not active")
    if reopened:
        out.print(f"{in_number(len(reopened), f'{len(reopened):,} edit[|s] wait[s|]')} for review again")
    out.print(in_number(left, f"{left:,} edit[|s] still wait[s|] for review") if left else "no edit waits for review")


def _try(
    run: Path, ids: str, criteria: Any, val: Path | None, fields: str | None, approve_better: bool,
    options: dict[str, Any], out: Printer,
) -> int:  # fmt: skip
    """Score tasks with and without the edits, and show the progress in the live view."""
    from dataclasses import replace

    from practicum.cli.inputs import config_values, read_tasks
    from practicum.cli.running import Interrupted, run_live
    from practicum.session.result import INTERRUPTED
    from practicum.session.trial import try_reviews
    from practicum.store.database import Store, as_stored

    trust_run = options.pop("trust_run")
    tasks, config = read_tasks(val, fields, held_out=True), config_values(options)
    del config["settings"]
    with as_stored(run), Store.read(run) as store:
        chosen = [one.id for one in _chosen(store, ids, replace(criteria, flagged=False), out)]
    if not chosen:
        raise UsageError(
            "review.empty", f"nothing to try: in {run}, only flagged edits wait for review, or no edit waits"
        )
    done = run_live(
        lambda **hooks: try_reviews(
            run, chosen, val=tasks, approve_better=approve_better, trust_run=trust_run, **config, **hooks
        ),
        out,
    )
    out.result({"run": str(run), **done.as_json()})
    for one in done.reviews:
        out.item(f"{one.id} {tried_text(one.tried)}")
    for id, why in done.untried.items():
        out.item(visible_line(f"{id} was not tried: {why}"))
    for one in done.approval.approved if done.approval is not None else ():
        out.item(f"{one.id} {one.reason}: version {one.version} of {run}")
    out.usage(done.usage, done.seconds)
    out.counts(done.counts)
    if done.stopped:
        text = f"not all edits were tried: {done.stopped}; run the same command again to continue at no extra cost"
        if done.stopped == INTERRUPTED:
            raise Interrupted("run.interrupted", text)
        raise UsageError("budget.spent", text)
    return 0


def _chosen(store: Store, ids: str | None, criteria: Any, out: Printer, *, held: bool = False) -> list[Review]:
    """Return the waiting edits that the user named, by ids or as `all`. `held`: if the user named the ids of active
    corrections or notes, return these too."""
    from practicum.session.review import ReviewFilter, find_reviews, read_reviews
    from practicum.store.snapshot import read_context

    if ids is None:
        return []
    if ids != ALL:
        if (criteria.trust, criteria.flag, criteria.section) != (None, None, None):
            raise UsageError(
                "settings.unused",
                "--only-trust, --flag and --section need `all`: pass `all` in place of ids, or omit these options",
            )
        return find_reviews(store, _ids(ids), held=held)
    pending, context = read_reviews(store), read_context(store)
    chosen = [one for one in pending if criteria(one, context)]
    if not criteria.flagged and not criteria.flag:
        every = ReviewFilter(criteria.trust, None, criteria.section)
        if left := sum(every(one, context) for one in pending) - len(chosen):
            skipped = in_number(left, f"{left:,} flagged edit[|s] skipped: pass [its id|their ids], or --flagged")
            out.print(skipped)
    return chosen


def _ids(text: str) -> list[str]:
    return [id.strip() for id in text.split(",") if id.strip()]


def _review_json(one: Review, present: Present, story: Story) -> dict[str, Any]:
    effect = present.effect(one)
    lessons = story.lessons_with(one.lessons)
    return {
        **one.as_json(), "why": one.why, "problem": effect.problem, **diff_json(*effect.difference),
        "lessons": [{"id": x.id, "text": x.text, "attempts": [*x.attempts]} for x in lessons],
    }  # fmt: skip


def _print_review(out: Printer, run: Path, one: Review, present: Present, story: Story) -> None:
    out.print(visible_line(f"{one.id}: {'; '.join(one.why)}"), style="bold")
    if one.state == "pending":
        _print_effect(out, present.effect(one))
    else:
        where = "" if one.version is None else f" in version {one.version} ({', '.join(dict.fromkeys(one.entries))})"
        out.item(visible_line(f"  {one.state}{where}: {one.reason}"))
        for edit in one.edits:
            about = getattr(edit, "text", None) or ", ".join(getattr(edit, "ids", None) or [getattr(edit, "id", "")])
            out.item(visible_line(f"  {edit.op} {one_line(about, 400)}"))
    for lesson in story.lessons_with(one.lessons)[:NAMED]:
        _print_lesson(out, run, lesson, story)
    if one.tried:
        out.print(f"  {tried_text(one.tried)}")


def _print_effect(out: Printer, effect: Effect) -> None:
    """Print the effect of edits in the format of `practicum space diff`. New entries have no id yet."""
    from practicum.core.views import behind, entry_line

    added, removed, changed = effect.difference
    for entry in removed:
        out.item(f"  - {entry_line(entry)}", style="red")
    for before, after in changed:
        out.item(f"  - {entry_line(before)}", style="red")
        out.item(f"  + {entry_line(after)}", style="green")
    for entry in added:
        out.item(f"  + {behind(f'({entry.section})', entry.solved)}", style="green")
    for vote in effect.votes:
        out.item(f"  votes on {vote.id}: +{vote.helpful}/-{vote.harmful}")
    if effect.problem:
        out.item(f"  the edits cannot be approved: {effect.problem}")


def _print_lesson(out: Printer, run: Path, lesson: LessonStory, story: Story) -> None:
    if lesson.text:
        out.item(visible_line(f"  from the lesson: {one_line(lesson.text, 400)}"))
    for id in lesson.attempts[:NAMED]:
        line = story.attempt_line(id)
        task = story.task(line.task)
        file = (task.meta.get("file") if task is not None else None) or ""
        number = task.meta.get("line") if task is not None else None
        at = (f" of {file}:{number}" if number else f" of {file}") if file else ""
        score = "" if line.score is None else f" ({line.score:.2f})"
        out.item(visible_line(f"  from {id}{at}, {line.outcome}{score}: practicum show {run} --attempt {id}"))
    if (more := len(lesson.attempts) - NAMED) > 0:
        out.print(f"  … and {quantity(more, 'attempt')} more")


def tried_text(tried: Any) -> str:
    """Describe the result of a trial in one line: the scores with the edits and without the edits."""
    others = f", together with {quantity(tried['together'] - 1, 'other edit')}" if tried["together"] > 1 else ""
    scores = f"{tried['without'] + tried['mean']:.1%} with the edit and {tried['without']:.1%} without it"
    return (
        f"tried: {scores}, on {quantity(tried['tasks'], 'task')} at version {tried['version']}{others} "
        f"(e-value that the edit is better: {tried['e_better']:.3g}; that the edit is worse: {tried['e_worse']:.3g})"
    )
