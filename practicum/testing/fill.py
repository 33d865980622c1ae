"""JSON values that fit a schema, made of pseudo-words: a function of the schema and a seed alone.

It knows the part of JSON schema that structured outputs use: objects, arrays, unions, references, bounds. The same
schema and seed always give the same value, and different seeds give different words.
"""

import math
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

Schema = dict[str, Any]

_STARTS = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va")
_ENDS = ("lan", "rem", "sil", "ton", "dus", "mak", "nel", "pir", "gos", "rut", "val", "zen", "bis", "kor")
_WORDS = tuple(start + end for start in _STARTS for end in _ENDS)
_MAX_ITEMS = 2
_SPAN = 100  # the width of a number's range if the schema leaves a side open
_MAX_NESTED_REFS = 2


def fill(schema: Schema, seed: int) -> Any:
    """A JSON value that fits the schema."""
    return _Filler(schema, Random(seed)).value(schema)


def pseudo_words(rng: Random) -> str:
    """Five words."""
    return " ".join(rng.choices(_WORDS, k=5))


class _TooDeep(Exception):
    """A reference was followed inside itself too often: a caller that has another choice should take it."""


class _Filler:
    def __init__(self, root: Schema, rng: Random) -> None:
        self._root, self._rng = root, rng
        self._open_refs: Counter[str] = Counter()

    def value(self, schema: Schema) -> Any:
        if "$ref" in schema:
            return self._referred(schema["$ref"])
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if alternatives := schema.get("anyOf") or schema.get("oneOf"):
            return self._first_possible(alternatives)
        match schema.get("type", "object" if "properties" in schema else "string"):
            case list(kinds):
                return self._first_possible([{**schema, "type": kind} for kind in kinds])
            case "object":
                return self._object(schema)
            case "array" if "prefixItems" in schema:
                return [self.value(inner) for inner in schema["prefixItems"]]
            case "array":
                return self._array(schema)
            case "string":
                return self._string(schema)
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case kind:
                raise ValueError(f"a schema has the unknown type {kind!r}")

    def _referred(self, ref: str) -> Any:
        if self._open_refs[ref] == _MAX_NESTED_REFS:
            raise _TooDeep(ref)
        target = self._root
        for key in ref.removeprefix("#").split("/")[1:]:
            target = target[key.replace("~1", "/").replace("~0", "~")]
        self._open_refs[ref] += 1
        try:
            return self.value(target)
        finally:
            self._open_refs[ref] -= 1

    def _first_possible(self, alternatives: list[Schema]) -> Any:
        for alternative in sorted(alternatives, key=lambda each: each.get("type") == "null"):
            with suppress(_TooDeep):
                return self.value(alternative)
        raise _TooDeep

    def _object(self, schema: Schema) -> dict[str, Any]:
        filled = {}
        for name, inner in schema.get("properties", {}).items():
            try:
                filled[name] = self.value(inner)
            except _TooDeep:
                if name in schema.get("required", ()):
                    raise
        return filled

    def _array(self, schema: Schema) -> list[Any]:
        fewest = schema.get("minItems", 0)
        most = min(_MAX_ITEMS, schema.get("maxItems", _MAX_ITEMS))
        filled: list[Any] = []
        try:
            for _ in range(max(fewest, self._rng.randint(min(1, most), most))):
                filled.append(self.value(schema.get("items", {})))
        except _TooDeep:
            if len(filled) < fewest:
                raise
        return filled

    def _string(self, schema: Schema) -> str:
        text = pseudo_words(self._rng)
        while len(text) < schema.get("minLength", 0):
            text += " " + pseudo_words(self._rng)
        return text[: schema.get("maxLength")]

    def _number(self, schema: Schema, whole: bool) -> float:
        """A number in the bounds; one that is not whole is strictly inside, so that it fits exclusive bounds too."""
        lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
        highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
        high = min(highs, default=max(lows, default=0) + _SPAN)
        low = max(lows, default=high - _SPAN)
        if not whole:
            return low + (high - low) * self._rng.randint(1, 999) / 1000
        least = math.floor(low) + 1 if low == schema.get("exclusiveMinimum") else math.ceil(low)
        most = math.ceil(high) - 1 if high == schema.get("exclusiveMaximum") else math.floor(high)
        return self._rng.randint(least, most)
