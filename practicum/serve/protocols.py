"""The three protocols of model servers: what a request asks, where what was learned goes, what a response answers.

A request is taken apart into the bytes of its values, and put together again from the same bytes: tools, images and
fields that nobody knows reach the server as the client wrote them. What was learned is joined to the text of two kinds
of messages. What is the same for all requests follows the system message. What was looked up for a message stands at
its beginning, in this request and in all later ones of the conversation, so that each prompt continues the one before
it and a prefix cache keeps serving it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

Kind = Literal["chat", "responses", "messages"]

MOST_TEXT = 20_000
"""Characters of a text that are kept."""

MOST_STEPS = 20
"""Steps of an agent that are kept of a request: the last ones."""

NULL = Raw(b"null")
LEADING = ("system", "developer")


class Unreadable(ValueError):
    """A body that is not of the protocol. It is passed on as it is, for the server to refuse."""


class _Part(Struct):
    type: str = ""
    text: str | None = None


class _Function(Struct):
    name: str = ""
    arguments: Any = None


class _Call(Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Item(Struct):
    """A message, or another item of a conversation."""

    role: str = ""
    type: str = ""
    content: Raw = NULL
    tool_calls: list[_Call] | None = None
    name: str | None = None
    arguments: Any = None
    output: Raw = NULL


class _Block(Struct):
    """A part of a message in the protocol of Anthropic."""

    type: str = ""
    text: str | None = None
    name: str = ""
    input: Any = None
    content: Raw = NULL


@dataclass(frozen=True)
class Learned:
    """What is put into a request: `note` goes before the text of a user's message, `turns` (user, assistant) before the
    message as earlier messages."""

    note: str = ""
    turns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Request:
    """A request, taken apart.

    `query` is the text of the user's last message, and `steps` what the agent did since. `points` are the places of the
    user's messages among the items, each with a digest of the conversation up to it.
    """

    kind: Kind
    fields: dict[str, Raw]
    items: list[Raw]
    query: str
    steps: tuple[tuple[str, str], ...]
    points: tuple[tuple[int, str], ...]
    stream: bool
    model: str
    _whole: bool = field(default=False)  # the input is one text and no list

    def write(self, fixed: str, learned: Mapping[int, Learned], model: str = "") -> bytes:
        """The request with what was learned: `fixed` for all requests, `learned` by the places of user messages. A
        `model` is filled in."""
        fields = dict(self.fields)
        if model:
            fields["model"] = _raw(model)
        items = list[Raw]()
        for place, item in enumerate(self.items):
            if (shown := learned.get(place)) is not None:
                items += (Raw(_encode(m)) for u, a in shown.turns for m in _exchange(u, a))
                item = self._with_note(item, shown.note) if shown.note else item
            items.append(item)
        if fixed:
            if self.kind == "chat":
                items = _after_system(items, fixed)
            else:
                name = "system" if self.kind == "messages" else "instructions"
                fields[name] = _joined(fields.get(name, NULL), fixed, "text")
        conversation = "input" if self.kind == "responses" else "messages"
        if self._whole:
            # A server may treat one text and a list with one message differently.
            whole = learned.get(0)
            if whole is not None and whole.note:
                fields[conversation] = _before(fields[conversation], whole.note, "input_text")
        else:
            fields[conversation] = Raw(b"[" + b",".join(map(bytes, items)) + b"]")
        return b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in fields.items()) + b"}"

    def _with_note(self, item: Raw, note: str) -> Raw:
        parts = msgspec.json.decode(item, type=dict[str, Raw])
        kind = "input_text" if self.kind == "responses" else "text"
        parts["content"] = _before(parts["content"], note, kind)
        return Raw(b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in parts.items()) + b"}")


def read_request(kind: Kind, body: bytes) -> Request:
    """Take a request apart. Raises Unreadable if it is not of the protocol."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
        conversation = fields["input" if kind == "responses" else "messages"]
        whole = kind == "responses" and _first(conversation) == b'"'
        items = [] if whole else msgspec.json.decode(conversation, type=list[Raw])
        read = [msgspec.json.decode(item, type=_Item) for item in items]
        stream = bytes(fields.get("stream", NULL)) == b"true"
        model = msgspec.json.decode(fields["model"], type=str) if "model" in fields else ""
        if whole:
            text = msgspec.json.decode(conversation, type=str)
            digest = blake2b(conversation, digest_size=12).hexdigest()
            return Request(kind, fields, [], text[:MOST_TEXT], (), ((0, digest),), stream, model, True)
        points, texts = _points(kind, fields, items, read)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    last = points[-1][0] if points else len(items)
    steps = [step for item in read[last + 1 :] for step in _steps(kind, item)]
    query = texts[-1] if texts else ""
    return Request(kind, fields, items, query[:MOST_TEXT], tuple(steps[-MOST_STEPS:]), tuple(points), stream, model)


def text_request(query: str) -> Request:
    """A request of one text, in no protocol."""
    digest = blake2b(query.encode(), digest_size=12).hexdigest()
    return Request("responses", {}, [], query[:MOST_TEXT], (), ((0, digest),), False, "", True)


def last_answers(request: Request, most: int) -> tuple[list[tuple[str, str]], str]:
    """The last answers in a conversation (texts and calls of tools), `most` at most, the newest first, each with the
    user's text before it; and the user's last text. Content that cannot be read counts as empty."""
    found, pending, said, question = list[tuple[str, str]](), list[str](), "", None
    for raw in reversed(request.items):
        item = msgspec.json.decode(raw, type=_Item)
        if item.role == "assistant" or item.type == "reasoning" or item.type.endswith("_call"):
            said = _said(request.kind, item) + said if len(found) + len(pending) < most else ""
            continue
        pending, said = [*pending, said] if said else pending, ""
        text = ""
        with suppress(msgspec.MsgspecError):
            text = _text(item.content) if item.role == "user" else ""
        if text:
            question = text if question is None else question
            found, pending = [*found, *((text, one) for one in pending)], []
            if len(found) >= most:
                break
    found += [("", one) for one in [*pending, said] if one]
    if request._whole:
        question = msgspec.json.decode(request.fields["input"], type=str)
    return found, question or ""


def _said(kind: Kind, item: _Item) -> str:
    """The text and the calls of tools of an item that a model made."""
    try:
        text = _text(item.content)[:MOST_TEXT] if item.role == "assistant" else ""
        return text + "".join(step for what, step in _steps(kind, item) if what == "call")
    except msgspec.MsgspecError:
        return ""


def _points(
    kind: Kind, fields: Mapping[str, Raw], items: Sequence[Raw], read: Sequence[_Item]
) -> tuple[list[tuple[int, str]], list[str]]:
    """The places of the user's messages with the digests of the conversation so far, and their texts."""
    digest, points, texts = blake2b(digest_size=12), list[tuple[int, str]](), list[str]()
    digest.update(fields.get("system", NULL) if kind == "messages" else fields.get("instructions", NULL))
    for place, (raw, item) in enumerate(zip(items, read, strict=True)):
        digest.update(raw)
        if item.role == "user" and (text := _text(item.content)):
            points.append((place, digest.copy().hexdigest()))
            texts.append(text)
    return points, texts


def _text(content: Raw) -> str:
    """The text of a message: a text, or that of its parts."""
    if _first(content) == b'"':
        return msgspec.json.decode(content, type=str)
    if _first(content) != b"[":
        return ""
    parts = msgspec.json.decode(content, type=list[_Part])
    return "\n".join(part.text for part in parts if part.type in ("text", "input_text", "output_text") and part.text)


def _steps(kind: Kind, item: _Item) -> Iterator[tuple[str, str]]:
    """What an agent did: calls of tools and their results."""
    for call in item.tool_calls or ():
        yield "call", f"{call.function.name}({_plain(call.function.arguments)})"[:MOST_TEXT]
    if item.type == "function_call":
        yield "call", f"{item.name}({_plain(item.arguments)})"[:MOST_TEXT]
    if item.type == "function_call_output":
        yield "result", _plain(msgspec.json.decode(item.output))[:MOST_TEXT]
    if item.role == "tool":
        yield "result", _text(item.content)[:MOST_TEXT]
    elif item.role == "assistant" and kind != "messages" and (text := _text(item.content)):
        yield "text", text[:MOST_TEXT]
    elif kind == "messages" and _first(item.content) == b"[":
        for block in msgspec.json.decode(item.content, type=list[_Block]):
            if block.type == "tool_use":
                yield "call", f"{block.name}({_plain(block.input)})"[:MOST_TEXT]
            elif block.type == "tool_result":
                yield "result", _text(block.content)[:MOST_TEXT]
            elif block.type == "text" and block.text and item.role == "assistant":
                yield "text", block.text[:MOST_TEXT]


def _first(raw: Raw) -> bytes:
    """The first byte of a value, which tells a text from a list."""
    return bytes(memoryview(raw)[:1])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _raw(value: Any) -> Raw:
    return Raw(_encode(value))


def _exchange(user: str, assistant: str) -> tuple[dict[str, str], dict[str, str]]:
    return {"role": "user", "content": user}, {"role": "assistant", "content": assistant}


def _before(content: Raw, note: str, kind: str) -> Raw:
    """The content of a user's message with a note before its first text."""
    if _first(content) == b'"':
        return Raw(_encode(f"{note}\n\n")[:-1] + bytes(content)[1:])
    parts = msgspec.json.decode(content, type=list[Raw])
    kinds = [msgspec.json.decode(part, type=_Part).type for part in parts]
    # Before the text and not first of all: results of tools have to come first.
    place = next((n for n, each in enumerate(kinds) if each in ("text", "input_text")), len(parts))
    parts.insert(place, _raw({"type": kind, "text": note}))
    return Raw(b"[" + b",".join(map(bytes, parts)) + b"]")


def _joined(content: Raw, text: str, kind: str) -> Raw:
    """The content of a system message with a text behind it."""
    if _first(content) == b'"':
        return Raw(bytes(content)[:-1] + _encode(f"\n\n{text}")[1:]) if bytes(content) != b'""' else _raw(text)
    if _first(content) != b"[":
        return _raw(text)
    parts = msgspec.json.decode(content, type=list[Raw])
    return Raw(b"[" + b",".join(map(bytes, [*parts, _raw({"type": kind, "text": text})])) + b"]")


def _after_system(items: list[Raw], text: str) -> list[Raw]:
    """Messages with a text behind the last of the leading system messages; a new one where there is none."""
    leading = 0
    while leading < len(items) and msgspec.json.decode(items[leading], type=_Item).role in LEADING:
        leading += 1
    if not leading:
        return [_raw({"role": "system", "content": text}), *items]
    parts = msgspec.json.decode(items[leading - 1], type=dict[str, Raw])
    parts["content"] = _joined(parts.get("content", NULL), text, "text")
    joined = Raw(b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in parts.items()) + b"}")
    return [*items[: leading - 1], joined, *items[leading:]]


# Responses


@dataclass
class Answer:
    """What a response answers: the id, the model and the text, the tools it calls, and what it used."""

    id: str = ""
    model: str = ""
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None

    def add_to(self, answer: Answer) -> None:
        details = self.prompt_tokens_details or self.input_tokens_details or _Details()
        # Anthropic's input tokens are those that were neither read from the cache nor written to it.
        apart = (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        answer.input_tokens = self.prompt_tokens or (self.input_tokens or 0) + apart or answer.input_tokens
        answer.output_tokens = self.completion_tokens or self.output_tokens or answer.output_tokens
        answer.cached_tokens = details.cached_tokens or self.cache_read_input_tokens or answer.cached_tokens


class _Delta(Struct):
    """A message of a chat, or what a chunk adds to one."""

    content: str | None = None
    tool_calls: list[_Call] | None = None
    text: str | None = None
    partial_json: str | None = None


class _Choice(Struct):
    index: int = 0
    message: _Delta | None = None
    delta: _Delta | None = None


class _Output(Struct):
    type: str = ""
    content: list[_Part] | None = None
    name: str = ""
    arguments: Any = None


class _Response(Struct):
    """A response, or a chunk or an event of one, in any of the protocols."""

    id: str = ""
    model: str = ""
    type: str = ""
    choices: list[_Choice] | None = None
    output: list[_Output] | None = None
    content: list[_Block] | None = None
    usage: _Usage | None = None
    delta: _Delta | str | None = None
    content_block: _Block | None = None
    message: _Response | None = None
    response: _Response | None = None


_decode_response: Callable[[bytes], _Response] = msgspec.json.Decoder(_Response).decode


def read_answer(body: bytes) -> Answer | None:
    """The answer of a whole response; None if it is not of a known protocol."""
    try:
        return _of_response(_decode_response(body))
    except (msgspec.MsgspecError, RecursionError):
        return None


def read_stream(body: bytes) -> Answer | None:
    """The answer of a stream of events; None if it is not of a known protocol."""
    answer, text, calls = Answer(), list[str](), list[list[str]]()
    try:
        for line in body.split(b"\n"):
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            event = _decode_response(line[5:])
            if event.type == "response.completed" and event.response is not None:
                return _of_response(event.response)
            started = event.message or event.response
            answer.id = answer.id or (event.id if started is None else started.id)
            answer.model = answer.model or (event.model if started is None else started.model)
            for usage in (event.usage, started and started.usage):
                if usage:
                    usage.add_to(answer)
            deltas = [choice.delta for choice in event.choices or () if choice.index == 0]
            for delta in (*deltas, event.delta):
                if isinstance(delta, str) and event.type == "response.output_text.delta":
                    text.append(delta)
                elif isinstance(delta, _Delta):
                    text += [part for part in (delta.content, delta.text) if part]
                    for call in delta.tool_calls or ():
                        if call.function.name:
                            calls.append([call.function.name, ""])
                        if calls:
                            calls[-1][1] += _plain(call.function.arguments or "")
                    if delta.partial_json and calls:
                        calls[-1][1] += delta.partial_json
            if event.content_block is not None and event.content_block.type == "tool_use":
                calls.append([event.content_block.name, ""])
    except (msgspec.MsgspecError, RecursionError):
        return None
    answer.text, answer.calls = "".join(text)[:MOST_TEXT], [(name, said) for name, said in calls]
    return answer


def _of_response(response: _Response) -> Answer:
    answer, text = Answer(response.id, response.model), list[str]()
    if response.usage is not None:
        response.usage.add_to(answer)
    for message in [c.message for c in response.choices or () if c.message is not None][:1]:
        text.append(message.content or "")
        answer.calls += [(c.function.name, _plain(c.function.arguments)) for c in message.tool_calls or ()]
    for item in response.output or ():
        text += [part.text for part in item.content or () if part.text]
        if item.type == "function_call":
            answer.calls.append((item.name, _plain(item.arguments)))
    for block in response.content or ():
        text += [block.text] if block.text else []
        if block.type == "tool_use":
            answer.calls.append((block.name, _plain(block.input)))
    answer.text = "\n".join(filter(None, text))[:MOST_TEXT]
    return answer


def with_metadata(response: bytes, metadata: Mapping[str, str]) -> bytes:
    """A response of the protocol `responses` with these values beside those of its metadata. Another body is returned
    as it is."""
    try:
        fields = msgspec.json.decode(response, type=dict[str, Raw])
        own = msgspec.json.decode(fields["metadata"], type=dict[str, Any] | None) or {}
    except (msgspec.MsgspecError, KeyError):
        return response
    fields["metadata"] = _raw({**own, **metadata})
    return b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in fields.items()) + b"}"
