"""What the simulated model says: a function of the request alone, made of pseudo-words.

Where the request asks for a shape, by a response format or a tool, the answer is a JSON value that fits the
schema. The part of JSON schema that structured outputs use is known: objects, arrays, unions, references,
bounds. The same schema and seed always give the same value, and different seeds give different words.
"""

import json
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

Schema = dict[str, Any]

_STARTS = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va")
_ENDS = ("lan", "rem", "sil", "ton", "dus", "mak", "nel", "pir", "gos", "rut", "val", "zen", "bis", "kor")
_WORDS = tuple(start + end for start in _STARTS for end in _ENDS)
_MAX_ITEMS = 2
_SPAN = 100  # the width of a number's range where the schema leaves a side open
_MAX_NESTED_REFS = 2


class TokenUsage(NamedTuple):
    """The tokens of one call."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Completion:
    """What the assistant says: content, or the arguments of a call of a tool."""

    text: str
    tool: str | None = None
    finish: str = "stop"

    def spoiled(self, kind: str) -> "Completion":
        if kind == "cut":
            return replace(self, text=self.text[: len(self.text) // 2], finish="length")
        return replace(self, text="Sure! {here you are: " + self.text[::-1])

    def completion(self, body: dict[str, Any], digest: str, usage: TokenUsage) -> dict[str, Any]:
        """The answer as a chat completion; equal for equal requests, but for the cached tokens."""
        choice = {"index": 0, "message": self._message(), "finish_reason": self.finish, "logprobs": None}
        return {
            "id": f"chatcmpl-{digest[:24]}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": body.get("model", "sim"),
            "choices": [choice],
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.prompt_tokens + usage.output_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            },
        }

    def _message(self) -> dict[str, Any]:
        if self.tool is None:
            return {"role": "assistant", "content": self.text}
        function = {"name": self.tool, "arguments": self.text}
        call = {"id": "call_sim", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


def answer(body: dict[str, Any], seed: int) -> Completion:
    """The answer to a chat completion request."""
    if tool := _forced_tool(body):
        arguments = fill(tool.get("parameters", {"type": "object"}), seed)
        return Completion(json.dumps(arguments), tool["name"], "tool_calls")
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return Completion(json.dumps(fill(wanted["json_schema"]["schema"], seed)))
    return Completion(_pseudo_words(Random(seed)))


def _forced_tool(body: dict[str, Any]) -> dict[str, Any] | None:
    """The tool to call: the one named or, of those on offer, the first not called yet, else the last."""
    choice = body.get("tool_choice")
    tools: list[dict[str, Any]] = [tool["function"] for tool in body.get("tools") or ()]
    if isinstance(choice, dict):
        named = choice.get("function", {}).get("name")
        return next((tool for tool in tools if tool["name"] == named), None)
    if choice != "required" or not tools:
        return None
    calls = (call for message in body["messages"] for call in message.get("tool_calls") or ())
    called = {call["function"]["name"] for call in calls}
    return next((tool for tool in tools if tool["name"] not in called), tools[-1])


def _pseudo_words(rng: Random) -> str:
    return " ".join(rng.choices(_WORDS, k=5))


def fill(schema: Schema, seed: int) -> Any:
    """A JSON value that fits the schema."""
    return _Filler(schema, Random(seed)).value(schema)


class _TooDeep(Exception):
    """A reference was followed inside itself too often: whoever has another choice should take it."""


class _Filler:
    def __init__(self, root: Schema, rng: Random) -> None:
        self._root = root
        self._rng = rng
        self._open_refs: Counter[str] = Counter()
        self._by_type: dict[str, Callable[[Schema], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda _: self._rng.random() < 0.5,
            "null": lambda _: None,
        }

    def value(self, schema: Schema) -> Any:
        if "$ref" in schema:
            return self._referred(schema["$ref"])
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if alternatives := schema.get("anyOf") or schema.get("oneOf"):
            return self._first_possible(alternatives)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            return self._first_possible([{**schema, "type": one} for one in kind])
        return self._by_type[kind](schema)

    def _referred(self, ref: str) -> Any:
        if self._open_refs[ref] == _MAX_NESTED_REFS:
            raise _TooDeep(ref)
        self._open_refs[ref] += 1
        try:
            return self.value(self._target(ref))
        finally:
            self._open_refs[ref] -= 1

    def _target(self, ref: str) -> Schema:
        found = self._root
        for key in ref.removeprefix("#").strip("/").split("/") if ref != "#" else ():
            found = found[key.replace("~1", "/").replace("~0", "~")]
        return found

    def _first_possible(self, alternatives: list[Schema]) -> Any:
        for alternative in sorted(alternatives, key=lambda each: each.get("type") == "null"):
            with suppress(_TooDeep):
                return self.value(alternative)
        raise _TooDeep

    def _object(self, schema: Schema) -> dict[str, Any]:
        required = schema.get("required", ())
        filled = {}
        for name, inner in schema.get("properties", {}).items():
            try:
                filled[name] = self.value(inner)
            except _TooDeep:
                if name in required:
                    raise
        return filled

    def _array(self, schema: Schema) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(inner) for inner in schema["prefixItems"]]
        fewest = schema.get("minItems", 0)
        most = min(_MAX_ITEMS, schema.get("maxItems", _MAX_ITEMS))
        wanted = max(fewest, self._rng.randint(min(1, most), most))
        filled: list[Any] = []
        try:
            while len(filled) < wanted:
                filled.append(self.value(schema.get("items", {})))
        except _TooDeep:
            if len(filled) < fewest:
                raise
        return filled

    def _string(self, schema: Schema) -> str:
        text = _pseudo_words(self._rng)
        while len(text) < schema.get("minLength", 0):
            text += " " + _pseudo_words(self._rng)
        return text[: schema.get("maxLength")]

    def _integer(self, schema: Schema) -> int:
        low, high = _bounds(schema)
        least = math.floor(low) + 1 if low == schema.get("exclusiveMinimum") else math.ceil(low)
        most = math.ceil(high) - 1 if high == schema.get("exclusiveMaximum") else math.floor(high)
        return self._rng.randint(least, most)

    def _number(self, schema: Schema) -> float:
        """Strictly inside the bounds, so that it fits exclusive ones too."""
        low, high = _bounds(schema)
        return low + (high - low) * self._rng.randint(1, 999) / 1000


def _bounds(schema: Schema) -> tuple[float, float]:
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    high = min(highs, default=max(lows, default=0) + _SPAN)
    return max(lows, default=high - _SPAN), high
