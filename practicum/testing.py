"""A simulated model server for tests and benchmarks: OpenAI's chat completions, completions, responses and embeddings,
and Anthropic's messages, as JSON and as streams; and the batch APIs of both.

An answer depends only on the request: JSON that fits the requested schema, a call of the requested tool, or
pseudo-words. `ServerOptions.responder` returns other answers. Usage includes an ideal prefix cache; in Anthropic's
protocol the cache follows the breakpoints of the requests, as Anthropic documents it. Latency is computed from the
tokens, and `SimulatedServer.stats` counts calls, repeated requests and tokens exactly. The server can imitate the
errors, refused parameters and answer formats of real providers: see `BEHAVIOURS` (data in `testing.json`).

Use `serve` in an event loop, `start_process` for a separate process, or `python -m practicum.testing` in a terminal.
Needs the extra `serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import signal
import socket
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, TextIO
from urllib.request import ProxyHandler, build_opener

from practicum.core.errors import UsageError
from practicum.core.files import allow_many_files
from practicum.core.requirements import pip_install
from practicum.core.subprocesses import environment, python_command

Body = dict[str, Any]
Answer = str | Mapping[str, Any]
"""A text, or a tool call: {"name": name of the tool, "arguments": a mapping}."""
Refusal = tuple[int, Any]
"""HTTP status and body of an error."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CHARS_PER_TOKEN = 4
BLOCK_TOKENS = 16
MOST_BREAKPOINTS, LOOKBACK, LEAST_CACHED = 4, 20, 1024
"""Rules of Anthropic's prompt cache: breakpoints of a request, blocks before a breakpoint in which a stored prefix is
searched, and tokens of the shortest prefix that is stored (for most models)."""
THOUGHT = 'The user asks something. A draft would be {"answer": "draft"}. I will answer now.'
"""Simulated reasoning. It contains a draft, so that a parser that takes the first JSON object of a text gets the draft
in place of the answer."""
_TIME = 1_700_000_000
_ID = "0simulated0id0"  # placeholder in rendered answers that is replaced by the request's id
_LABEL_CHARS = 40
_SLOW = 1.0
_BACKLOG = 4096  # a benchmark may open a thousand connections at once


# ---- Values that fit a schema

_WORDS = [
    start + end
    for start in ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va")
    for end in ("lan", "rem", "sil", "ton", "dus", "mak", "nel", "pir", "gos", "rut", "val", "zen", "bis", "kor")
]
_MAX_ITEMS, _MAX_NESTED_REFS = 2, 2
_SPAN = 100  # width of a number's range if the schema gives only one bound, or none


def fill(schema: Body, seed: int) -> Any:
    """Return a JSON value of pseudo-words that fits the schema. The value depends only on the schema and the seed.

    Supports the part of JSON schema that structured outputs use: objects, arrays, unions, references, bounds. Raises
    ValueError for an unknown type."""
    return _Filler(schema, Random(seed)).value(schema)


def pseudo_words(rng: Random) -> str:
    """Return five pseudo-words."""
    return " ".join(rng.choices(_WORDS, k=5))


class _TooDeep(Exception):
    """A recursive reference was followed too often. A caller that has an alternative uses that alternative."""


class _Filler:
    def __init__(self, root: Body, rng: Random) -> None:
        self._root, self._rng = root, rng
        self._open_refs: Counter[str] = Counter()

    def value(self, schema: Body) -> Any:
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
                text = pseudo_words(self._rng)
                while len(text) < schema.get("minLength", 0):
                    text += " " + pseudo_words(self._rng)
                return text[: schema.get("maxLength")]
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case kind:
                raise ValueError(f"the schema has the unknown type {kind!r}")

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

    def _first_possible(self, alternatives: Sequence[Body]) -> Any:
        for alternative in sorted(alternatives, key=lambda each: each.get("type") == "null"):
            with suppress(_TooDeep):
                return self.value(alternative)
        raise _TooDeep

    def _object(self, schema: Body) -> Body:
        filled = {}
        for name, inner in schema.get("properties", {}).items():
            try:
                filled[name] = self.value(inner)
            except _TooDeep:
                if name in schema.get("required", ()):
                    raise
        return filled

    def _array(self, schema: Body) -> list[Any]:
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

    def _number(self, schema: Body, whole: bool) -> float:
        """Return a number in the bounds. A fraction is strictly inside the bounds, so that it fits exclusive bounds
        too."""
        lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
        highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
        high = min(highs, default=max(lows, default=0) + _SPAN)
        low = max(lows, default=high - _SPAN)
        if not whole:
            return low + (high - low) * self._rng.randint(1, 999) / 1000
        least = math.floor(low) + 1 if low == schema.get("exclusiveMinimum") else math.ceil(low)
        most = math.ceil(high) - 1 if high == schema.get("exclusiveMaximum") else math.floor(high)
        return self._rng.randint(least, most)


# ---- Behaviours of real providers


@dataclass(frozen=True)
class Behaviour:
    """A deviation from the usual answer: an error (fields `status` to `parameters`), or changes of the answer (fields
    `message` to `choices`).

    A behaviour without an error and without changes affects the connection, and is implemented in `SimulatedServer`. In
    texts, {text}, {half} and {reversed} are replaced by the text of the answer, the first half of this text, and the
    reversed text; {thought} is replaced by THOUGHT."""

    about: str
    """Help text."""

    status: int = 0
    """HTTP status of the error; 0: no error."""

    error: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `error` object."""

    body: Any = None
    """Body of the error, in place of an `error` object."""

    parameters: Sequence[str] = ()
    """Parameters of a request that cause the error. Empty: every request causes the error."""

    message: Mapping[str, Any] | None = None
    """New values for fields of the message."""

    answer: str | None = None
    """Text that replaces the answer, or the arguments of a tool call."""

    finish: str | None = None
    """Finish reason that replaces the usual reason."""

    choices: Sequence[Any] | None = None
    """Value of the field `choices` of the completion, in place of the usual choices."""

    @property
    def changes(self) -> bool:
        return any(part is not None for part in (self.message, self.answer, self.choices))

    def refusal(self, body: Body) -> Refusal | None:
        """Return the error for a request, or None if the request is answered."""
        present = [name for name in self.parameters if name in _parameters(body)]
        if not self.status or (self.parameters and not present):
            return None
        if self.body is not None:
            return self.status, self.body
        error = {"message": "", "type": "invalid_request_error", "param": None, "code": None, **self.error}
        if reason := error.pop("detail", None):
            detail = [{"type": "extra_forbidden", "loc": ["body", name], "msg": reason} for name in present]
            return self.status, {"object": "error", **error, "message": {"detail": detail}}
        return self.status, {"error": error}

    def change(self, completion: Body) -> None:
        """Apply the changes to a chat completion before it is sent."""
        (choice,) = completion["choices"]
        calls = choice["message"].get("tool_calls")
        holder, name = (calls[0]["function"], "arguments") if calls else (choice["message"], "content")
        text = holder[name] or ""
        choice["finish_reason"] = self.finish or choice["finish_reason"]
        if self.answer is not None:
            holder[name] = _with_text(self.answer, text)
        choice["message"] |= _with_text(dict(self.message or {}), "" if calls else text)
        if self.choices is not None:
            completion["choices"] = self.choices


def _with_text(template: Any, text: str) -> Any:
    """Return a JSON value with the placeholders in its texts replaced."""
    if isinstance(template, dict):
        return {name: _with_text(value, text) for name, value in template.items()}
    if isinstance(template, list):
        return [_with_text(value, text) for value in template]
    if not isinstance(template, str):
        return template
    values = {"text": text, "thought": THOUGHT, "half": text[: len(text) // 2], "reversed": text[::-1]}
    return re.sub(r"\{(text|thought|half|reversed)\}", lambda match: values[match[1]], template)


def _parameters(body: Body) -> set[str]:
    """Return the names of all parts of a request that a model may refuse: its parameters, the type of its response
    format, and "system" if a message has the system role."""
    usual = {"temperature": 1, "response_format": {"type": "text"}}
    names = {name for name, value in body.items() if value is not None and value != usual.get(name)}
    names |= {str((body.get("response_format") or {}).get("type"))}
    return names | {"system" for role, _ in _turns(body) if role in ("system", "developer")}


BEHAVIOURS: Mapping[str, Behaviour] = {
    name: Behaviour(**values)
    for name, values in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}
"""Behaviours of the server, by name. `ServerOptions.behaviours` selects the requests to which a behaviour applies."""


# ---- Requests and answers in each protocol

_CHAT, _COMPLETIONS, _RESPONSES, _MESSAGES = (
    f"/v1/{name}" for name in ("chat/completions", "completions", "responses", "messages")
)
_ASKS = {
    _CHAT: ("messages", "response_format", "tools", "tool_choice"),
    _COMPLETIONS: ("prompt",),
    _RESPONSES: ("input", "instructions", "text", "tools", "tool_choice"),
    _MESSAGES: ("messages", "system", "tools", "tool_choice"),
}
"""Path → fields of a request that determine the answer to the request. The first field is required."""
_ANTHROPIC_ERRORS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error",
    500: "api_error",
}  # fmt: skip
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
"""Anthropic's stop reasons, by OpenAI's finish reasons."""


def _text(content: Any) -> str:
    """Return the text of a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _turns(body: Body) -> list[tuple[str, str]]:
    """Return role and text of each message of a request in any protocol."""
    head = [("system", _text(body[name])) for name in ("instructions", "system") if body.get(name)]
    messages = body.get("messages") or body.get("input") or body.get("prompt") or ()
    if isinstance(messages, str):
        return [*head, ("user", messages)]
    return [*head, *((turn.get("role", ""), _text(turn.get("content"))) for turn in messages if isinstance(turn, dict))]


def _blocks_of(body: Body) -> list[tuple[Body, int]]:
    """Return the blocks of a request in Anthropic's protocol, in the order of its prompt cache, with their tokens."""
    contents = [body.get("system"), *(turn.get("content") for turn in body["messages"] if isinstance(turn, dict))]
    parts = [[{"type": "text", "text": one}] if isinstance(one, str) else one or () for one in contents]
    tools = [(tool, _tokens(len(json.dumps(tool)))) for tool in body.get("tools") or ()]
    blocks = [block for content in parts for block in content if isinstance(block, dict)]
    return [*tools, *((block, _tokens(len(_text([block])))) for block in blocks)]


def _tools(body: Body) -> dict[str, Body]:
    """Return the schemas of the tools, by name."""
    listed = body.get("tools")
    tools = (
        [tool.get("function", tool) for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    )
    return {tool["name"]: tool.get("parameters") or tool.get("input_schema") or {} for tool in tools if "name" in tool}


def _called(body: Body) -> Iterator[str]:
    """Yield the names of the tools that were called in earlier messages."""
    for turn in body.get("messages") or body.get("input") or ():
        inside = (turn, *(turn.get("tool_calls") or ()), *(turn.get("content") or ())) if isinstance(turn, dict) else ()
        for call in inside:
            if isinstance(call, dict) and call.get("type") in ("function", "function_call", "tool_use"):
                yield call.get("function", call)["name"]


def _forced_tool(body: Body) -> str | None:
    """Return the tool that the request forces the model to call; None if it forces no tool. If the request forces a
    call without naming the tool, the first tool that was not called yet is returned, or the last tool if all tools were
    called."""
    tools, choice = _tools(body), body.get("tool_choice")
    if isinstance(choice, dict):
        name = choice.get("function", choice).get("name")
        if name is not None or choice.get("type") != "any":
            return name if name in tools else None
    elif choice != "required":
        return None
    called = {*_called(body)}
    return next((name for name in tools if name not in called), next(reversed(tools), None))


def _schema(body: Body) -> Body | None:
    """Return the schema that the request sets for the answer: the schema of the response format, else the first schema
    in the messages, else None."""
    settings: Body = body.get("text") or body.get("output_config") or {}
    form: Body = body.get("response_format") or settings.get("format") or {}
    if form.get("type") == "json_schema":
        schema: Body = form.get("json_schema", form)["schema"]
        return schema
    for _, text in _turns(body):
        start = text.find("{") if '"properties"' in text else -1
        while start >= 0:
            with suppress(ValueError):
                value, _ = json.JSONDecoder().raw_decode(text, start)
                if isinstance(value, dict) and value.get("type") == "object" and "properties" in value:
                    return value
            start = text.find("{", start + 1)
    return None


def _default_answer(body: Body, seed: int) -> Answer:
    if tool := _forced_tool(body):
        return {"name": tool, "arguments": fill({"type": "object", **_tools(body)[tool]}, seed)}
    schema = _schema(body)
    return pseudo_words(Random(seed)) if schema is None else json.dumps(fill(schema, seed))


def _completion(body: Body, answer: Answer, usage: Counter[str]) -> Body:
    """Return the answer as a chat completion. The answers in other protocols are derived from this completion."""
    message: Body = {"role": "assistant", "content": answer}
    if not isinstance(answer, str):
        function = {"name": answer["name"], "arguments": json.dumps(answer["arguments"])}
        message = {"role": "assistant", "content": None,
                   "tool_calls": [{"id": f"call_{_ID}", "type": "function", "function": function}]}  # fmt: skip
    finish = "stop" if isinstance(answer, str) else "tool_calls"
    return {
        "id": f"chatcmpl-{_ID}", "object": "chat.completion", "created": _TIME, "model": body.get("model", "sim"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {
            "prompt_tokens": usage["prompt_tokens"], "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["prompt_tokens"] + usage["output_tokens"],
            "prompt_tokens_details": {
                "cached_tokens": usage["cached_tokens"], "cache_write_tokens": usage["cache_write_tokens"],
            },
        },
    }  # fmt: skip


Pieces = Callable[[str], list[str]]
"""Function that splits a text into the pieces of a stream."""


def _chat(completion: Body, pieces: Pieces, include_usage: bool) -> list[Body]:
    """Return the stream events of a chat completion."""
    head = {name: value for name, value in completion.items() if name not in ("choices", "usage")}
    head |= {"object": "chat.completion.chunk"} | ({"usage": None} if include_usage else {})
    events: list[Body] = []
    for choice in completion["choices"]:
        message = dict(choice["message"])
        content, calls = message.pop("content"), message.pop("tool_calls", ())
        deltas: list[Body] = [{"role": message.pop("role"), **({"content": ""} if isinstance(content, str) else {})}]
        deltas += [{name: value} for name, value in message.items()]
        for index, call in enumerate(calls):
            function = call["function"]
            deltas.append({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
            for piece in pieces(function["arguments"]):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        parts = pieces(content) if isinstance(content, str) else [content] if content else []
        deltas += [{"content": part} for part in parts]
        ends = [None] * len(deltas) + [choice["finish_reason"]]
        for delta, end in zip([*deltas, {}], ends, strict=True):
            events.append({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]})
    if include_usage:
        events.append({**head, "choices": [], "usage": completion["usage"]})
    return events or [head]


def _blocks(completion: Body) -> list[tuple[str, str, str]]:
    """Return (kind, text, tool name) of each part of a completion, for protocols other than chat completions. The kind
    is thinking, text or tool."""
    message: Body = next((choice["message"] for choice in completion["choices"]), {})
    content, blocks = message.get("content"), list[tuple[str, str, str]]()
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    for name in ("reasoning_content", "reasoning"):
        blocks += [("thinking", message[name], "")] if name in message else []
    for part in parts:
        kind = str(part["type"])
        blocks.append((kind, _text(part[kind]), ""))
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return [("tool", call["arguments"], call["name"]) for call in calls] or blocks


def _legacy(completion: Body, pieces: Pieces) -> tuple[Body, list[Body]]:
    """Return an answer in the legacy completions protocol, and its stream events."""
    text = "".join(text for kind, text, _ in _blocks(completion) if kind == "text")
    head = {"id": f"cmpl-{_ID}", "object": "text_completion", "created": _TIME, "model": completion["model"]}

    def chunk(text: str, finish: str | None) -> Body:
        return {**head, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]}

    whole = {**chunk(text, "stop"), "usage": completion["usage"]}
    return whole, [*(chunk(piece, None) for piece in pieces(text)), chunk("", "stop")]


def _item(kind: str, text: str, name: str, index: int, pieces: Pieces) -> tuple[Body, list[Body]]:
    """Return an output item of a response, and its stream events."""
    opened, closed = list[Body](), list[Body]()
    empty: Body
    filled: Body
    done: Body
    if kind == "tool":
        item: Body = {"type": "function_call", "id": f"fc_{_ID}", "call_id": f"call_{_ID}", "name": name}
        empty, filled, done = {"arguments": ""}, {"arguments": text}, {"name": name, "arguments": text}
        at: Body = {"item_id": item["id"], "output_index": index}
        kind = "function_call_arguments"
    elif kind == "thinking":
        item = {"type": "reasoning", "id": f"rs_{_ID}"}
        empty, filled = {"summary": []}, {"summary": [{"type": "summary_text", "text": text}]}
        at, done = {"item_id": item["id"], "output_index": index, "summary_index": 0}, {"text": text}
        kind = "reasoning_summary_text"
    else:
        item = {"type": "message", "id": f"msg_{_ID}", "role": "assistant"}
        part: Body = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        empty, filled, done = {"content": []}, {"content": [part | {"text": text}]}, {"text": text}
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        opened = [{"type": "response.content_part.added", **at, "part": part}]
        closed = [{"type": "response.content_part.done", **at, "part": part | {"text": text}}]
        at, kind = {**at, "logprobs": []}, "output_text"
    full = {**item, **filled, "status": "completed"}
    begun = {**item, **empty, "status": "in_progress"}
    return full, [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *opened,
        *({"type": f"response.{kind}.delta", **at, "delta": piece} for piece in pieces(text)),
        {"type": f"response.{kind}.done", **at, **done},
        *closed,
        {"type": "response.output_item.done", "output_index": index, "item": full},
    ]


def _responses(completion: Body, pieces: Pieces, metadata: Body) -> tuple[Body, list[Body]]:
    """Return an answer in OpenAI's responses protocol, and its stream events."""
    begun = {
        "id": f"resp_{_ID}", "object": "response", "created_at": _TIME, "status": "in_progress", "error": None,
        "incomplete_details": None, "instructions": None, "max_output_tokens": None, "model": completion["model"],
        "output": [], "parallel_tool_calls": True, "previous_response_id": None, "store": True, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": None,
        "metadata": metadata,
    }  # fmt: skip
    counted = completion["usage"]
    usage = {
        "input_tokens": counted["prompt_tokens"], "input_tokens_details": counted["prompt_tokens_details"],
        "output_tokens": counted["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted["total_tokens"],
    }  # fmt: skip
    items = [_item(*block, index, pieces) for index, block in enumerate(_blocks(completion))]
    whole = {**begun, "status": "completed", "output": [item for item, _ in items], "usage": usage}
    if completion["choices"] and completion["choices"][0]["finish_reason"] == "length":
        whole |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    events: list[Body] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(event for _, sent in items for event in sent),
        {"type": f"response.{whole['status']}", "response": whole},
    ]
    return whole, [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _messages(completion: Body, pieces: Pieces) -> tuple[Body, list[Body]]:
    """Return an answer in Anthropic's messages protocol, and its stream events."""
    counted, finish = completion["usage"], [choice["finish_reason"] for choice in completion["choices"]]
    cached, written = (counted["prompt_tokens_details"][f"{name}_tokens"] for name in ("cached", "cache_write"))
    usage = {
        "input_tokens": counted["prompt_tokens"] - cached - written, "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached, "output_tokens": counted["completion_tokens"],
    }  # fmt: skip
    head: Body = {"id": f"msg_{_ID}", "type": "message", "role": "assistant", "model": completion["model"]}
    ends = {"stop_reason": _STOPS[finish[0]] if finish else "end_turn", "stop_sequence": None}
    none = {"stop_reason": None, "stop_sequence": None}
    events: list[Body] = [{"type": "message_start", "message": {**head, "content": [], **none, "usage": usage}}]
    content: list[Body] = []
    for index, (kind, text, name) in enumerate(_blocks(completion)):
        if kind == "tool":
            block: Body = {"type": "tool_use", "id": f"toolu_{_ID}", "name": name, "input": {}}
            delta, filled = ("input_json_delta", "partial_json"), {"input": _parsed(text)}
        else:
            block = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            delta, filled = (f"{kind}_delta", kind), {kind: text}
        content.append(block | filled)
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            *([{"type": "ping"}] if index == 0 else []),
            *(
                {"type": "content_block_delta", "index": index, "delta": {"type": delta[0], delta[1]: piece}}
                for piece in pieces(text)
            ),
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {"type": "message_delta", "delta": ends, "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]
    return {**head, "content": content, **ends, "usage": usage}, events


def _parsed(arguments: str) -> Any:
    """Parse the arguments of a tool. Invalid JSON becomes an empty object, because Anthropic sends only objects."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


@lru_cache(maxsize=1024)
def _rendered(
    path: str, completion_json: str, chunks: int | None, stream: bool, include_usage: bool, metadata: str, odd: bool
) -> list[bytes]:
    """Return the parts of an answer: a single part for JSON, a part per event for a stream."""
    if path == _CHAT and not stream and not odd:
        return [completion_json.encode()]
    completion = json.loads(completion_json)

    def pieces(text: str) -> list[str]:
        if chunks is None:
            return re.findall(r"\s*\S+\s*", text)
        count = max(1, min(chunks, len(text)))
        return [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]

    match path:
        case "/v1/chat/completions":
            whole, events = completion, _chat(completion, pieces, include_usage)
        case "/v1/completions":
            whole, events = _legacy(completion, pieces)
        case "/v1/responses":
            whole, events = _responses(completion, pieces, json.loads(metadata))
        case _:
            whole, events = _messages(completion, pieces)
    if odd:
        whole, events = _odd(whole), _odd(events)
    if not stream:
        return [json.dumps(whole).encode()]
    return [_event(path, event) for event in events] + ([b"data: [DONE]\n\n"] if "completions" in path else [])


def _odd(value: Any) -> Any:
    """Return an answer, or its events, with texts replaced by values that are invalid in every protocol."""
    if isinstance(value, list):
        return [_odd(item) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _odd(item) for name, item in value.items()}
    if content := changed.get("content"):
        changed["content"] = {"of": {"no": "protocol"}} if isinstance(content, str) else [7]
    return changed | ({"delta": 7} if str(changed.get("type", "")).endswith(("text.delta", "block_delta")) else {})


def _event(path: str, event: Body) -> bytes:
    name = "" if "completions" in path else f"event: {event['type']}\n"
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def _in_protocol(path: str, refusal: Refusal) -> Refusal:
    """Convert an error to the format of the protocol to which the path belongs."""
    status, body = refusal
    if not path.startswith("/v1/messages"):
        return refusal
    error = body[0] if isinstance(body, list) else body
    message = str(error.get("error", error)["message"])
    kind = _ANTHROPIC_ERRORS.get(status, "invalid_request_error")
    return status, {"type": "error", "error": {"type": kind, "message": message}}


def _error(path: str, status: int, message: str) -> Refusal:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
    return _in_protocol(path, (status, {"error": error}))


def _gzipped(parts: Sequence[bytes]) -> list[bytes]:
    """Compress the parts of a body so that each part can be read as soon as it arrives."""
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return [*(compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH) for part in parts), compressor.flush()]


def _vector(text: str, dimensions: int) -> list[float]:
    """Return a vector of length 1 that depends only on the text."""
    rng = Random(text)
    values = [rng.gauss(0, 1) for _ in range(dimensions)]
    norm = math.hypot(*values)
    return [value / norm for value in values]


# ---- The server


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of the server. Raises ValueError for an unknown behaviour."""

    port: int = 0
    """Port to listen on; 0: a free port."""

    latency: float = 0.0
    """Constant part of the latency (s)."""

    per_1k_prompt: float = 0.0
    """Latency (s) per 1,000 prompt tokens."""

    per_output: float = 0.0
    """Latency (s) per output token."""

    output_tokens: int | None = None
    """Number of output tokens to count for each answer. None: the number is computed from the length of the answer."""

    tail: float = 0.0
    """Standard deviation of the logarithm of the latency."""

    seed: int = 0
    """Seed of the latency."""

    chunks: int | None = None
    """Number of chunks of a streamed text. None: a chunk per word."""

    gap: float = 0.0
    """Delay (s) between the chunks of a stream."""

    behaviours: Sequence[tuple[str, int | str]] = ()
    """Behaviours to apply. (name, n) applies a behaviour to every n-th request, (name, text) to requests with this text
    in their messages."""

    log: str | Path | None = None
    """File that gets a line with the digest of each request."""

    responder: Callable[[Body], Answer | None] | None = None
    """Function from the body of a request to its answer, or None for the default answer."""

    batch_checks: int = 0
    """Number of checks after which a batch is still in progress."""

    keep: bool = True
    """Whether requests are stored in `SimulatedServer.requests`."""

    def __post_init__(self) -> None:
        for name, when in self.behaviours:
            if name not in BEHAVIOURS or when == "" or (isinstance(when, int) and when < 1):
                raise ValueError(
                    f"unknown behaviour {name}:{when}: use NAME, NAME:EVERY or NAME:TEXT with a name from "
                    f"{', '.join(BEHAVIOURS)}"
                )

    def latency_of(self, digest: str, prompt_tokens: int, output_tokens: int) -> float:
        """Return the latency (s) of the request with this digest. The tail does not change the mean."""
        mean = self.latency + self.per_1k_prompt * prompt_tokens / 1000 + self.per_output * output_tokens
        if not self.tail:
            return mean
        normal = Random(f"{self.seed}:{digest}").gauss(0, 1)
        return mean * math.exp(self.tail * normal - self.tail**2 / 2)


@dataclass(frozen=True)
class Received:
    """A received request. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class _Request:
    """A request that is being answered, with its active behaviours."""

    path: str
    body: Body
    digest: str
    id: str
    active: Sequence[str]


class _Batches:
    """Files and batches of both protocols. The requests of a batch are answered by `ask` when the batch is created, and
    the batch is in progress for `checks` checks of its state."""

    def __init__(self, ask: Callable[[str, Body], Awaitable[Refusal]], checks: int) -> None:
        self._ask, self._checks = ask, checks
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, Body] = {}
        self._checked: Counter[str] = Counter()

    async def reply(self, method: str, path: str, raw: bytes, headers: Mapping[bytes, bytes]) -> Body | bytes | None:
        """Return the answer to a request for files and batches; None for an unknown path."""
        match method, path.removeprefix("/v1/").split("/"):
            case "POST", ["files"]:
                return {"id": self._keep(_uploaded(raw, headers)), "object": "file", "purpose": "batch"}
            case "GET", ["files", id, "content"]:
                return self._files.get(id)
            case "DELETE", ["files", id] if id in self._files:
                del self._files[id]
                return {"id": id, "object": "file", "deleted": True}
            case "POST", ["batches"]:
                return await self._create(json.loads(raw))
            case "POST", ["messages", "batches"]:
                host = headers[b"host"].decode("latin-1")
                return await self._create_messages(json.loads(raw), f"http://{host}{path}")
            case ("GET", ["batches", id] | ["messages", "batches", id]) if id in self._batches:
                self._checked[id] += 1
                return self._state(id)
            case "GET", ["messages", "batches", id, "results"]:
                return self._files.get(id)
        return None

    def _keep(self, data: bytes) -> str:
        id = f"file-{len(self._files)}-{sha256(data).hexdigest()[:8]}"
        self._files[id] = data
        return id

    def _state(self, id: str) -> Body:
        """Return a batch, without its results while it is in progress."""
        batch = self._batches[id]
        if self._checked[id] > self._checks:
            return batch
        state = "processing_status" if "processing_status" in batch else "status"
        return {**batch, state: "in_progress", "output_file_id": None, "error_file_id": None, "results_url": None}

    async def _create(self, request: Body) -> Body:
        lines = [json.loads(line) for line in self._files[request["input_file_id"]].splitlines()]
        replies = await asyncio.gather(*(self._ask(line["url"], line["body"]) for line in lines))
        answers, errors, expired = list[Body](), list[Body](), False
        for line, (status, body) in zip(lines, replies, strict=True):
            result: Body = {"custom_id": line["custom_id"], "response": {"status_code": status, "body": body}}
            if status == 410:
                expired, result = True, {**result, "response": None, "error": body["error"]}
            (answers if status == 200 else errors).append(result)
        id = f"batch_{len(self._batches)}"
        self._batches[id] = {
            "id": id, "object": "batch", "created_at": int(time.time()), "endpoint": request["endpoint"],
            "input_file_id": request["input_file_id"], "completion_window": "24h",
            "status": "expired" if expired else "completed",
            "output_file_id": self._keep(_json_lines(answers)) if answers else None,
            "error_file_id": self._keep(_json_lines(errors)) if errors else None,
            "request_counts": {"total": len(lines), "completed": len(answers), "failed": len(errors)},
        }  # fmt: skip
        return self._state(id)

    async def _create_messages(self, body: Body, url: str) -> Body:
        requests = body["requests"]
        replies = await asyncio.gather(*(self._ask(_MESSAGES, request["params"]) for request in requests))
        results = list[Body]()
        for request, (status, answer) in zip(requests, replies, strict=True):
            result = {"type": "succeeded", "message": answer} if status == 200 else {"type": "errored", "error": answer}
            results.append(
                {"custom_id": request["custom_id"], "result": {"type": "expired"} if status == 410 else result}
            )
        id, counts = f"msgbatch_{len(self._batches)}", Counter(result["result"]["type"] for result in results)
        at = datetime.now(UTC)
        self._files[id] = _json_lines(results)
        self._batches[id] = {
            "id": id, "type": "message_batch", "processing_status": "ended", "created_at": at.isoformat(),
            "expires_at": (at + timedelta(days=1)).isoformat(), "results_url": f"{url}/{id}/results",
            "request_counts": {
                kind: counts[kind] for kind in ("processing", "succeeded", "errored", "canceled", "expired")
            },
        }  # fmt: skip
        return self._state(id)


def _uploaded(raw: bytes, headers: Mapping[bytes, bytes]) -> bytes:
    """Return the content of the file in the form of an upload."""
    boundary = b"--" + headers[b"content-type"].partition(b"boundary=")[2].strip(b'"')
    parts = [part.partition(b"\r\n\r\n") for part in raw.split(boundary)]
    return next(data.removesuffix(b"\r\n") for head, _, data in parts if b'name="file"' in head)


def _json_lines(values: Sequence[Body]) -> bytes:
    return "\n".join(map(json.dumps, values)).encode()


class SimulatedServer:
    """ASGI app of the simulated server, with its counters. `url` is the base URL, which ends in /v1, while `serve` runs
    the server. `log` is a file that is open for writing.

    The request header `x-sim-fault` lists behaviours for the answer, separated by commas. The request header
    `x-sim-request-id` is returned unchanged as `x-request-id`. GET /stats returns `stats`, and POST /reset calls
    `reset`.
    """

    _UNCOUNTED = frozenset({"cut", "garbage", "error-in-200", "html", "hang", "drop", "die", "endless"})

    def __init__(self, options: ServerOptions | None = None, log: TextIO | None = None) -> None:
        self.options = options or ServerOptions()
        self.url = ""
        self.drop: Callable[[Any], None] = lambda client: None
        self._log = log
        self._in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Clear counters, stored requests, batches and the prefix cache. Calls in flight continue."""
        self._batches = _Batches(self._ask, self.options.batch_checks)
        self.requests: list[Received] = []
        self._counts: Counter[str] = Counter()
        self._by_label: dict[str, Counter[str]] = {}
        self._max_in_flight = self._in_flight
        self._latency_sum = 0.0
        self._digests: Counter[str] = Counter()
        self._cached_blocks: set[int] = set()

    def stats(self) -> dict[str, Any]:
        """Return the counts since the start or the last reset. Calls and tokens include only answered calls."""
        tokens = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
        names = ("calls", *tokens, "faults", "received", "left")
        counts: dict[str, Any] = {name: self._counts[name] for name in names}
        counts |= {"in_flight": self._in_flight, "max_in_flight": self._max_in_flight, "latency_sum": self._latency_sum}
        by_label = {label: dict(counted) for label, counted in self._by_label.items()}
        return {**counts, "repeats": counts["received"] - len(self._digests), "by_label": by_label}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        read = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            read += message.get("body", b"")
            more = message.get("more_body", False)
        path, raw, headers = scope["path"], bytes(read), dict(scope["headers"])
        if self.options.keep and path not in ("/stats", "/reset"):
            decoded = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
            self.requests.append(Received(path, decoded, raw))
        if b"x-sim-request-id" in headers:
            send = _with_header(send, (b"x-request-id", headers[b"x-sim-request-id"]))
        match scope["method"], path:
            case "POST", ("/v1/chat/completions" | "/v1/completions" | "/v1/responses" | "/v1/messages"):
                self._in_flight += 1
                self._max_in_flight = max(self._max_in_flight, self._in_flight)
                try:
                    await self._reply(path, raw, headers, scope, receive, send)
                finally:
                    self._in_flight -= 1
            case "POST", "/v1/embeddings":
                body = json.loads(raw)
                texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
                vectors = [_vector(str(text), body.get("dimensions") or 8) for text in texts]
                data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
                tokens = sum(_tokens(len(str(text))) for text in texts)
                usage = {"prompt_tokens": tokens, "total_tokens": tokens}
                await _send_json(send, {"object": "list", "data": data, "model": "sim", "usage": usage})
            case "POST", ("/v1/messages/count_tokens" | "/v1/responses/input_tokens"):
                await _send_json(send, {"input_tokens": _tokens(len(raw))})
            case "GET", "/v1/models":
                model = {"id": "sim", "object": "model", "created": _TIME, "owned_by": "practicum"}
                await _send_json(send, {"object": "list", "data": [model]})
            case "GET", "/stats":
                await _send_json(send, self.stats())
            case "POST", "/reset":
                self.reset()
                await _send_json(send, {})
            case method, _:
                answer = await self._batches.reply(method, path, raw, headers)
                if isinstance(answer, bytes):
                    await _start(send, 200, b"application/binary")
                    await send({"type": "http.response.body", "body": answer})
                elif answer is not None:
                    await _send_json(send, answer)
                else:
                    status, error = _error(path, 404, f"no simulated endpoint at {path}")
                    await _send_json(send, error, status)

    async def _ask(self, path: str, body: Body) -> Refusal:
        """Answer a request of a batch. Return the status and the body of the answer."""
        sent = list[MutableMapping[str, Any]]()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> MutableMapping[str, Any]:
            await asyncio.Event().wait()
            return {}

        await self._reply(path, json.dumps(body).encode(), {}, {"client": None}, receive, send)
        return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))

    async def _reply(
        self, path: str, raw: bytes, headers: Mapping[bytes, bytes], scope: Mapping[str, Any], receive: Receive,
        send: Send,
    ) -> None:  # fmt: skip
        arrived = asyncio.get_running_loop().time()
        try:
            body = json.loads(raw)
            if (
                not isinstance(body, dict)
                or not isinstance(prompt := body.get(_ASKS[path][0]), list | str)
                or not prompt
            ):
                raise ValueError(f"the body has no {_ASKS[path][0]}")
            if path == _MESSAGES and (marked := len(_breakpoints(body))) > MOST_BREAKPOINTS:
                raise ValueError(
                    f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {marked}."
                )
            named = tuple(filter(None, headers.get(b"x-sim-fault", b"").decode("latin-1").split(",")))
            if unknown := {*named} - {*BEHAVIOURS}:
                raise ValueError(f"unknown behaviours {', '.join(unknown)}: available are {', '.join(BEHAVIOURS)}")
        except ValueError as error:
            status, response = _error(path, 400, str(error))
            return await _send_json(send, response, status)
        fields = [body.get(name) for name in _ASKS[path]]
        digest = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        # Count and log the request on arrival, before it can fail.
        if self._log is not None:
            self._log.write(digest + "\n")
            self._log.flush()
        id = f"{digest[:16]}{self._digests[digest]:08x}"
        self._digests[digest] += 1
        self._counts["received"] += 1
        active = [*named, *self._active(body)]
        refusal = next((refused for name in active if (refused := BEHAVIOURS[name].refusal(body))), None)
        self._counts["faults"] += bool(refusal or any(not BEHAVIOURS[name].status for name in active))
        if refusal is not None:
            status, response = _in_protocol(path, refusal)
            return await _send_json(send, response, status, [(b"retry-after", b"0")] if status == 429 else [])
        if "html" in active:
            await _start(send, 200, b"text/html")
            return await send({"type": "http.response.body", "body": b"<html><body>Sign in (simulated)</body></html>"})
        if "hang" in active:
            await _client_left(receive, None)
        elif "drop" in active:
            self.drop(scope["client"])
        else:
            await self._answer(_Request(path, body, digest, id, active), arrived, receive, send)
        return None

    def _active(self, body: Body) -> list[str]:
        """Return the behaviours that apply to this request. The caller must have counted the request."""
        if not self.options.behaviours:
            return []
        number, texts = self._counts["received"], "\n".join(text for _, text in _turns(body))
        return [
            name
            for name, when in self.options.behaviours
            if (when in texts if isinstance(when, str) else number % when == 0)
        ]

    def _admit(self, prompt: str) -> int:
        """Add a prompt to the prefix cache (unbounded, blocks chained by hashes). Return the number of leading tokens
        of the prompt that were already cached."""
        cached, chain, size = 0, 0, BLOCK_TOKENS * CHARS_PER_TOKEN
        for index in range(len(prompt) // size):
            chain = hash((chain, prompt[index * size : (index + 1) * size]))
            cached += cached == index and chain in self._cached_blocks
            self._cached_blocks.add(chain)
        return cached * BLOCK_TOKENS

    def _admit_blocks(self, body: Body) -> tuple[int, int]:
        """Add the prefixes of a request that end at a breakpoint to the prefix cache, as Anthropic does. Return the
        tokens that were read from the cache, and the tokens that were written to it."""
        chains, totals = [0], [0]
        for block, tokens in _blocks_of(body):
            plain = {name: value for name, value in block.items() if name != "cache_control"}
            chains.append(hash((chains[-1], json.dumps(plain, sort_keys=True))))
            totals.append(totals[-1] + tokens)
        ends = [at + 1 for at in _breakpoints(body) if totals[at + 1] >= LEAST_CACHED]
        searched = [at for end in ends for at in range(max(end - LOOKBACK, 0), end + 1)]
        read = max((totals[at] for at in searched if chains[at] in self._cached_blocks), default=0)
        self._cached_blocks.update(chains[end] for end in ends)
        return read, max([totals[end] for end in ends], default=read) - read

    async def _answer(self, request: _Request, arrived: float, receive: Receive, send: Send) -> None:
        options, body = self.options, request.body
        answer = options.responder(body) if options.responder else None
        if answer is None:
            answer = _default_answer(body, int(request.digest[:16], 16))
        turns = _turns(body)
        text = answer if isinstance(answer, str) else json.dumps(answer["arguments"])
        prompt_tokens = _tokens(sum(len(content) for _, content in turns))
        if request.path == _MESSAGES:
            prompt_tokens = sum(tokens for _, tokens in _blocks_of(body))
            cached_tokens, written = self._admit_blocks(body)
        else:
            cached_tokens, written = self._admit("".join(role + content for role, content in turns)), 0
        usage = Counter(
            calls=1,
            prompt_tokens=prompt_tokens,
            cached_tokens=min(cached_tokens, prompt_tokens),  # roles are not counted as tokens
            cache_write_tokens=written,
            output_tokens=_tokens(len(text)) if options.output_tokens is None else options.output_tokens,
        )
        latency = options.latency_of(request.digest, prompt_tokens, usage["output_tokens"])
        completion = _completion(body, answer, usage)
        for name in request.active:
            if BEHAVIOURS[name].changes:
                BEHAVIOURS[name].change(completion)
        # Count the latency from the arrival, so that the server's own work does not add to it.
        until = arrived + latency + _SLOW * ("slow" in request.active)
        if until > arrived and await _client_left(receive, until):
            return
        if self._UNCOUNTED.isdisjoint(request.active):
            self._latency_sum += latency
            self._counts.update(usage)
            label = next((content for role, content in turns if role == "system"), "")[:_LABEL_CHARS]
            self._by_label.setdefault(label, Counter()).update(usage)
        await self._send_answer(request, completion, send)
        if "endless" in request.active and await _client_left(receive, None):
            self._counts["left"] += 1

    async def _send_answer(self, request: _Request, completion: Body, send: Send) -> None:
        path, body, active = request.path, request.body, request.active
        stream, include = bool(body.get("stream")), bool((body.get("stream_options") or {}).get("include_usage"))
        metadata = json.dumps(body["metadata"]) if body.get("metadata") else "{}"
        kind = path, json.dumps(completion), self.options.chunks, stream, include, metadata, "odd" in active
        rendered = _rendered(*kind)
        parts = [part.replace(_ID.encode(), request.id.encode()) for part in rendered]
        headers = [(b"cache-control", b"no-cache")] if stream else []
        if "error-in-200" in active:
            _, error = _error(path, 502, "Provider returned error")
            error = {"type": "error", **error}
            parts = [*parts[: len(parts) // 2], _event(path, error)] if stream else [json.dumps(error).encode()]
        if "crlf" in active:
            parts = [part.replace(b"\n", b"\r\n") for part in parts]
        if "gzip" in active:
            headers.append((b"content-encoding", b"gzip"))
            parts = _gzipped(parts) if stream else [b"".join(_gzipped(parts))]
        if not stream:
            headers.append((b"content-length", str(len(parts[0])).encode()))
        await _start(send, 200, b"text/event-stream; charset=utf-8" if stream else b"application/json", *headers)
        if "die" in active or "endless" in active:
            parts = parts[: len(parts) // 2] if stream else [parts[0][: len(parts[0]) // 2]]
        broken = not {"die", "endless", "unfinished"}.isdisjoint(active)
        for number, part in enumerate(parts):
            # Even a sleep of zero seconds yields to the event loop, so that each chunk is sent separately.
            if number:
                await asyncio.sleep(self.options.gap)
            await send({"type": "http.response.body", "body": part, "more_body": stream or broken})
        # uvicorn closes the connection if the app returns before the response is complete.
        if stream and not broken:
            await send({"type": "http.response.body"})


def _breakpoints(body: Body) -> list[int]:
    """Return the positions of the blocks with a breakpoint. A breakpoint of the whole request is at its last block."""
    blocks = _blocks_of(body)
    marked = [at for at, (block, _) in enumerate(blocks) if block.get("cache_control")]
    return [*marked, len(blocks) - 1] if body.get("cache_control") and len(blocks) - 1 not in marked else marked


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def _with_header(send: Send, header: tuple[bytes, bytes]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], header]
        await send(message)

    return sending


async def _client_left(receive: Receive, until: float | None) -> bool:
    """Wait until a time of the event loop (None: forever). Return whether the client disconnected."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            while (await receive())["type"] != "http.disconnect":
                pass
            return True
    return False


async def _start(send: Send, status: int, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *headers]})


async def _send_json(send: Send, value: Any, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    body = json.dumps(value).encode()
    await _start(send, status, b"application/json", (b"content-length", str(len(body)).encode()), *headers)
    await send({"type": "http.response.body", "body": body})


# ---- Running it


def _require_uvicorn() -> None:
    if find_spec("uvicorn") is None:
        raise UsageError("extra.missing", f"the simulated server needs uvicorn: {pip_install('serve')}")


@asynccontextmanager
async def serve(options: ServerOptions | None = None) -> AsyncIterator[SimulatedServer]:
    """Run a server in this event loop for the duration of the block. Raises UsageError if the extra `serve` is not
    installed."""
    _require_uvicorn()
    # uvicorn is imported here, because this module can be imported without the extra `serve`.
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    options = options or ServerOptions()
    # Open the log once, before the first request.
    with nullcontext() if options.log is None else Path(options.log).open("a", encoding="ascii") as log:  # noqa: ASYNC230
        app = SimulatedServer(options, log)
        # Assemble uvicorn as its `serve` does, but without signal handlers and without waiting at shutdown.
        config = Config(app, ws="none", lifespan="off", log_config=None, access_log=False, timeout_keep_alive=3600)
        config.load()
        state = ServerState()

        def protocol() -> asyncio.Protocol:
            connection: asyncio.Protocol = config.http_protocol_class(config, state, {})  # type: ignore[call-arg]
            return connection

        def drop(client: Any) -> None:
            for connection in state.connections:
                if connection.transport.get_extra_info("peername") == tuple(client):
                    connection.transport.abort()

        app.drop = drop
        server = await asyncio.get_running_loop().create_server(
            protocol, "127.0.0.1", options.port, family=socket.AF_INET, backlog=_BACKLOG
        )
        app.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield app
        finally:
            server.close()
            for connection in list(state.connections):
                connection.transport.abort()
            tasks = list(state.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class ServerProcess:
    """A server in a separate process."""

    url: str
    process: subprocess.Popen[str]

    def stats(self) -> dict[str, Any]:
        return dict(self._call("/stats", None))

    def reset(self) -> None:
        self._call("/reset", b"")

    def _call(self, path: str, data: bytes | None) -> Any:
        opener = build_opener(ProxyHandler({}))  # a proxy from the environment must not be used for this machine
        with opener.open(self.url.removesuffix("/v1") + path, data) as response:
            return json.load(response)


_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("port", "output_tokens", "seed", "chunks", "batch_checks"), int),
    **dict.fromkeys(("latency", "per_1k_prompt", "per_output", "tail", "gap"), float),
    "log": str,
}
"""Command-line options, except `--behaviour`, with their parsers."""


@contextmanager
def start_process(module: str = "practicum.testing", **options: Any) -> Iterator[ServerProcess]:
    """Run a server in a separate process for the duration of the block. `options` are the fields of `ServerOptions`
    except `responder`. To use a responder, pass as `module` the name of a module, or the path of a script, that calls
    `main(responder=...)`. The process does not store requests. Raises UsageError if the extra `serve` is not installed,
    and RuntimeError if the server does not start."""
    checked = ServerOptions(**options)
    if checked.responder is not None:
        raise ValueError("a responder cannot be sent to another process: pass a module that calls main(responder=...)")
    values = {f"--{name.replace('_', '-')}": getattr(checked, name) for name in _PARSERS}
    flags = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    flags += [f"--behaviour={name}:{when}" for name, when in checked.behaviours]
    _require_uvicorn()
    command = python_command(module, *flags)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            ready = process.stdout.readline() if process.stdout else ""
            if not ready:
                raise RuntimeError("the simulated server did not start: see its error output above")
            yield ServerProcess(ready.split()[-1], process)
        finally:
            process.terminate()


def main(arguments: Sequence[str] | None = None, responder: Callable[[Body], Answer | None] | None = None) -> None:
    """Run the server with command-line options until the process is stopped."""
    import uvloop

    def behaviour(text: str) -> tuple[str, int | str]:
        name, colon, when = text.partition(":")
        return name, (int(when) if when.isdecimal() else when) if colon else 1

    async def serve_until_stopped() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with serve(options) as server:
            print(f"listening on {server.url}", flush=True)
            await stopped.wait()

    width = max(map(len, BEHAVIOURS)) + 2
    parser = argparse.ArgumentParser(
        prog="python -m practicum.testing", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="behaviours:\n" + "\n".join(f"  {name:{width}}{each.about}" for name, each in BEHAVIOURS.items()),
    )  # fmt: skip
    for name, parse in _PARSERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=parse, default=getattr(ServerOptions, name))
    parser.add_argument(
        "--behaviour", dest="behaviours", metavar="NAME[:EVERY|:TEXT]", type=behaviour, action="append", default=[],
        help="behaviour to apply: NAME to all requests, NAME:EVERY to every n-th request, NAME:TEXT to requests "
        "with TEXT in their messages",
    )  # fmt: skip
    try:
        options = ServerOptions(**vars(parser.parse_args(arguments)), responder=responder, keep=False)
    except ValueError as error:
        parser.error(str(error))
    allow_many_files()
    uvloop.run(serve_until_stopped())


if __name__ == "__main__":
    main()
