"""Conversion of command-line arguments to arguments of the library."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from practicum.cli.options import METHOD_SETTINGS
from practicum.core.errors import UsageError
from practicum.core.files import read_text
from practicum.core.trust import Trust, least
from practicum.core.types import Task
from practicum.core.visible import visible_line
from practicum.core.words import in_number, quantity

if TYPE_CHECKING:
    from practicum.tasks.traces import Traces, TraceStream

Number = TypeVar("Number", int, float)

PROBLEMS_SHOWN = 20
"""Number of problems in traces that are printed one by one."""


def config_values(options: Mapping[str, Any], tasks: Sequence[Task] | None = ()) -> dict[str, Any]:
    """Return keywords of `Config` from the options of a command. `tasks` are the tasks to learn from: for
    `--choices auto`, the targets of these tasks become the choices. If `tasks` is None, the value of the choices stays
    `auto`."""
    values = {name: value for name, value in options.items() if value not in (None, [])}
    for name, value in values.items():
        if isinstance(value, str) and not value.strip() and name != "instructions":
            raise UsageError(
                "settings.invalid",
                f"--{name.replace('_', '-')} is empty: pass a value, or omit the option",
                setting=name,
            )
    settings: dict[str, Any] = dict(pairs(values.pop("settings", ()), "--set"))
    for name in METHOD_SETTINGS:
        if name in values:
            if name in settings:
                raise UsageError(
                    "settings.conflict", f"setting {name!r} is passed twice, as an option and with --set", setting=name
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
    """Return the tasks of a file or of a space; without a path, no tasks. `fields` are the names of the fields in a
    file (--fields).

    The tasks of a space are the outcomes that `scorer` (None: the default scorer) can score. With `held_out`, the tasks
    are only the outcomes that the space holds out from learning. Raise UsageError for a space without such outcomes.

    If the file has another shape than practicum's, print on standard error how it was read. Raise TaskFileError for an
    invalid file.
    """
    from practicum.store.folder import is_run
    from practicum.tasks.load import load_task_file, parse_fields

    names = parse_fields(fields) if fields is not None else None
    if path is None:
        return []
    if is_run(path):
        return _scorable(read_outcomes(path, trust, trust_tools, held_out), path, scorer)
    loaded = load_task_file(path, names, trust)
    if (shape := loaded.shape) is not None:
        number = quantity(len(loaded.tasks), "task")
        print(visible_line(f"read `{shape.name}` in {path}: {number}; {shape.target}"), file=sys.stderr)
    return loaded.tasks


def read_outcomes(path: Path, trust: Trust, trust_tools: bool | None, held_out: bool = False) -> list[Task]:
    """Return the outcomes of a space as tasks with recorded attempts. No task gets a higher trust level than
    `trust`."""
    from practicum.session.outcome_tasks import load_outcomes

    tasks = load_outcomes(path, held_out=held_out, trust_tools=bool(trust_tools))
    return [replace(task, trust=least(task.trust, trust)) for task in tasks]


def _scorable(tasks: list[Task], path: Path, scorer: str | None) -> list[Task]:
    """Return the tasks that a scorer can score: all tasks, or only tasks with a right answer if the scorer needs right
    answers. Print the number of omitted tasks on standard error."""
    from practicum.tasks.scoring.registry import COMPARING

    if scorer is not None and scorer not in COMPARING:
        return tasks
    scorable = [task for task in tasks if task.target is not None]
    if not scorable:
        raise UsageError(
            "run.no_data",
            f"no outcome of {path} has a right answer, which the scorer needs: report right answers, choose a scorer "
            f"that needs no right answer (--scorer judge), or learn from the recorded answers (practicum learn "
            f"--from {path})",
        )
    if left := len(tasks) - len(scorable):
        lack = f"{left:,} of {quantity(len(tasks), 'outcome')} in {path} {in_number(left, 'lack[s|]')} the right answer"
        print(visible_line(f"left out: {lack} that the scorer needs"), file=sys.stderr)
    if by_users := sum(task.trust == "user" for task in scorable):
        origin = f"{by_users:,} of {quantity(len(scorable), 'right answer')} in {path} [was|were] reported by end users"
        print(visible_line(f"{in_number(by_users, origin)} and not reviewed"), file=sys.stderr)
    return scorable


def open_traces(address: str, trust: Trust, trust_scores: bool, fields: str | None) -> TraceStream:
    """Open recorded attempts of agents as a stream of tasks. After the last task, print on standard error the number of
    traces, the evidence about their outcomes, and the problems found while reading them."""
    from practicum.tasks.load import parse_fields
    from practicum.tasks.traces import TraceStream
    from practicum.tasks.traces.sources import shown
    from practicum.tasks.traces.trace import signals_text

    def print_summary(traces: Traces) -> None:
        formats = ", ".join(f"{count} of {name}" for name, count in sorted(traces.formats.items()))
        lines = [f"{quantity(sum(traces.formats.values()), 'trace')} in {shown(address)}: {formats}"]
        if traces.evidence:
            lines.append(f"evidence about the outcomes: {signals_text(traces.evidence)}")
        lines += [f"could not be read in full: {problem}" for problem in traces.problems[:PROBLEMS_SHOWN]]
        # A reader of traces describes a limited number of problems, and only counts the further problems.
        if (more := len(traces.problems) - PROBLEMS_SHOWN) > 0:
            lines.append(f"and {quantity(more, 'more such line')}")
        if traces.faults:
            lines.append(f"in total, {quantity(traces.faults, 'part')} of the traces could not be read in full")
        if traces.unscored:
            lines.append(
                f"the score or right answer of {quantity(traces.unscored, 'trace')} is ignored, because the traces are "
                "foreign: pass --trust own if the traces are yours, or --trust-scores to use the scores"
            )
        print(*map(visible_line, lines), sep="\n", file=sys.stderr)

    names = None if fields is None else parse_fields(fields)
    return TraceStream(address, trust, trust_scores, print_summary, names)


def read_instructions(text: str) -> str:
    """Return the instructions: `text` itself, or for `@FILE` the text of the file."""
    if not text.startswith("@"):
        return text
    return _read(Path(text[1:]), "instructions").strip()


def read_sections(text: str) -> list[str]:
    """Return the lines of a file, or the names in a list such as a,b,c. A text without a comma that contains a dot or a
    slash is the path of a file."""
    lines = _read(Path(text), "sections").splitlines() if re.fullmatch(r"[^,:]*[./][^,:]*", text) else names(text)
    if not any(line.strip() for line in lines):
        raise UsageError(
            "settings.invalid",
            f"--sections {text!r} names no section: pass a file with lines NAME: DESCRIPTION, or names as a,b,c",
            setting="sections",
        )
    return lines


def _read(path: Path, noun: str) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "file.unreadable", f"cannot read the {noun} in {path}: {getattr(error, 'strerror', error)}"
        ) from error


def read_choices(text: str, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return the possible answers: the listed names, the lines of `@FILE`, or for `auto` the targets of `tasks`."""
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
    """Parse texts of the form name=value into a dict. The value may contain '='. Dashes in the name of a setting
    become underscores. The name of a variant, which is before a dot, keeps its dashes.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError("settings.invalid", f"{option} {text!r} must have the form name=value")
        variant, dot, last = name.strip().rpartition(".")
        values[variant + dot + last.replace("-", "_")] = value.strip()
    return values


def names(text: str, option: str | None = None) -> list[str]:
    """Return the distinct names in a text such as a,b,c. If `option`, the name of an option, is passed, raise
    UsageError for a text without a name."""
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if option is not None and not parts:
        raise UsageError("settings.invalid", f"{option} {text!r} contains no name: pass names as a,b,c")
    return parts


def numbers(
    text: str, kind: Callable[[str], Number], valid: Callable[[Number], bool], option: str, rule: str
) -> list[Number]:
    """Return the numbers in a text such as 10,20,40, in ascending order. Raise UsageError if a number is not
    `valid`; `rule` describes valid numbers in the message."""
    try:
        values = sorted({kind(part) for part in names(text)})
    except ValueError:
        values = []
    if not values or not all(map(valid, values)):
        raise UsageError("settings.invalid", f"{option} {text!r} must be {rule}")
    return values
