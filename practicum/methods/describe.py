"""Parts and costs of a method, read from the method itself, so that the description cannot become outdated.

A seam is described by the name of the function that fills it. A block that wraps other blocks is described by its name,
with the other blocks in parentheses.
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

SEAMS = ("show", "sample", "act", "attempt", "reflect", "update", "accept")
"""The functions of a method that are described, in the order of a step."""

OURS = ("practicum.methods", "practicum.plugins", "practicum.engine.asynchronous")
"""Packages that contain blocks. If a block holds a function from another package, the function is not described."""


@dataclass(frozen=True)
class Recommendation:
    """Advice for a method: when to use the method, and a measured result (docs/results.md)."""

    when: str
    measured: str


RECOMMENDED: Mapping[str, Recommendation] = {
    "episodes": Recommendation(
        "similar tasks have the same answer, right answers are known, or the model is very small",
        "bank messages with a 1.5B model: 16.7% before, 97.9% after",
    ),
    "ace": Recommendation(
        "rules reach further than similar tasks, and people should read and edit the playbook",
        "bank messages with a 1.5B model: 18.8% before, 81.9% after (three seeds)",
    ),
    "combee": Recommendation(
        "many tasks or traces, and little time",
        "17 times faster than one task at a time, with 40 attempts at once",
    ),
    "unified": Recommendation(
        "agents with tools, or tasks of several kinds",
        "charts of WorkBench with a 1.5B model: 0% before, 58% after (three seeds)",
    ),
    "reasoning_bank": Recommendation(
        "strategies matter more than facts, and several attempts at a task are affordable",
        "not measured with a capable model",
    ),
}
"""Recommended methods, in the order of the manual (docs/learn/methods.md)."""


@dataclass(frozen=True)
class Anatomy:
    """Description of a method: its paper ("" without a paper), a line about the method, the blocks in its seams, and
    its costs."""

    name: str
    paper: str
    about: str
    seams: Mapping[str, str]
    costs: str

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return {"paper": self.paper, "about": self.about, "seams": dict(self.seams), "costs": self.costs}


def anatomy(name: str, settings: Mapping[str, Any]) -> Anatomy:
    """Describe a method with these settings. Raises UsageError for an unknown name or setting."""
    method = methods.build(name, settings)
    about, paper = _line_and_paper(methods.about(name))
    seams = {seam: composed(getattr(method, seam)) for seam in SEAMS}
    if method.schedule is not sequential:
        seams["schedule"] = composed(method.schedule)
    return Anatomy(name, paper, about, seams, method.costs)


def _line_and_paper(text: str) -> tuple[str, str]:
    """Split a description into the line about a method, and the paper in parentheses at its end."""
    match = re.fullmatch(r"(.*?) \(([^()]*(?:section|et al)[^()]*)\)\.", text)
    if match is None:
        return text, ""
    sources = [part for part in match[2].split("; ") if not part.startswith("METHODS")]
    return f"{match[1]}.", "; ".join(sources)


def composed(block: Any) -> str:
    """Return the name of a block, with the names of the blocks that it wraps, as in
    "within_budget(deduplicated(Curator))"."""
    if isinstance(block, partial):
        return composed(block.func)
    inner = list(dict.fromkeys(composed(inner_block) for inner_block in _inner_blocks(block)))
    return _name(block) + (f"({', '.join(inner)})" if inner else "")


def _name(block: Any) -> str:
    """Return the name of the function that made the block, or of the block's class."""
    name = getattr(block, "__qualname__", type(block).__qualname__)
    return str(name).split(".", 1)[0]


def _inner_blocks(block: Any) -> Iterator[Any]:
    """Yield the blocks that a block holds: in the closure of a function, or in the fields of an object."""
    values = [getattr(block, field.name) for field in fields(block)] if is_dataclass(block) else []
    for cell in getattr(block, "__closure__", None) or ():
        with suppress(ValueError):  # a variable without a value
            values.append(cell.cell_contents)
    for value in values:
        function = value.func if isinstance(value, partial) else value
        home = getattr(function, "__module__", type(function).__module__) or ""
        if callable(value) and not isinstance(value, type) and home.startswith(OURS):
            # A function within the function that made the block is a part of the block.
            if _name(function) == _name(block):
                yield from _inner_blocks(function)
            else:
                yield value
