"""Serialization of plain data between the process of an answer and the process of its tests.

A message is a line of JSON. Values are a flat list of nodes that refer to each other by number, so that deep, repeated
and cyclic values are supported. The reader rebuilds exactly the types listed here, from text only. Other values, such
as objects of a class that the answer defines, are handled by the `special` function of each process. This module uses
only the standard library.
"""

from __future__ import annotations

import ast
import enum
import importlib
import itertools
import json
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

MAX_MESSAGE = 2**26
"""Maximum length of a message (bytes)."""

Node = list[Any]
Message = dict[str, Any]


class Malformed(Exception):
    """Exception for received data that is not a valid message."""


def write(pipe: BinaryIO, message: Message) -> None:
    pipe.write(json.dumps(message).encode() + b"\n")
    pipe.flush()


def read(pipe: BinaryIO) -> Message:
    """Read the next message. Raises EOFError if the other process has ended, and Malformed for an invalid message."""
    line = pipe.readline(MAX_MESSAGE)
    if not line:
        raise EOFError
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no message: {error}") from error
    if not isinstance(message, dict):
        raise Malformed("no message")
    return message


# Immutable types without parts: (module, name) → (function from a value to a list of JSON values, function from these
# JSON values to the value). Integers are in base 16, because Python limits the number of decimal digits.
FIXED: dict[tuple[str, str], tuple[Callable[[Any], list[Any]], Callable[..., Any]]] = {
    ("builtins", "str"): (lambda v: [v], str),
    ("builtins", "float"): (lambda v: [v], float),
    ("builtins", "int"): (lambda v: [hex(v)], lambda v: int(v, 16)),
    ("builtins", "bytes"): (lambda v: [v.hex()], bytes.fromhex),
    ("builtins", "complex"): (lambda v: [v.real, v.imag], complex),
    ("builtins", "range"): (
        lambda v: [hex(v.start), hex(v.stop), hex(v.step)],
        lambda *v: range(*(int(number, 16) for number in v)),
    ),
    ("decimal", "Decimal"): (lambda v: [str(v)], lambda v: _library("decimal", "Decimal")(v)),
    ("fractions", "Fraction"): (
        lambda v: [hex(v.numerator), hex(v.denominator)],
        lambda n, d: _library("fractions", "Fraction")(int(n, 16), int(d, 16)),
    ),
    ("datetime", "timedelta"): (
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda *v: _library("datetime", "timedelta")(*v),
    ),
    ("datetime", "date"): (lambda v: [v.isoformat()], lambda v: _library("datetime", "date").fromisoformat(v)),
    ("datetime", "time"): (lambda v: [v.isoformat()], lambda v: _library("datetime", "time").fromisoformat(v)),
    ("datetime", "datetime"): (lambda v: [v.isoformat()], lambda v: _library("datetime", "datetime").fromisoformat(v)),
}
BUILD = {name: build for (_, name), (_, build) in FIXED.items()}

MUTABLE: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (list, dict, set, bytearray, deque, OrderedDict, Counter, defaultdict)
}
UNCHANGING: dict[str, type[Any]] = {"tuple": tuple, "frozenset": frozenset}
CONTAINERS = {*MUTABLE.values(), *UNCHANGING.values()}


def _library(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def contents(value: Any) -> list[Any]:
    """Return the contents of a container, or of an object of a class that both processes have, as a flat list with each
    key before its value."""
    if isinstance(value, dict):
        first = [value.default_factory] if isinstance(value, defaultdict) else []
        return [*first, *itertools.chain.from_iterable(value.items())]
    if isinstance(value, bytearray):
        return [bytes(value)]
    return list(value) if type(value) in CONTAINERS else attributes(value)


def attributes(value: object) -> list[Any]:
    """Return the names and values of an object's attributes, from its `__dict__` and its slots, as a flat list with
    each name before its value."""
    named = [slots for kind in type(value).__mro__ if (slots := kind.__dict__.get("__slots__", ()))]
    slots = [name for names in named for name in ((names,) if isinstance(names, str) else names)]
    held = {name: getattr(value, name) for name in slots if name[:2] != "__" and hasattr(value, name)}
    return [*itertools.chain.from_iterable({**held, **getattr(value, "__dict__", {})}.items())]


def fill(value: Any, held: list[Any]) -> None:
    """Replace the contents of a container, or of an object of a class that both processes have, by `held`, a flat list
    as `contents` returns it."""
    if isinstance(value, dict):
        value.clear()
        if isinstance(value, defaultdict):
            value.default_factory = held.pop(0)
        for key, item in zip(held[::2], held[1::2], strict=True):
            value[key] = item
    elif type(value) in CONTAINERS:
        value.clear()
        getattr(value, "update" if isinstance(value, set) else "extend")(held[0] if type(value) is bytearray else held)
    else:
        for name in attributes(value)[::2]:
            object.__delattr__(value, name)
        for name, attribute in zip(held[::2], held[1::2], strict=True):
            if name[:2] == "__" or callable(getattr(type(value), name, None)):  # the attribute would replace a method
                raise Malformed(f"no attribute: {name}")
            object.__setattr__(value, name, attribute)


class Packer:
    """Converter from values to nodes. `special(value, packer)` returns the node of a value that is not plain data.
    `peer_numbers`: id() of a value that the other process has sent → number of the value's node in the message of the
    other process."""

    def __init__(self, special: Callable[[Any, Packer], Node], peer_numbers: Mapping[int, int] = {}) -> None:
        self.special, self.peer_numbers = special, peer_numbers
        self.values: list[Any] = []
        self.nodes: list[Node] = []
        self._numbers: dict[int, int] = {}

    def ref(self, value: Any) -> Any:
        """Return the value itself if it is a JSON scalar, else a list with the number of its node."""
        kind = type(value)
        if value is None or kind in (bool, str, float) or (kind is int and -(2**63) < value < 2**63):
            return value
        number = self._numbers.setdefault(id(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return [number]

    def pack(self, roots: list[Any]) -> Message:
        """Return a message that holds these values."""
        refs = [self.ref(root) for root in roots]
        while len(self.nodes) < len(self.values):
            self.nodes.append(self.node(self.values[len(self.nodes)]))
        return {"roots": refs, "nodes": self.nodes}

    def node(self, value: Any) -> Node:
        if id(value) in self.peer_numbers:
            return ["same", self.peer_numbers[id(value)]]
        kind = type(value)
        if kind in CONTAINERS:
            return [kind.__name__, *map(self.ref, contents(value))]
        if fixed := FIXED.get((kind.__module__, kind.__name__)):
            return [kind.__name__, *fixed[0](value)]
        return self.special(value, self)

    def shared_node(self, value: Any) -> Node:
        """Return the node of an object of a class that both processes have."""
        name = type(value).__name__
        if isinstance(value, enum.Enum):
            return ["member", name, value.name]
        if isinstance(value, tuple):
            return ["named", name, *map(self.ref, value)]
        return ["made", name, *map(self.ref, contents(value))]


class Unpacker:
    """Converter from nodes to values. `special(node, unpacker)` returns the value of a node that is not plain data, and
    `shell(name)` returns an empty object of the class `name`, which both processes have. `peer_values`: the values of
    the message that this process sent before the received message; nodes of kind "same" refer to these values by
    number. `unpack` raises Malformed."""

    def __init__(
        self,
        special: Callable[[Node, Unpacker], Any],
        shell: Callable[[str], Any],
        peer_values: list[Any] | None = None,
    ) -> None:
        self.special, self.shell, self.peer_values = special, shell, peer_values or []

    def unpack(self, message: Message) -> list[Any]:
        try:
            self.nodes: list[Node] = message["nodes"]
            self.values: dict[int, Any] = {}
            filled = []
            for number, (kind, *rest) in enumerate(self.nodes):
                if kind in MUTABLE or kind == "made":
                    self.values[number] = MUTABLE[kind]() if kind in MUTABLE else self.shell(rest.pop(0))
                    filled.append((kind in ("list", "deque", "made"), number, rest))
            for number in range(len(self.nodes)):
                self._build(number)
            for _, number, rest in sorted(filled, key=lambda each: (not each[0], each[1])):
                fill(self.values[number], [self.value(ref) for ref in rest])
            return [self.value(ref) for ref in message["roots"]]
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise Malformed(f"no plain data: {error}") from error

    def value(self, ref: Any) -> Any:
        """Return the value of a reference whose node has been built."""
        return self.values[ref[0]] if isinstance(ref, list) else ref

    def _build(self, number: int) -> None:
        """Build the value of an immutable node. The values of all nodes that this node refers to are built first."""
        waiting, begun = [number], set()
        while waiting:
            top = waiting[-1]
            kind, *rest = self.nodes[top]
            if top in self.values:
                waiting.pop()
            elif top not in begun and kind not in BUILD and kind != "same":
                begun.add(top)
                waiting += (ref[0] for ref in rest if isinstance(ref, list) and ref[0] not in self.values)
            elif kind in BUILD:
                self.values[top] = BUILD[kind](*rest)
            elif kind == "same":
                self.values[top] = self.peer_values[rest[0]]
            elif kind in UNCHANGING:
                self.values[top] = UNCHANGING[kind](self.value(ref) for ref in rest)
            else:
                self.values[top] = self.special([kind, *rest], self)


def snapshot(unpacker: Unpacker) -> dict[int, list[Any]]:
    """Return the contents of all mutable values in the unpacked message, by node number."""
    changing = (number for number, node in enumerate(unpacker.nodes) if node[0] in MUTABLE or node[0] == "made")
    return {number: contents(unpacker.values[number]) for number in changing}


def changed(unpacker: Unpacker, before: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """Return the present contents of the values whose contents differ from `before`, by node number."""
    now = {number: contents(unpacker.values[number]) for number in before}
    return {
        number: held
        for number, held in now.items()
        if len(held) != len(before[number]) or not all(map(operator.is_, held, before[number]))
    }


def parses(code: str) -> bool:
    """Return whether the code parses as a module. The body of a function, for example, does not parse."""
    try:
        compiled(code, "answer.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def compiled(source: str | ast.Module, name: str) -> types.CodeType:
    """Compile Python source. The `__future__` imports of this module do not apply to the compiled source."""
    code: types.CodeType = compile(source, name, "exec", dont_inherit=True)
    return code
