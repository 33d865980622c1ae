"""From what was typed to what the library takes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from practicum.cli.options import METHOD_SETTINGS
from practicum.core.errors import TaskFileError, UsageError
from practicum.core.files import read_text
from practicum.core.trust import Trust, least
from practicum.core.types import Task
from practicum.core.visible import visible_line
from practicum.core.words import in_number, quantity

if TYPE_CHECKING:
    from practicum.tasks.traces import Traces, TraceStream

Number = TypeVar("Number", int, float)

PROBLEMS_SHOWN = 20
"""Problems of traces that are printed one by one."""


def config_values(given: Mapping[str, Any], tasks: Sequence[Task] | None = ()) -> dict[str, Any]:
    """Keywords of `Config` from the options that were given; `tasks`, those to learn from, are where `--choices auto`
    finds the answers. Where it is None, `auto` stays as it is."""
    values = {name: value for name, value in given.items() if value not in (None, [])}
    for name, value in values.items():
        if isinstance(value, str) and not value.strip() and name != "instructions":
            raise UsageError(
                "settings.invalid", f"--{name.replace('_', '-')} is empty: give a value, or leave it out", setting=name
            )
    settings: dict[str, Any] = dict(pairs(values.pop("settings", ()), "--set"))
    for name in METHOD_SETTINGS:
        if name in values:
            if name in settings:
                raise UsageError(
                    "settings.conflict", f"setting {name!r} is given twice, as an option and with --set", setting=name
                )
            settings[name] = values.pop(name)
    if "instructions" in values:
        values["instructions"] = read_instructions(values["instructions"])
    if "sections" in values:
        values["sections"] = read_sections(values["sections"])
    if "choices" in values and not (tasks is None and values["choices"] == "auto"):
        values["choices"] = read_choices(values["choices"], tasks or ())
    roles = pairs(values.pop("roles", ()), "--role")
    return {**values, "settings": settings, "roles": roles}


def read_tasks(
    path: Path | None, fields: str | None, trust: Trust = "own", *, scorer: str | None = None,
    trust_tools: bool | None = None, held_out: bool = False,
) -> list[Task]:  # fmt: skip
    """The tasks of a file, whose fields have these names (--fields), or of a space; none where no path is given.

    Of a space they are the outcomes that this scorer (None: the default) can score; with `held_out` those that it
    keeps from learning. Raises TaskFileError, which says how to make tasks of a public data set, and UsageError for
    a space without such an outcome.
    """
    from practicum.store.folder import is_run
    from practicum.tasks.load import load_tasks, parse_fields

    names = parse_fields(fields) if fields is not None else None
    if path is None:
        return []
    if is_run(path):
        return _scorable(read_outcomes(path, trust, trust_tools, held_out), path, scorer)
    try:
        return load_tasks(path, names, trust)
    except TaskFileError as error:
        from practicum.tasks.formats import matching_formats

        if names or not (formats := matching_formats(path)):
            raise
        command = f"practicum bench tasks {shlex.quote(str(path))} --out tasks.jsonl"
        raise TaskFileError(
            "tasks.are_traces", f"{error}; it looks like {' or '.join(formats)}: make tasks of it with {command}"
        ) from error


def read_outcomes(path: Path, trust: Trust, trust_tools: bool | None, held_out: bool = False) -> list[Task]:
    """The outcomes of a space as tasks with recorded attempts, none more trusted than `trust`."""
    from practicum.session.outcome_tasks import load_outcomes

    found = load_outcomes(path, held_out=held_out, trust_tools=bool(trust_tools))
    return [replace(task, trust=least(task.trust, trust)) for task in found]


def _scorable(tasks: list[Task], path: Path, scorer: str | None) -> list[Task]:
    """The tasks that a scorer can score, by whether they have a right answer. Standard error says how many cannot."""
    from practicum.tasks.scoring.registry import COMPARING

    if scorer is not None and scorer not in COMPARING:
        return tasks
    found = [task for task in tasks if task.target is not None]
    if not found:
        raise UsageError(
            "run.no_data",
            f"no outcome of {path} has a right answer, which the scorer needs: report right answers, choose a scorer "
            f"that needs none (--scorer judge), or learn from the recorded answers (practicum learn --from {path})",
        )
    if left := len(tasks) - len(found):
        lack = f"{left:,} of {quantity(len(tasks), 'outcome')} in {path} {in_number(left, 'lack[s|]')} the right answer"
        print(visible_line(f"left out: {lack} that the scorer needs"), file=sys.stderr)
    if theirs := sum(task.trust == "user" for task in found):
        rest = f"{theirs:,} of {quantity(len(found), 'right answer')} in {path} [rests|rest] on the word of end users"
        print(visible_line(f"{in_number(theirs, rest)}, which nobody has reviewed"), file=sys.stderr)
    return found


def open_traces(address: str, trust: Trust, trust_scores: bool) -> TraceStream:
    """Attempts that agents made already, as tasks that hold them, read one after another. When the last one is read,
    standard error says how many there are, and what could not be read."""
    from practicum.tasks.traces import TraceStream
    from practicum.tasks.traces.sources import shown

    def said(traces: Traces) -> None:
        formats = ", ".join(f"{count} of {name}" for name, count in sorted(traces.formats.items()))
        lines = [f"{quantity(sum(traces.formats.values()), 'trace')} in {shown(address)}: {formats}"]
        lines += [f"could not be read in full: {problem}" for problem in traces.problems[:PROBLEMS_SHOWN]]
        # Of problems that were not kept, only the number of cases is known.
        if (more := len(traces.problems) - PROBLEMS_SHOWN) > 0:
            lines.append(f"and {quantity(more, 'more such line')}")
        if traces.faults:
            lines.append(f"in all, {quantity(traces.faults, 'part')} could not be read in full")
        if traces.unscored:
            lines.append(
                f"the score or right answer of {quantity(traces.unscored, 'trace')} is left out, since somebody else "
                "may have written it: --trust own if the traces are yours, --trust-scores if it counts all the same"
            )
        print(*map(visible_line, lines), sep="\n", file=sys.stderr)

    return TraceStream(address, trust, trust_scores, said)


def read_instructions(text: str) -> str:
    """The text itself, or that of the file behind an @."""
    if not text.startswith("@"):
        return text
    return _read(Path(text[1:]), "instructions").strip()


def read_sections(text: str) -> list[str]:
    """The lines of a file, or the names of a list. One name with a dot or a slash is that of a file."""
    lines = _read(Path(text), "sections").splitlines() if re.fullmatch(r"[^,:]*[./][^,:]*", text) else names(text)
    if not any(line.strip() for line in lines):
        raise UsageError(
            "settings.invalid",
            f"--sections {text!r} names no section: give a file of lines NAME: DESCRIPTION, or a,b,c",
            setting="sections",
        )
    return lines


def _read(path: Path, what: str) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "file.unreadable", f"cannot read the {what} in {path}: {getattr(error, 'strerror', error)}"
        ) from error


def read_choices(text: str, tasks: Sequence[Task]) -> tuple[str, ...]:
    """The possible answers: listed, the lines of the file behind an @, or the targets of the tasks to learn from."""
    from practicum.tasks.load import choices_from

    if text == "auto":
        return choices_from(tasks)
    if text.startswith("@"):
        lines = _read(Path(text[1:]), "choices").split("\n")
        choices = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    else:
        choices = tuple(names(text))
    if len(choices) < 2:
        raise UsageError("settings.invalid", f"--choices {text!r} names fewer than two answers", setting="choices")
    return choices


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Texts of the form name=value; the value may hold '=' itself. A dash in a name stands for an underscore, except
    before a dot, where the name of a variant stands.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError("settings.invalid", f"{option} {text!r} must read name=value")
        variant, dot, last = name.strip().rpartition(".")
        found[variant + dot + last.replace("-", "_")] = value.strip()
    return found


def names(text: str, option: str | None = None) -> list[str]:
    """The names in a text such as a,b,c, each once. Raises UsageError if the text of an option has none."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if option is not None and not found:
        raise UsageError("settings.invalid", f"{option} {text!r} names nothing")
    return found


def numbers(
    text: str, kind: Callable[[str], Number], valid: Callable[[Number], bool], option: str, rule: str
) -> list[Number]:
    """The numbers in a text such as 10,20,40, smallest first. `rule` says in the error what they must be."""
    try:
        found = sorted({kind(part) for part in names(text)})
    except ValueError:
        found = []
    if not found or not all(map(valid, found)):
        raise UsageError("settings.invalid", f"{option} {text!r} must be {rule}")
    return found
