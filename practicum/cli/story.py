"""Output of `practicum show` about the attempts, lessons and calls of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.types import Prompt, Trace
from practicum.core.visible import plain_breaks, visible, visible_line
from practicum.core.words import one_line, quantity, usage_text

if TYPE_CHECKING:
    from practicum.view.read import AttemptLine, AttemptStory, CallStory, EntryShown, Fate, LessonStory

FOLD = 8
"""Maximum number of lines of each part of a prompt, and of other short parts, in the view of an attempt."""

LONG = 40
"""Maximum number of lines of a task, an answer or a reasoning in the view of an attempt."""

STEPS = 30
"""Maximum number of an agent's steps, and of calls, in the view of an attempt."""

NAMED = 3
"""Maximum number of attempts that are named with a lesson in the list of lessons."""

WIDE = 240
"""Maximum number of characters of a text in a list if the output is not a terminal."""

NOT_STORED = "(no prompt is stored: no model was called, or the prompt was forgotten)"

MARKS = {"right": "right", "wrong": "WRONG", "failed": "FAILED", "lost": "LOST", "unknown": "?"}
"""Outcome → its printed form, with failures in capitals."""


def show_attempts(
    run: Path, out: Printer, *, failed: bool, split: str | None, step: int | None, task: str | None
) -> None:
    """List attempts. Print each attempt when it is read."""
    from practicum.view.read import Story

    with Story.open(run) as story:
        outcomes: Counter[str] = Counter()
        example, wrong = "", False
        matches = story.attempts(failed=failed, split=split, step=step, task=task)
        for line in out.each({"run": str(run)}, "attempts", matches, _as_json):
            outcomes[line.outcome] += 1
            if not example or (line.failed and not wrong):
                example, wrong = line.id, line.failed
            out.print(_attempt_line(out, line))
        if not outcomes:
            if step is not None and step > (last := story.info.steps):
                raise UsageError(
                    "step.unknown", f"no step {step} in {run}: the last step is {last}", step=step, last=last
                )
            narrowed = " matching these options" if failed or split or step or task else ""
            out.print(f"no attempts{narrowed} in {run}")
            return
        counted = ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.most_common())
        one = "attempt" if outcomes.total() == 1 else "attempts"
        out.print(
            f"{outcomes.total():,} {one}: {counted}; to look at an attempt: practicum show {run} --attempt "
            f"{_quoted(example)}"
        )


def _as_json(value: Any) -> Mapping[str, Any]:
    values: Mapping[str, Any] = value.as_json()
    return values


def _attempt_line(out: Printer, line: AttemptLine) -> str:
    score = "    " if line.score is None else f"{line.score:.2f}"
    head = f"{line.id:<10} {MARKS[line.outcome]:<6} {score}  "
    notes = "".join([" (reused)" if line.reused else "", " (chosen)" if line.chosen and line.tries > 1 else ""])
    end = line.answer if line.error is None else line.error
    room = max(out.width - len(head) - len(notes) - 3, 24) if out.is_terminal else 2 * WIDE
    asked = one_line(line.input, max(room - len(one_line(end, room)), room // 2))
    return visible_line(f"{head}{asked} → {one_line(end, room - len(asked))}{notes}")


def show_attempt(run: Path, id: str, out: Printer) -> None:
    """Show an attempt: task, prompt, answer, score, lessons, and the edits made from the lessons."""
    from practicum.view.read import Story

    with Story.open(run) as story:
        one = story.attempt(id)
        out.result(one.as_json())
        line = one.line
        where = f"step {line.step}" if line.step is not None else f"evaluation {line.split}"
        version = "" if one.version is None else f", version {one.version}"
        scored = "" if line.score is None else f" ({line.score:.2f})"
        out.print(visible_line(f"{line.id}: {MARKS[line.outcome]}{scored}, {where}{version}"), style="bold")
        if one.reused:
            out.print(f"reused from the attempt {one.reused}, because the agent's view had not changed")
        _print_part(out, f"task {line.task}", one.task.text, LONG)
        if one.task.target is not None:
            _print_part(out, "right answer", one.task.target, FOLD)
        _print_shown(out, run, one)
        _print_entries(out, "retrieved", one.retrieved)
        _print_done(out, one.trace, one.used)
        _print_score(out, one)
        _print_others(out, one)
        _print_lessons(out, one)
        calls = [*one.calls, *one.judging, *one.reflecting]
        roles = ", ".join(f"{role} {n}" for role, n in Counter(call.role for call in calls if call.usage.calls).items())
        out.print(f"cost: {usage_text(one.usage)}, {one.seconds:.1f} s{f' ({roles})' if roles else ''}")


def _print_shown(out: Printer, run: Path, one: AttemptStory) -> None:
    """Print the prompts of the agent: the first in full, the others in one line each."""
    if not one.calls:
        why = "none, the attempt is a stored trace from before the run" if one.recorded else "none, no call was made"
        out.print(f"prompt: {f'see the attempt {one.reused}' if one.reused else why}")
        return
    first, *others = one.calls
    prompt = first.prompt
    if prompt is None:
        out.print(f"prompt: {NOT_STORED}")
    else:
        out.print(f"prompt (in full: practicum show {run} --call {first.id})")
        _print_prompt(out, prompt, FOLD, "  ")
    if others:
        out.print(f"then {quantity(len(others), 'more call')}")
        for call in others[:STEPS]:
            asked = call.prompt
            last = "" if asked is None else f": {one_line(asked.user, WIDE)}"
            _print_lines(out, [f"call {call.id}, {_inner(call, one.line.place)}{last}"], "  ")
        _print_more(out, len(others) - STEPS, "call", "  ")


def _inner(call: CallStory, place: str) -> str:
    """Return the place of a call relative to the place of its attempt."""
    return call.place.removeprefix(f"{place}/")


def _print_prompt(out: Printer, prompt: Prompt, most: int, margin: str = "") -> None:
    parts = {"instructions": prompt.system, "playbook": "\n".join(prompt.pages)}
    for name, text in parts.items():
        if text:
            _print_part(out, name, text, most, margin)
    for number, turn in enumerate(prompt.turns, 1):
        _print_part(out, f"earlier turn {number}", f"{turn.user}\n→ {turn.assistant}", most, margin)
    _print_part(out, "message", prompt.user, most, margin)


def _print_entries(out: Printer, name: str, entries: Sequence[EntryShown]) -> None:
    if entries:
        out.print(name)
    for entry in entries:
        similar = "" if entry.similarity is None else f" {entry.similarity:.2f}"
        text = f"({entry.section}) {one_line(entry.text, WIDE)}" if entry.text else "(not in the context)"
        _print_lines(out, [f"{entry.id}{similar} {text}"], "  ")


def _print_done(out: Printer, trace: Trace, used: Sequence[EntryShown]) -> None:
    if trace.steps:
        out.print("steps")
        for step in trace.steps[:STEPS]:
            _print_part(out, step.kind, step.text, FOLD, "  ")
        _print_more(out, len(trace.steps) - STEPS, "step", "  ")
    if trace.reasoning:
        _print_part(out, "reasoning", trace.reasoning, LONG)
    if trace.error is not None:
        _print_part(out, "lost" if trace.lost else "failed", trace.error, LONG)
    else:
        _print_part(out, "answered", trace.answer, LONG)
    _print_entries(out, "relied on", used)
    for name in ("doubts", "missing", "note"):
        if text := trace.data.get(name):
            _print_part(out, name, text if isinstance(text, str) else one_line(text, WIDE), FOLD)


def _print_score(out: Printer, one: AttemptStory) -> None:
    if one.score is None:
        out.print("score: none")
    else:
        measures = "".join(f"; {name} {value:g}" for name, value in one.score.measures.items())
        verdict = "right" if one.score.correct else "wrong"
        stopped = "; the sandbox stopped the code" if one.score.stopped else ""
        note = f": {one.score.note}" if one.score.note else ""
        _print_part(out, "score", f"{one.score.value:g}, {verdict}{measures}{stopped}{note}", FOLD)
    for call in one.judging:
        _print_part(out, f"{call.role} (call {call.id})", call.answer, FOLD)
    _print_part(out, "feedback", one.feedback.text, FOLD)


def _print_others(out: Printer, one: AttemptStory) -> None:
    for number, tried in enumerate(one.rounds, 1):
        if tried.answer is not None:
            end = f"failed: {tried.error}" if tried.error is not None else tried.answer
            _print_part(out, f"round {number}, another attempt after a reflection", f"{end}\n{tried.feedback}", FOLD)
    if one.group:
        out.print(f"{len(one.group)} attempts made together at this task")
        for member in one.group:
            here = " (this one)" if member.id == one.line.id else ""
            _print_lines(out, [_attempt_line(out, member) + here], "  ")
    if one.choice:
        _print_part(out, f"chosen by {one.choice['by']}", str(one.choice["why"]), FOLD)
    if one.twin is not None:
        doubts = "".join(f"\n{name}: {text}" for name in ("doubts", "missing") if (text := one.twin.data.get(name)))
        used = f"\nconsulted: {', '.join(one.twin.used)}" if one.twin.used else ""
        _print_part(out, "twin with the annotated playbook", f"{one.twin.error or one.twin.answer}{used}{doubts}", FOLD)


def _print_lessons(out: Printer, one: AttemptStory) -> None:
    from practicum.methods.blocks.reflect import FINDINGS

    if one.line.step is None:
        return
    if one.reflecting:
        calls = ", ".join(f"{call.id} ({call.role})" for call in one.reflecting)
        _print_part(out, "reflected in calls" if len(one.reflecting) > 1 else "reflected in call", calls, FOLD)
    if not one.lessons:
        out.print("lessons: none")
    for number, lesson in enumerate(one.lessons, 1):
        _print_part(out, f"lesson {number}", _lesson_text(lesson), LONG)
        for name, finding in lesson.findings.items():
            if name in FINDINGS and finding and not lesson.of:
                _print_part(out, FINDINGS[name].lower(), str(finding), FOLD, "  ")
        for fate in lesson.fates:
            _print_lines(out, [f"→ {fate_text(fate)}"], "  ")
        if not lesson.fates:
            out.print("  → no edit was made from this lesson")


def _lesson_text(lesson: LessonStory) -> str:
    votes = ", ".join(f"{id} {rating}" for id, rating in lesson.votes.items())
    section = f"({lesson.section}) " if lesson.section else ""
    insight = [f"{section}{lesson.text}"] if lesson.text else []
    return "\n".join([*insight, *([f"votes: {votes}"] if votes else [])]) or "(no insight)"


def fate_text(fate: Fate) -> str:
    """Describe the fate of a lesson (applied, dropped, refused, ...) in one line."""
    reason = f": {one_line(fate.reason, WIDE)}" if fate.reason else ""
    match fate.kind:
        case "applied" if fate.op == "vote":
            return f"the vote on {fate.entry} counts since version {fate.version}{reason}"
        case "applied":
            done = {"add": "added", "update": "changed", "merge": "merged", "delete": "deleted"}
            return f"{done[fate.op]} {fate.entry} in version {fate.version}{reason}"
        case "covered":
            return f"already covered by {fate.entry}{reason}"
        case "dropped":
            return f"dropped{reason}"
        case "waits":
            return f"waits for review ({fate.review}){reason}"
        case "rejected":
            return f"rejected in review ({fate.review}){reason}"
        case "refused":
            return f"edit refused ({fate.op} {fate.entry or 'an entry'}){reason}"


def show_lessons(run: Path, out: Printer, step: int | None) -> None:
    """List lessons with their fates. Print each lesson when it is read."""
    from practicum.view.read import Story

    with Story.open(run) as story:
        fates: Counter[str] = Counter()
        number = 0
        for lesson in out.each({"run": str(run)}, "lessons", story.lessons(step), _as_json):
            number += 1
            settled = [fate for fate in lesson.fates if fate.op != "vote" or not lesson.text]
            kind = settled[-1].kind if settled else "without an edit"
            fates["waiting for review" if kind == "waits" else kind if lesson.text else "only votes"] += 1
            ends = "; ".join(fate_text(fate) for fate in settled) or (
                "no edit was made from this lesson" if lesson.text else ""
            )
            names = f"{', '.join(lesson.attempts[:NAMED])}{', …' if len(lesson.attempts) > NAMED else ''}"
            summary = one_line(_lesson_text(lesson), WIDE) + (f" → {ends}" if ends else "")
            out.item(visible_line(f"{names or f'step {lesson.step}'}: {summary}"))
        counted = ", ".join(f"{n:,} {kind}" for kind, n in fates.most_common())
        out.print(f"{quantity(number, 'lesson')}{f': {counted}' if counted else ''}")


def show_calls(run: Path, out: Printer, step: int | None, role: str | None) -> None:
    """List calls. Print each call when it is read."""
    from practicum.core.types import Usage
    from practicum.view.read import Story

    with Story.open(run) as story:
        usage, number, last = Usage(), 0, ""
        for call in out.each({"run": str(run)}, "calls", story.calls(step, role), _as_json):
            if not number:
                out.print(f"{'call':>6} {'role':<10} {'in':>7} {'cached':>7} {'out':>6} {'USD':>8} {'s':>6}  place")
            number, usage, last = number + 1, usage + call.usage, call.id
            head = f"{call.id:>6} {call.role:<10} {_numbers(call)}  {'' if call.ok else 'FAILED '}"
            room = max(out.width - len(head), 20) if out.is_terminal else WIDE
            place = call.place
            # Cut the beginning of a long place: the end of a place is more specific.
            out.print(f"{head}{place if len(place) <= room else f'…{place[1 - room :]}'}")
        out.print(f"total: {usage_text(usage)}")
        if last:
            out.print(f"to look at a call: practicum show {run} --call {last}")


def _numbers(call: CallStory) -> str:
    used = call.usage
    usd = "-" if used.usd is None else f"{used.usd:.4f}"
    tokens = f"{used.input_tokens:>7,} {used.cached_tokens:>7,} {used.output_tokens:>6,}"
    return f"{tokens} {usd:>8} {call.seconds:>6.1f}"


def show_call(run: Path, id: str, out: Printer) -> None:
    """Show a call with its full prompt and answer."""
    from practicum.view.read import Story

    with Story.open(run) as story:
        call = story.call(id)
        attempts = call.attempts
        out.result({**call.as_json(texts=True), "attempts": [*attempts]})
        model = f" ({call.model})" if call.model else ""
        out.print(f"call {call.id}: {call.role}{model}, {call.place}", style="bold")
        prompt = call.prompt
        if prompt is None:
            out.print(f"prompt: {NOT_STORED}")
        else:
            _print_prompt(out, prompt, 0)
        _print_part(out, "answered" if call.ok else "failed", call.answer, 0)
        if call.cut:
            out.print("the answer ended at the limit of output tokens (--max-output-tokens)")
        out.print(f"cost: {usage_text(call.usage)}, {call.seconds:.1f} s")
        if attempts:
            named = f"{', '.join(attempts[:FOLD])}{', …' if len(attempts) > FOLD else ''}"
            out.print(
                f"attempts: {named}; to look at an attempt: practicum show {run} --attempt {_quoted(attempts[0])}"
            )


def _print_part(out: Printer, name: str, text: str, most: int, margin: str = "") -> None:
    """Print a text after its name: on the line of the name if the text fits, otherwise on the lines below. `most` is
    the maximum number of lines of the text (0: all lines)."""
    short = visible(plain_breaks(text).strip("\n"))
    if "\n" not in short and len(margin) + len(name) + len(short) + 2 <= (out.width if out.is_terminal else WIDE):
        out.print(f"{margin}{name}: {short}")
        return
    out.print(f"{margin}{name}:")
    inner = f"{margin}  "
    rows = [*_wrapped(out, short.split("\n"), inner)]
    # If only one line is over the limit, show the line: a note about an omitted line would take the same space.
    shown = rows if not most or len(rows) <= most + 1 else rows[:most]
    for row in shown:
        out.print(row)
    _print_more(out, len(rows) - len(shown), "line", inner)


def _print_lines(out: Printer, lines: Iterable[str], margin: str) -> None:
    for row in _wrapped(out, lines, margin):
        out.print(row)


def _wrapped(out: Printer, lines: Iterable[str], margin: str) -> Iterator[str]:
    """Yield the lines with a margin. On a terminal, wrap long lines."""
    for line in lines:
        indent = margin + " " * (len(line) - len(line.lstrip()))
        broken = wrap(line, max(out.width, 40), initial_indent=margin, subsequent_indent=f"{indent}  ") or [""]
        yield from broken if out.is_terminal else [f"{margin}{line}"]


def _print_more(out: Printer, number: int, noun: str, margin: str) -> None:
    if number > 0:
        out.print(f"{margin}… {quantity(number, f'more {noun}')}; --json shows all")


def _quoted(id: str) -> str:
    from shlex import quote

    return quote(id)
