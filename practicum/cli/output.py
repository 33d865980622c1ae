"""How commands print: text and tables for people, one JSON object for programs, errors on one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from practicum.cli.console import RESULT, is_utf8
from practicum.cli.options import as_options
from practicum.core.counts import Count, counted
from practicum.core.errors import UsageError
from practicum.core.files import write_atomic
from practicum.core.visible import visible, visible_json, visible_line
from practicum.core.words import in_number, quantity, usage_text

if TYPE_CHECKING:
    from practicum.core.types import Usage

T = TypeVar("T")

LONGEST_WORD = 16
"""Characters of a word that a column of a table makes room for."""

LONGEST_LINE = 4_000
"""Characters of the longest line of a table, where no terminal limits it."""


class Printer(Console):
    """What a command prints. People read standard output, or standard error where `--json` keeps standard output for
    one JSON object. Brackets and colons are printed as they are: folders and learned texts may hold any. What hides or
    steers in a text is escaped, in JSON too (`core.visible`).
    """

    def __init__(self, as_json: bool) -> None:
        plain = not sys.stdout.isatty()
        super().__init__(stderr=as_json, highlight=False, markup=False, emoji=False, soft_wrap=plain)
        self.as_json = as_json

    def print(self, *objects: Any, **how: Any) -> None:
        """Print texts and what `rich` draws."""
        super().print(*(visible(x) if isinstance(x, str) else x for x in objects), **how)

    def result(self, value: Mapping[str, Any]) -> None:
        """The result as one JSON object, if `--json` asks for it."""
        if self.as_json and (held := RESULT.get()) is not None:
            held.update(value)
        elif self.as_json:
            print_json(value)

    def each(
        self, head: Mapping[str, Any], name: str, values: Iterable[T], as_json: Callable[[T], Mapping[str, Any]]
    ) -> Iterator[T]:
        """Pass values through as they come. If `--json` asks for it, each is written at once, as part of the list
        `name` of one JSON object: a long list is never in memory as a whole.
        """
        write = sys.stdout.write if self.as_json else lambda _: 0
        write(f"{_json(head)[:-1]}{', ' if head else ''}{json.dumps(name)}: [")
        for number, value in enumerate(values):
            write((", " if number else "") + (_json(as_json(value)) if self.as_json else ""))
            yield value
        write("]}\n")

    def item(self, text: str, style: str | None = None) -> None:
        """One of several texts that may be long. On a terminal, what does not fit into a line is indented below it, so
        that only items begin at the margin.
        """
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
        """A table. Columns named in `text` are aligned left, the others right; a cell without a value (None) is a dash;
        rows with a text in the column `bold` are bold. On a terminal that is too narrow each row becomes a text that
        names the columns; outside a terminal it is one line.
        """
        cells = [["-" if cell is None else visible_line(str(cell)) for cell in row] for row in rows]
        # No column is narrower than its longest word, if that is not very long.
        narrowest = [
            min(max((len(word) for cell in (name, *column) for word in cell.split()), default=1), LONGEST_WORD)
            for name, column in zip(columns, zip(*cells, strict=True) if cells else [()] * len(columns), strict=True)
        ]
        if self.is_terminal and sum(narrowest) + 2 * len(columns) > self.width:
            for row in cells:
                filled = [(name, cell) for name, cell in zip(columns, row, strict=True) if cell not in ("", "-")]
                self.item(" · ".join(f"{name} {cell}".strip() for name, cell in filled))
            return
        table = Table(box=SIMPLE_HEAD)
        for name, least in zip(columns, narrowest, strict=True):
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
        """The scores of a run, a line each."""
        from practicum.session.result import SCORE_NAMES

        for name, score in scores.items():
            self.print(f"{SCORE_NAMES.get(name, name)}: {score:.1%}")

    def usage(
        self, usage: Usage, seconds: float | None = None, hits: int = 0, by_role: Mapping[str, Usage] | None = None
    ) -> None:
        """What was paid for, in all and for each role; `hits` counts results that came from the journal."""
        time = "" if seconds is None else f" in {seconds:.1f} s"
        journal = f"; {quantity(hits, 'result')} kept from before, not paid for again" if hits else ""
        self.print(f"usage: {usage_text(usage)}{time}{journal}")
        if by_role and len(by_role) > 1:
            for role, part in sorted(by_role.items()):
                self.print(f"  {role}: {usage_text(part)}")

    def counts(self, counts: Mapping[str, int], refused: int = 0) -> None:
        """What was counted beside the scores (`core.counts`); what needs attention comes first, marked with `!`."""
        found = counted(counts)
        # What a review knows has a counter of its own.
        refused = max(refused - counts.get(Count.KNOWN_TO_REVIEW, 0), 0)
        if found or refused:
            marked = " (! marks what needs your attention)" if found and found[0].attention else ""
            self.print(f"counted{marked}:")
        for count in found:
            self.print(f"  {'!' if count.attention else ' '} {as_options(count.said(counts[count]))}")
        if refused:
            edits = in_number(refused, "edit[|s] refused, because [it does|they do] not fit the context")
            self.print(f"    {refused:,} {edits}")


def confirm(question: str, yes: bool) -> None:
    """Ask whether to go on, unless `--yes` was given. Raises UsageError where nobody can answer."""
    import typer

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("confirmation.missing", f"{question} Nobody can answer here: add --yes to go on")
    typer.confirm(visible(question), abort=True, err=True)


def save_json(path: Path, value: Mapping[str, Any]) -> None:
    """Save a result as JSON in a folder, which is made if need be."""
    write_atomic(path, visible_json(json.dumps(value, indent=1, ensure_ascii=False)) + "\n")


def print_json(value: Mapping[str, Any]) -> None:
    """The one JSON object of a command with --json."""
    sys.stdout.write(_json(value) + "\n")


def print_error(message: str) -> None:
    """The text that says why a command failed, nearly always one line."""
    print(f"practicum: {visible(message)}", file=sys.stderr)


def _json(value: Mapping[str, Any]) -> str:
    # Escaped where a console could not show it, so that nothing is lost.
    return visible_json(json.dumps(value, ensure_ascii=not is_utf8(sys.stdout.encoding)))
