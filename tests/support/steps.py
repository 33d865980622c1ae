"""Counts the steps of a backtracking search: its time depends on the machine."""

from __future__ import annotations

import re
import re._constants as op
import re._parser as parser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Then = Callable[[int], bool]


@dataclass
class Search:
    """A search as the engine of `re` makes it, without its shortcuts. `steps` counts the nodes of the pattern that it
    tried at a place of the text."""

    text: str
    steps: int = 0

    def run(self, pattern: re.Pattern[str]) -> int:
        """The steps until the first match, or to the end."""
        nodes = [*parser.parse(pattern.pattern)]
        any(self._all(nodes, 0, place, lambda end: True) for place in range(len(self.text) + 1))
        return self.steps

    def _all(self, nodes: list[Any], n: int, place: int, then: Then) -> bool:
        if n == len(nodes):
            return then(place)
        return self._one(nodes[n], place, lambda end: self._all(nodes, n + 1, end, then))

    def _one(self, node: tuple[Any, Any], place: int, then: Then) -> bool:
        self.steps += 1
        kind, value = node
        if kind in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY):
            return place < len(self.text) and _fits(kind, value, self.text[place]) and then(place + 1)
        if kind is op.BRANCH:
            return any(self._all([*branch], 0, place, then) for branch in value[1])
        if kind is op.SUBPATTERN:
            return self._all([*value[-1]], 0, place, then)
        if kind is op.AT:
            return self._is_at(value, place) and then(place)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return self._looks(value, place) is (kind is op.ASSERT) and then(place)
        least, most, repeated = value
        assert most is not op.MAXREPEAT, "a repetition without a bound"
        return self._repeat([*repeated], least, most, place, then, kind is op.MIN_REPEAT)

    def _repeat(self, nodes: list[Any], least: int, most: int, place: int, then: Then, lazy: bool) -> bool:
        if len(nodes) == 1 and nodes[0][0] in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY):
            ends = self._run(nodes[0], least, most, place)
            return any(map(then, ends if lazy else reversed([*ends])))

        def again(end: int) -> bool:
            return (end > place or least > 0) and self._repeat(nodes, max(least - 1, 0), most - 1, end, then, lazy)

        tries: list[Callable[[], bool]] = [lambda: most > 0 and self._all(nodes, 0, place, again)]
        if least == 0:
            tries.insert(0 if lazy else 1, lambda: then(place))
        return any(one() for one in tries)

    def _run(self, node: tuple[Any, Any], least: int, most: int, place: int) -> Iterator[int]:
        """The places after `least` to `most` repetitions of one character."""
        for count in range(most + 1):
            if count >= least:
                yield place + count
            self.steps += 1
            if place + count >= len(self.text) or not _fits(*node, self.text[place + count]):
                return

    def _looks(self, value: tuple[int, Any], place: int) -> bool:
        direction, nodes = value
        if direction > 0:
            return self._all([*nodes], 0, place, lambda end: True)
        width = nodes.getwidth()[0]
        return place >= width and self._all([*nodes], 0, place - width, lambda end: end == place)

    def _is_at(self, kind: Any, place: int) -> bool:
        text = self.text
        if kind is op.AT_BEGINNING:
            return place == 0
        if kind is op.AT_END:
            return place == len(text) or text[place:] == "\n"
        sides = [0 <= n < len(text) and (text[n].isalnum() or text[n] == "_") for n in (place - 1, place)]
        return (sides[0] != sides[1]) is (kind is op.AT_BOUNDARY)


def bounded(pattern: re.Pattern[str]) -> bool:
    """Whether every repetition in a pattern has a bound."""

    def holds(node: Any) -> bool:
        if isinstance(node, tuple) and node and node[0] in (op.MAX_REPEAT, op.MIN_REPEAT):
            return node[1][1] is not op.MAXREPEAT and holds(node[1][2])
        return not isinstance(node, tuple | list | parser.SubPattern) or all(map(holds, node))

    return holds(parser.parse(pattern.pattern))


def _fits(kind: Any, value: Any, character: str) -> bool:
    code = ord(character)
    if kind is op.LITERAL:
        return bool(code == value)
    if kind is op.NOT_LITERAL:
        return bool(code != value)
    if kind is op.ANY:
        return character != "\n"
    negated = value[0][0] is op.NEGATE
    return any(_in(part, code, character) for part in value if part[0] is not op.NEGATE) is not negated


def _in(part: tuple[Any, Any], code: int, character: str) -> bool:
    kind, value = part
    if kind is op.LITERAL:
        return bool(code == value)
    if kind is op.RANGE:
        return bool(value[0] <= code <= value[1])
    name = str(value).removeprefix("CATEGORY_")
    held = {
        "WORD": character.isalnum() or character == "_", "SPACE": character.isspace(), "DIGIT": character.isdecimal(),
    }[name.removeprefix("NOT_")]  # fmt: skip
    return held is not name.startswith("NOT_")
