"""Output of commands: text and tables for people, one JSON object for programs, errors on one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from practicum.cli.console import RESULT, is_utf8
from practicum.cli.options import as_options
from practicum.core.counts import Count, counted
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.types import Usage
from practicum.core.visible import visible, visible_json, visible_line
from practicum.core.words import in_number, quantity, usage_text

T = TypeVar("T")

LONGEST_WORD = 16
"""Maximum length (characters) of a word that widens a column of a table."""

LONGEST_LINE = 4_000
"""Maximum length (characters) of a line of a table if the output is not a terminal."""


class Printer(Console):
    """Printer of a command's output. Text for people goes to standard output. With `--json`, this text goes to standard
    error, because standard output has one JSON object. Brackets and colons are printed unchanged: names of folders and
    learned texts may contain them. Invisible and control characters are escaped, in JSON too (`core.visible`).
    """

    def __init__(self, as_json: bool) -> None:
        plain = not sys.stdout.isatty()
        super().__init__(stderr=as_json, highlight=False, markup=False, emoji=False, soft_wrap=plain)
        self.as_json = as_json

    def print(self, *objects: Any, **kwargs: Any) -> None:
        """Print texts and objects of `rich`."""
        super().print(*(visible(x) if isinstance(x, str) else x for x in objects), **kwargs)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which `main` treats as a normal end. `rich` itself would exit with an error."""
        raise BrokenPipeError

    def result(self, value: Mapping[str, Any]) -> None:
        """With `--json`, add values to the command's JSON object, which is printed when the command ends."""
        if self.as_json and (collected := RESULT.get()) is not None:
            collected.update(value)
        elif self.as_json:
            print_json(value)

    def announce(self, value: Mapping[str, Any]) -> None:
        """With `--json`, print a JSON object at once, for commands that run until they are stopped."""
        if self.as_json:
            print_json(value)
            sys.stdout.flush()

    def each(
        self, head: Mapping[str, Any], name: str, values: Iterable[T], as_json: Callable[[T], Mapping[str, Any]]
    ) -> Iterator[T]:
        """Yield the values. With `--json`, write each value at once as an item of the list `name` in one JSON object,
        so that a long list is never in memory as a whole.
        """
        write = sys.stdout.write if self.as_json else lambda _: 0
        write(f"{_as_json_text(head)[:-1]}{', ' if head else ''}{json.dumps(name)}: [")
        for number, value in enumerate(values):
            write((", " if number else "") + (_as_json_text(as_json(value)) if self.as_json else ""))
            yield value
        write("]}\n")

    def item(self, text: str, style: str | None = None) -> None:
        """Print one item of a list: a text that may be long. On a terminal, long lines are wrapped, and the wrapped
        parts are indented, so that the beginning of each item is visible."""
        text = visible(text)
        for line in text.split("\n") if self.is_terminal else ():
            words = line.lstrip()
            margin = " " * (len(line) - len(words))
            rows = Text(words).wrap(self, max(self.width - len(margin) - 2, 20))
            lines = [f"{margin}{'  ' if n else ''}{row.plain.rstrip()}" for n, row in enumerate(rows)]
            self.print("\n".join(lines), style=style)
        if not self.is_terminal:
            self.print(text, style=style)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], text: Sequence[str] = (), bold: str = ""
    ) -> None:
        """Print a table. Columns named in `text` are aligned left, the other columns right. None is printed as a dash.
        Rows with a text in the column `bold` are bold. On a terminal that is too narrow, each row becomes a text with
        the names of the columns. If the output is not a terminal, each row is one line."""
        cells = [["-" if cell is None else visible_line(str(cell)) for cell in row] for row in rows]
        # A column is at least as wide as its longest word, up to LONGEST_WORD.
        min_widths = [
            min(max((len(word) for cell in (name, *column) for word in cell.split()), default=1), LONGEST_WORD)
            for name, column in zip(columns, zip(*cells, strict=True) if cells else [()] * len(columns), strict=True)
        ]
        if self.is_terminal and sum(min_widths) + 2 * len(columns) > self.width:
            for row in cells:
                filled = [(name, cell) for name, cell in zip(columns, row, strict=True) if cell not in ("", "-")]
                self.item(" · ".join(f"{name} {cell}".strip() for name, cell in filled))
            return
        table = Table(box=SIMPLE_HEAD)
        for name, least in zip(columns, min_widths, strict=True):
            table.add_column(name, justify="left" if name in text else "right", overflow="fold", min_width=least)
        for row in cells:
            table.add_row(*row, style="bold" if bold and row[columns.index(bold)] else "")
        if self.is_terminal:
            self.print(table)
            return
        table.box, table.padding = None, (0, 2, 0, 0)
        width = self.measure(table, options=self.options.update(max_width=LONGEST_LINE)).maximum
        for line in self.render_lines(table, self.options.update(width=min(width, LONGEST_LINE)), pad=False):
            self.print("".join(segment.text for segment in line).rstrip())
        self.print()

    def scores(self, scores: Mapping[str, float]) -> None:
        """Print the scores of a run, one per line."""
        from practicum.session.result import SCORE_NAMES

        for name, score in scores.items():
            self.print(f"{SCORE_NAMES.get(name, name)}: {score:.1%}")

    def usage(
        self, usage: Usage, seconds: float | None = None, hits: int = 0, by_role: Mapping[str, Usage] | None = None
    ) -> None:
        """Print the usage, in total and by role. `hits` is the number of results that were reused from the journal."""
        time = "" if seconds is None else f" in {seconds:.1f} s"
        journal = f"; {quantity(hits, 'earlier result')} reused at no cost" if hits else ""
        self.print(f"usage: {usage_text(usage)}{time}{journal}")
        if by_role and len(by_role) > 1:
            for role, part in sorted(by_role.items()):
                self.print(f"  {role}: {usage_text(part)}")

    def counts(self, counts: Mapping[str, int], refused: int = 0) -> None:
        """Print the counts of a run (`core.counts`). Counts that need attention come first and are marked with `!`."""
        listed = counted(counts)
        # KNOWN_TO_REVIEW already counts the refused edits that were rejected in review or that wait for review.
        refused = max(refused - counts.get(Count.KNOWN_TO_REVIEW, 0), 0)
        if listed or refused:
            marked = " (! marks counts that need your attention)" if listed and listed[0].attention else ""
            self.print(f"counted{marked}:")
        for count in listed:
            self.print(f"  {'!' if count.attention else ' '} {as_options(count.text(counts[count]))}")
        if refused:
            edits = in_number(refused, "edit[|s] refused, because [it does|they do] not apply to the context")
            self.print(f"    {refused:,} {edits}")


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, unless `--yes` was passed. Raise UsageError if standard input is not a terminal."""
    import typer

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("confirmation.missing", f"{question} Standard input is not a terminal: pass --yes to confirm")
    typer.confirm(visible(question), abort=True, err=True)


def save_json(path: Path, value: Mapping[str, Any]) -> None:
    """Save a result as a JSON file. Create its folder if it does not exist."""
    write_atomic(path, visible_json(json.dumps(value, indent=1, ensure_ascii=False)) + "\n")


def print_json(value: Mapping[str, Any]) -> None:
    """Print the JSON object of a command with --json."""
    sys.stdout.write(_as_json_text(value) + "\n")


def print_error(message: str) -> None:
    """Print an error or warning on standard error, usually as one line."""
    print(f"practicum: {visible(message)}", file=sys.stderr)


def _as_json_text(value: Mapping[str, Any]) -> str:
    # Escape characters that the console cannot encode, so that no character is lost.
    return visible_json(json.dumps(value, ensure_ascii=not is_utf8(sys.stdout.encoding)))
