"""The parts and the costs of a method, read from the method itself, so that no list can become outdated.

A seam is named by the function that fills it, and a block that wraps others by itself and the others in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

from practicum import methods
from practicum.engine.loop import sequential

SEAMS = ("sample", "act", "attempt", "reflect", "update", "accept")
"""The six functions of a method, in the order of a step."""

OURS = ("practicum.methods", "practicum.plugins", "practicum.engine.asynchronous")
"""The packages of blocks. Other functions that a block holds are details of it."""


@dataclass(frozen=True)
class Anatomy:
    """A method: its paper ("" if it has none), a line about it, the blocks in its seams, and its costs."""

    name: str
    paper: str
    about: str
    seams: Mapping[str, str]
    costs: str

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {"paper": self.paper, "about": self.about, "seams": dict(self.seams), "costs": self.costs}


def anatomy(name: str, settings: Mapping[str, Any]) -> Anatomy:
    """A method with these settings. Raises UsageError for a name or setting that is not known."""
    made = methods.build(name, settings)
    about, paper = _line_and_paper(methods.about(name))
    seams = {seam: composed(getattr(made, seam)) for seam in SEAMS}
    if made.schedule is not sequential:
        seams["schedule"] = composed(made.schedule)
    return Anatomy(name, paper, about, seams, made.costs)


def _line_and_paper(text: str) -> tuple[str, str]:
    """The line about a method, and the paper in parentheses at its end."""
    found = re.fullmatch(r"(.*?) \(([^()]*(?:section|et al)[^()]*)\)\.", text)
    if found is None:
        return text, ""
    sources = [part for part in found[2].split("; ") if not part.startswith("METHODS")]
    return f"{found[1]}.", "; ".join(sources)


def composed(block: Any) -> str:
    """A block with the blocks it wraps, as in "within_budget(deduplicated(Curator))"."""
    if isinstance(block, partial):
        return composed(block.func)
    inner = list(dict.fromkeys(composed(held) for held in _held(block)))
    return _name(block) + (f"({', '.join(inner)})" if inner else "")


def _name(block: Any) -> str:
    """The name of the function that made the block, or of its class."""
    made = getattr(block, "__qualname__", type(block).__qualname__)
    return str(made).split(".", 1)[0]


def _held(block: Any) -> Iterator[Any]:
    """The blocks that a block holds: in its closure where it is a function, in its fields where it is an object."""
    values = [getattr(block, field.name) for field in fields(block)] if is_dataclass(block) else []
    for cell in getattr(block, "__closure__", None) or ():
        with suppress(ValueError):  # a variable without a value
            values.append(cell.cell_contents)
    for value in values:
        of = value.func if isinstance(value, partial) else value
        home = getattr(of, "__module__", type(of).__module__) or ""
        if callable(value) and not isinstance(value, type) and home.startswith(OURS):
            # A function within the one that made the block is a part of it.
            if _name(of) == _name(block):
                yield from _held(of)
            else:
                yield value
