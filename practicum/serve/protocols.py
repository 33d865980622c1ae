"""Three protocols of model servers: reads requests, inserts learned context into them, and reads answers.

A request is parsed into the raw bytes of its values, and written from the same bytes: tools, images and unknown fields
reach the server as the client wrote them. Learned context goes to two places. The part that is the same for all
requests follows the system message. The part that was looked up for a user's message is put before the text of the
message, in this request and in all later requests of the conversation, so that each prompt continues the previous one
and a prefix cache applies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from io import StringIO
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from practicum.core.counts import Count
from practicum.core.images import Images, address_in, mark, marked
from practicum.core.surrogates import without_unpaired
from practicum.core.thoughts import SeparatedAnswer, silence, split_thoughts
from practicum.core.tool_texts import ToolTexts, described
from practicum.core.types import Turn

Kind = Literal["chat", "responses", "messages"]

PROTOCOLS: Mapping[str, Kind] = {
    "/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"
}  # fmt: skip

T = TypeVar("T")

MOST_TEXT = 20_000
"""Largest number of characters of a text that is stored."""

MOST_STEPS = 20
"""Largest number of an agent's steps that are stored for a request. The last steps are stored."""

SERVED = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call")
"""Types of items of the protocol `responses` that contain results of the provider's tools."""

_MATERIAL = (b'tool_result"', b'"document"', b'"search_result"', b'"file"', b'"input_file"')
"""Ends of the types of parts that contain text of other authors: results of tools, including the provider's tools, and
documents. The same characters within a text do not match, because JSON puts a backslash before their quotation mark."""

MOST_CALLS = 50
"""Largest number of tool calls that are stored for an answer. The first calls are stored."""

MOST_NAME = 200
"""Largest number of stored characters of a name, such as the name of a model. A longer id counts as missing."""

MOST_ANSWER = 2**20
"""Largest number of characters of an answer that are read, including the thoughts in it."""

LONG = 2**16
"""Number of characters above which an answer is assembled in a thread."""

MOST_TOKENS = 10**9
"""Largest number of tokens that counts as plausible."""

MOST_READ = 8 * 2**20
"""Largest size (bytes) of a request, answer or event that is parsed, unless the service sets another limit."""

MOST_VALUES = 400_000
"""Largest number of commas, colons and opening brackets in JSON that is parsed. This limit also limits the number of
values: decoding blocks all other requests, for a time proportional to the number of values."""

MOST_ITEMS, MOST_FIELDS = 10_000, 1_000
"""Largest number of messages, and of fields, in a request that is parsed."""

MOST_LINES = 20_000
"""Largest number of lines of an event that is parsed."""

NULL = Raw(b"null")
LEADING = ("system", "developer")


class Unreadable(ValueError):
    """The body of a request does not follow the protocol. The body is passed on unchanged, so that the model server
    reports the error."""


class Oversized(Unreadable):
    """The body of a request is too large to be parsed, or has too many values."""


class _Kind(Struct):
    type: str = ""


class _Part(Struct):
    type: str = ""
    text: str | None = None


class _Function(Struct):
    name: str = ""
    arguments: Raw = NULL


class _ToolCall(Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Item(Struct):
    """Message, or another item of a conversation."""

    role: str = ""
    type: str = ""
    content: Raw = NULL
    tool_calls: list[_ToolCall] | None = None
    name: str | None = None
    arguments: Raw = NULL
    output: Raw = NULL


class _ContentBlock(Struct):
    """Part of a message in the protocol of Anthropic."""

    type: str = ""
    text: str | None = None
    name: str = ""
    input: Raw = NULL
    content: Raw = NULL


@dataclass(frozen=True)
class Insertion:
    """Insertion into a request: `note` goes before the text of a user's message, and `turns` go before the message as
    earlier messages. `closing` is for texts of the operation `recall`, and follows the request."""

    note: str = ""
    turns: tuple[Turn, ...] = ()
    closing: str = ""


@dataclass(frozen=True)
class Request:
    """Parsed request.

    `query` is the text of the user's last message, and `steps` are the agent's steps after this message. `points` are
    the positions of the user's messages in `items`, each with a digest of the conversation up to this message.
    """

    kind: Kind
    fields: dict[str, Raw]
    items: list[Raw]
    query: str
    steps: tuple[tuple[str, str], ...]
    points: tuple[tuple[int, str], ...]
    stream: bool
    model: str
    material: bool = False
    """Whether the conversation contains results of tools, or documents."""
    _whole: bool = field(default=False)  # the input is a text, not a list

    def write(
        self, fixed: str, learned: Mapping[int, Insertion], model: str = "", tools: ToolTexts = MappingProxyType({})
    ) -> bytes:
        """Return the body with learned context: the text `fixed`, which is the same for all requests; `learned`, the
        insertions by the position of a user's message; and `tools`, descriptions of tools. `model` replaces the
        requested model, unless `model` is empty. A request of Anthropic's protocol without breakpoints of a prompt
        cache gets a breakpoint after `fixed`."""
        fields = dict(self.fields)
        if tools and _first(fields.get("tools", NULL)) == b"[":
            fields["tools"] = _raw([described(tool, tools) for tool in msgspec.json.decode(fields["tools"])])
        if model:
            fields["model"] = _raw(model)
        items = list[Raw]()
        for place, item in enumerate(self.items):
            if (shown := learned.get(place)) is not None:
                items += (Raw(_encode(m)) for turn in shown.turns for m in _exchange(turn))
                item = self._with_note(item, shown.note) if shown.note else item
            items.append(item)
        if fixed:
            match self.kind:
                case "chat":
                    items = _after_system(items, fixed)
                case "responses":
                    fields["instructions"] = _joined(fields.get("instructions", NULL), fixed, "text")
                case "messages" if self._has_breakpoints:
                    fields["system"] = _joined(fields.get("system", NULL), fixed, "text")
                case "messages":
                    fields["system"] = _with_breakpoint(fields.get("system", NULL), fixed)
        conversation = "input" if self.kind == "responses" else "messages"
        if self._whole:
            # Keep a text as a text, because a server may treat a list with one message differently.
            whole = learned.get(0)
            if whole is not None and whole.note:
                fields[conversation] = _before(fields[conversation], whole.note, "input_text")
        else:
            fields[conversation] = Raw(b"[" + b",".join(map(bytes, items)) + b"]")
        return b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in fields.items()) + b"}"

    @property
    def images(self) -> Images:
        """Images of the user's last message."""
        if not self.points or self._whole:
            return {}
        content = msgspec.json.decode(self.items[self.points[-1][0]], type=_Item).content
        parts = msgspec.json.decode(content) if _first(content) == b"[" and b"image" in bytes(content) else []
        return marked(filter(None, map(address_in, parts)))

    @property
    def _has_breakpoints(self) -> bool:
        """Whether the client sets breakpoints of a prompt cache. A request may have at most four breakpoints. The
        characters of the name within a text do not match, because JSON puts a backslash before their quotation mark."""
        return "cache_control" in self.fields or any(b'"cache_control"' in bytes(raw) for raw in self.fields.values())

    def _with_note(self, item: Raw, note: str) -> Raw:
        parts = msgspec.json.decode(item, type=dict[str, Raw])
        kind = "input_text" if self.kind == "responses" else "text"
        parts["content"] = _before(parts["content"], note, kind)
        return Raw(b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in parts.items()) + b"}")


def read_request(kind: Kind, body: bytes, most: int = MOST_READ) -> Request:
    """Parse a request. Raise Unreadable if the body does not follow the protocol, and Oversized if the body has more
    than `most` bytes, or too many messages, fields or values."""
    if len(body) > most or is_dense(body):
        raise Oversized(f"more than {most:,} bytes, or too many values")
    try:
        # Check that the whole body is UTF-8, because values that stay raw bytes are not checked otherwise.
        body.decode()
        fields = _fields(body)
        conversation = fields["input" if kind == "responses" else "messages"]
        whole = kind == "responses" and _first(conversation) == b'"'
        items = [] if whole else msgspec.json.decode(conversation, type=list[Raw])
        if len(items) > MOST_ITEMS or len(fields) > MOST_FIELDS:
            raise Oversized("too many messages or fields")
        read = [msgspec.json.decode(item, type=_Item) for item in items]
        stream = bytes(fields.get("stream", NULL)) == b"true"
        model = msgspec.json.decode(fields["model"], type=str)[:MOST_NAME] if "model" in fields else ""
        if whole:
            text = msgspec.json.decode(conversation, type=str)
            digest = blake2b(conversation, digest_size=12).hexdigest()
            return Request(kind, fields, [], text[:MOST_TEXT], (), ((0, digest),), stream, model, _whole=True)
        points, texts = _points(kind, fields, items, read)
        last = points[-1][0] if points else len(items)
        steps = _last_steps(kind, read[last + 1 :])
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    query = texts[-1] if texts else ""
    return Request(
        kind, fields, items, query[:MOST_TEXT], steps, tuple(points), stream, model, any(map(_is_material, read))
    )


def _fields(body: bytes) -> dict[str, Raw]:
    """Return the values of a JSON object. Replace unpaired surrogates, which JavaScript produces when it cuts a
    text."""
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.DecodeError:
        whole, replaced = without_unpaired(body)
        if not replaced:
            raise
        return msgspec.json.decode(whole, type=dict[str, Raw])


def is_dense(data: bytes) -> bool:
    """Return whether JSON may have too many values to be parsed (see MOST_VALUES)."""
    return len(data) > MOST_VALUES and len(data) - len(data.translate(None, b",:{[")) > MOST_VALUES


def text_request(query: str) -> Request:
    """Return a request that has one text, and no body."""
    query = _whole_characters(query)
    digest = blake2b(query.encode(), digest_size=12).hexdigest()
    return Request("responses", {}, [], query[:MOST_TEXT], (), ((0, digest),), False, "", _whole=True)


def last_answers(request: Request, most: int) -> tuple[list[tuple[str, str]], str]:
    """Return the last answers in a conversation (texts and tool calls), and the user's last text. At most `most`
    answers are returned, newest first, each with the user's text before it. Content that cannot be read counts as
    empty."""
    answered, pending, question = list[tuple[str, str]](), list[str](), None
    parts = list[str]()
    """Texts of the current answer, last part first."""
    for raw in reversed(request.items):
        item = msgspec.json.decode(raw, type=_Item)
        if item.role == "assistant" or item.type == "reasoning" or item.type.endswith("_call"):
            if len(answered) + len(pending) < most:
                parts.append(_text_and_calls(request.kind, item))
            continue
        pending, parts = [*pending, *filter(None, [_join_reversed(parts)])], []
        text = ""
        with suppress(msgspec.MsgspecError, RecursionError):
            text = _text(item.content)[:MOST_TEXT] if item.role == "user" else ""
        if text:
            question = text if question is None else question
            answered, pending = [*answered, *((text, one) for one in pending)], []
            if len(answered) >= most:
                break
    answered += [("", one) for one in [*pending, _join_reversed(parts)] if one]
    if request._whole:
        question = msgspec.json.decode(request.fields["input"], type=str)[:MOST_TEXT]
    return answered, question or ""


def _join_reversed(parts: Sequence[str]) -> str:
    return "".join(reversed(parts))[:MOST_ANSWER]


def _text_and_calls(kind: Kind, item: _Item) -> str:
    """Return the text and the tool calls of an item from a model."""
    try:
        text = _text(item.content)[:MOST_TEXT] if item.role == "assistant" else ""
        return text + "".join(step for type_, step in _steps(kind, item) if type_ == "call")
    except (msgspec.MsgspecError, RecursionError):
        return ""


def _points(
    kind: Kind, fields: Mapping[str, Raw], items: Sequence[Raw], read: Sequence[_Item]
) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the positions of the user's messages, each with a digest of the conversation up to this message, and the
    texts of these messages."""
    digest, points, texts = blake2b(digest_size=12), list[tuple[int, str]](), list[str]()
    digest.update(fields.get("system", NULL) if kind == "messages" else fields.get("instructions", NULL))
    for place, (raw, item) in enumerate(zip(items, read, strict=True)):
        digest.update(raw)
        if item.role == "user" and not _continues(kind, item) and (text := _text(item.content)):
            points.append((place, digest.copy().hexdigest()))
            texts.append(text)
    return points, texts


def _continues(kind: Kind, item: _Item) -> bool:
    """Return whether a user's message contains results of tools, so that the agent continues its task. Other text in
    such a message, such as reminders, is not a question."""
    if kind != "messages" or _first(item.content) != b"[":
        return False
    return any(part.type == "tool_result" for part in msgspec.json.decode(item.content, type=list[_Kind]))


def _is_material(item: _Item) -> bool:
    """Return whether an item contains results of tools, or documents. Parts are not parsed: the content is searched
    for the texts in _MATERIAL, so an argument named `document` also counts."""
    if item.role in ("tool", "function") or item.type.endswith("_output") or item.type in SERVED:
        return True
    content = bytes(item.content) if _first(item.content) == b"[" else b""
    return any(part in content for part in _MATERIAL)


def _text(content: Raw) -> str:
    """Return the text of a message: its content, or the joined texts of its parts."""
    if _first(content) == b'"':
        return str(msgspec.json.decode(content, type=str))
    if _first(content) != b"[":
        return ""
    parts = msgspec.json.decode(content, type=list[_Part])
    texts = [part.text if part.type in ("text", "input_text", "output_text") else "" for part in parts]
    if b"image" in bytes(content):
        # Two questions with the same words about two images are two questions.
        images = map(address_in, msgspec.json.decode(content))
        texts = [mark(image) if image else text for text, image in zip(texts, images, strict=True)]
    return "\n".join(filter(None, texts))


def _last_steps(kind: Kind, items: Sequence[_Item]) -> tuple[tuple[str, str], ...]:
    """Return the last steps of an agent in these items."""
    steps = list[tuple[str, str]]()
    for item in reversed(items):
        steps = [*_steps(kind, item), *steps][-MOST_STEPS:]
        if len(steps) == MOST_STEPS:
            break
    return tuple(steps)


def _steps(kind: Kind, item: _Item) -> Iterator[tuple[str, str]]:
    """Yield the steps of an agent in an item: type and text."""
    for call in item.tool_calls or ():
        yield "call", _call(call.function.name, _text_of(call.function.arguments))
    if item.type == "function_call":
        yield "call", _call(item.name or "", _text_of(item.arguments))
    if item.type == "function_call_output":
        yield "result", _text_of(item.output)[:MOST_TEXT]
    if item.role == "tool":
        yield "result", _text(item.content)[:MOST_TEXT]
    elif item.role == "assistant" and kind != "messages" and (text := _text(item.content)):
        yield "text", text[:MOST_TEXT]
    elif kind == "messages" and _first(item.content) == b"[":
        for block in msgspec.json.decode(item.content, type=list[_ContentBlock]):
            if block.type == "tool_use":
                yield "call", _call(block.name, _text_of(block.input))
            elif block.type == "tool_result":
                yield "result", _text(block.content)[:MOST_TEXT]
            elif block.type == "text" and block.text:
                yield "text" if item.role == "assistant" else "user", block.text[:MOST_TEXT]


def _first(raw: Raw) -> bytes:
    """Return the first byte of a value, which distinguishes a text from a list."""
    return bytes(memoryview(raw)[:1])


def _call(name: str, arguments: str) -> str:
    return f"{name}({arguments})"[:MOST_TEXT]


def answer_text(text: str, calls: Iterable[tuple[str, str]]) -> str:
    """Return an answer as one text, in the form in which `last_answers` returns the same answer from a later
    request."""
    return "".join([text, *(_call(name, arguments) for name, arguments in calls)])


def _text_of(value: Raw) -> str:
    """Return a value as text: a text unchanged, and any other value as compact JSON, which may be cut."""
    if _first(value) == b'"':
        return str(msgspec.json.decode(value, type=str))
    if len(beginning := bytes(memoryview(value)[: 4 * MOST_TEXT])) == 4 * MOST_TEXT:
        return beginning.decode(errors="replace")
    return _plain(msgspec.json.decode(value))


def _plain(value: Any) -> str:
    """Return a value as text, without unpaired surrogates."""
    if isinstance(value, str):
        return _whole_characters(value)
    return _whole_characters(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _raw(value: Any) -> Raw:
    return Raw(_encode(value))


def _exchange(turn: Turn) -> tuple[dict[str, str], dict[str, str]]:
    return {"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant}


def _before(content: Raw, note: str, kind: str) -> Raw:
    """Return the content of a user's message with a note before its first text."""
    if _first(content) == b'"':
        return Raw(_encode(f"{note}\n\n")[:-1] + bytes(content)[1:])
    parts = msgspec.json.decode(content, type=list[Raw])
    kinds = [msgspec.json.decode(part, type=_Kind).type for part in parts]
    # Do not put the note before parts of other types: results of tools must come first.
    place = next((n for n, each in enumerate(kinds) if each in ("text", "input_text")), len(parts))
    parts.insert(place, _raw({"type": kind, "text": note}))
    return Raw(b"[" + b",".join(map(bytes, parts)) + b"]")


def _joined(content: Raw, text: str, kind: str) -> Raw:
    """Return the content of a system message with a text appended."""
    if _first(content) == b'"':
        return Raw(bytes(content)[:-1] + _encode(f"\n\n{text}")[1:]) if bytes(content) != b'""' else _raw(text)
    if _first(content) != b"[":
        return _raw(text)
    parts = msgspec.json.decode(content, type=list[Raw])
    return Raw(b"[" + b",".join(map(bytes, [*parts, _raw({"type": kind, "text": text})])) + b"]")


def _with_breakpoint(content: Raw, text: str) -> Raw:
    """Return Anthropic's system prompt with a text appended, as a list of parts with a breakpoint after the text."""
    parts = msgspec.json.decode(content, type=list[Raw]) if _first(content) == b"[" else list[Raw]()
    if _first(content) == b'"' and bytes(content) != b'""':
        parts.append(Raw(b'{"type":"text","text":' + bytes(content) + b"}"))
    parts.append(_raw({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}))
    return Raw(b"[" + b",".join(map(bytes, parts)) + b"]")


def _after_system(items: list[Raw], text: str) -> list[Raw]:
    """Return the messages with a text appended to the last leading system message. Add a system message if the
    first message has another role."""
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
class UpstreamAnswer:
    """Answer in a response: id, model, text, tool calls and usage.

    `whole`: the response has ended as its protocol requires. `unread`: a part does not follow the protocol and was
    skipped. `failed`: the response reports an error. `material`: the provider's tools returned results. `text` excludes
    the model's `thoughts`. `wrong` has the names of usage fields with implausible values, which count as unknown.
    """

    id: str = ""
    model: str = ""
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    whole: bool = False
    unread: bool = False
    failed: bool = False
    material: bool = False
    thoughts: str = ""
    wrong: set[str] = field(default_factory=set)
    _ends: set[str] = field(default_factory=set)

    def end(self, *reasons: Any) -> None:
        """Record the reasons that the protocol gives for the end of the answer. Skip reasons that are None."""
        for reason in reasons:
            if isinstance(reason, str) and reason in _SILENT:
                self._ends.add(reason)

    def call(self, name: str, arguments: str) -> None:
        """Add a tool call."""
        if len(self.calls) < MOST_CALLS:
            self.calls.append((name[:MOST_NAME], arguments[:MOST_TEXT]))

    def settle(self, text: str, thoughts: Iterable[str]) -> None:
        """Set the text of the answer to `text` without the thoughts inside it. Set the thoughts of the answer to these
        thoughts, or to `thoughts`, which come from separate fields, if `text` has no thoughts inside."""
        separated = split_thoughts(_whole_characters(text[:MOST_ANSWER]))
        self.text = separated.text[:MOST_TEXT]
        self.thoughts = (separated.thoughts or _whole_characters("\n".join(filter(None, thoughts))))[:MOST_TEXT]

    @property
    def silence(self) -> Count | None:
        """Reason why a complete answer without tool calls has no text. None if the answer has a text or tool calls, is
        incomplete, failed, or could not be read."""
        if not self.whole or self.calls or self.unread or self.failed:
            return None
        return silence(
            SeparatedAnswer(self.text, self.thoughts), refused="refusal" in self._ends,
            filtered="content_filter" in self._ends, cut=not self._ends.isdisjoint(_LIMITS),
        )  # fmt: skip


_LIMITS = ("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded")
"""Words by which the protocols report that an answer ended at a limit of tokens."""

_SILENT = frozenset({"refusal", "content_filter", *_LIMITS})
"""Words by which the protocols report an end of an answer that explains why the answer has no text."""

_TEXTS = ("text", "output_text", "input_text")
"""Types of parts that are text. Other parts, such as thinking, are not a part of the answer's text."""

_ENDS = ("response.completed", "response.incomplete", "response.failed")
"""Last events of a stream of the protocol `responses`."""


def read_answer(body: bytes) -> UpstreamAnswer | None:
    """Return the answer in a complete response. None if the body is not a JSON object."""
    response = _decoded(body)
    return None if response is None else _of_response(response)


def read_stream(body: bytes) -> UpstreamAnswer | None:
    """Return the answer in a stream of events, which may be incomplete. None if no event is a JSON object."""
    reader = StreamReader()
    reader.take(body)
    return reader.end()


class StreamReader:
    """Incremental reader of a stream of events. An event of more than `most` bytes is skipped."""

    def __init__(self, most: int = MOST_READ) -> None:
        self._most = most
        self._stream, self._has_event = _Stream(), False
        self.other = bytearray()
        """Data received before the first event; all data, if no event was received."""
        self._rest, self._half, self._skips = bytearray(), False, False
        """Data of the incomplete event, whether the last received byte is CR, and whether the incomplete event is too
        large."""

    def take(self, data: bytes) -> None:
        """Read the next received data."""
        if self._half or b"\r" in data:
            # CR may be the first byte of CR LF.
            data = b"\r" + data if self._half else data
            self._half = data.endswith(b"\r")
            data = data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n\n" not in data and not (data.startswith(b"\n") and self._rest.endswith(b"\n")):
            self._hold(data)
            return
        if self._rest:
            data = bytes(self._rest) + data
            self._rest.clear()
        *blocks, rest = data.split(b"\n\n")
        if self._skips:
            del blocks[0]
            self._skips = False
        for block in blocks:
            if block:
                self._read(block)
        if rest:
            self._hold(rest)

    @property
    def is_long(self) -> bool:
        """Whether it may take long to assemble the answer."""
        return len(self._rest) > LONG or self._stream.length > LONG

    def _hold(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > self._most:
            self._skips = self._stream.answer.unread = True
        if self._skips:
            # Keep the last byte, because an empty line may begin with it.
            del self._rest[:-1]

    def _read(self, block: bytes, last: bool = False) -> None:
        """Read an event. `last`: the event is the last event of the stream, and may be incomplete."""
        if block.count(b"\n") > MOST_LINES:
            self._stream.answer.unread = True
            return
        if b"\n" not in block and block.startswith(b"data:"):
            lines = [block[5:].strip()]
        else:
            lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        # Some servers omit the empty line between events.
        if len(lines) > 1 and not all(line.startswith((b"{", b"[DONE]")) for line in lines):
            lines = [b"\n".join(lines)]
        if not self._has_event and not lines and len(self.other) + len(block) <= self._most:
            self.other += block + b"\n\n"
        for data in lines:
            if data == b"[DONE]":
                self._stream.answer.whole = self._has_event = True
            elif (event := _decoded(data)) is not None:
                self._stream.take(event)
                self._has_event = True
            elif not last:
                self._stream.answer.unread = True

    def end(self) -> UpstreamAnswer | None:
        """Return the answer. None if no event is a JSON object."""
        if not self._skips:
            self._read(bytes(self._rest), last=True)
            self._rest.clear()
        return self._stream.end() if self._has_event else None


class _BoundedText:
    """Text that is received in pieces, and cut after MOST_ANSWER characters."""

    def __init__(self) -> None:
        self._pieces, self._room = StringIO(), MOST_ANSWER

    def add(self, piece: str) -> None:
        if piece and self._room > 0:
            self._pieces.write(piece[: self._room])
            self._room -= len(piece)

    def __len__(self) -> int:
        return MOST_ANSWER - max(self._room, 0)

    def __str__(self) -> str:
        return self._pieces.getvalue()


class _Stream:
    """Assembly of an answer from the events of a stream, of any of the protocols."""

    def __init__(self) -> None:
        self.answer = UpstreamAnswer()
        self._text, self._thoughts, self._calls = _BoundedText(), _BoundedText(), list[list[str]]()
        self._response: UpstreamAnswer | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        answer, kind = self.answer, event.get("type")
        if kind == "response.output_text.delta":
            self._text.add(self._typed(event.get("delta"), ""))
            return
        if kind == "content_block_delta":
            self._add_to_block(self._typed(event.get("delta"), {}))
            return
        if _reports_error(event):
            answer.failed = answer.whole = True
        started = _object(event.get("message") or event.get("response")) or event
        answer.id = answer.id or _id(started.get("id"))
        answer.model = answer.model or _string(started.get("model"))[:MOST_NAME]
        for one in (event, started):
            if one.get("usage"):
                _add_usage(answer, one["usage"])
        if kind in _ENDS:
            self._response = _of_response(started)
            answer.whole = True
        elif kind == "response.output_item.done":
            self._end_item(_object(event.get("item")))
        elif kind == "content_block_start":
            self._begin_block(_object(event.get("content_block")))
        elif kind == "message_delta":
            self._add_to_block(self._typed(event.get("delta"), {}))
        elif kind == "message_stop":
            answer.whole = True
        for choice in _objects(event.get("choices")):
            if not choice.get("index"):
                self._add_to_choice(choice)

    @property
    def length(self) -> int:
        """Number of characters of the text and the thoughts so far."""
        return len(self._text) + len(self._thoughts)

    def _end_item(self, item: Mapping[str, Any]) -> None:
        self.answer.material = self.answer.material or item.get("type") in SERVED
        if item.get("type") == "function_call":
            self._begin_call(_string(item.get("name")))
            self._add_to_call(_plain(item.get("arguments")))

    def _begin_call(self, name: str) -> None:
        # Keep one call more than MOST_CALLS. This call is not stored, and takes the arguments of all calls above the
        # limit.
        if len(self._calls) <= MOST_CALLS:
            self._calls.append([name, ""])

    def _add_to_call(self, arguments: str) -> None:
        if self._calls and len(self._calls[-1][1]) < MOST_TEXT:
            self._calls[-1][1] += arguments

    def _begin_block(self, block: Mapping[str, Any]) -> None:
        self.answer.material = self.answer.material or _string(block.get("type")).endswith("_tool_result")
        if block.get("type") == "tool_use":
            self._begin_call(_string(block.get("name")))
        elif block.get("type") == "text":
            self._text.add("\n" if self._text else "")
            self._text.add(_string(block.get("text")))

    def _add_to_block(self, delta: Mapping[str, Any]) -> None:
        self._text.add(self._typed(delta.get("text"), ""))
        self._thoughts.add(_string(delta.get("thinking")))
        self.answer.end(delta.get("stop_reason"))
        self._add_to_call(self._typed(delta.get("partial_json"), ""))
        self.answer.whole = self.answer.whole or bool(delta.get("stop_reason"))

    def _add_to_choice(self, choice: Mapping[str, Any]) -> None:
        delta: dict[str, Any] = self._typed(choice.get("delta"), {})
        self._text.add(_content_text(delta.get("content"), self.answer, ""))
        self._thoughts.add(_thought(delta))
        self.answer.material = self.answer.material or bool(delta.get("annotations"))
        self.answer.end(choice.get("finish_reason"), "refusal" if delta.get("refusal") else None)
        for call in _objects(delta.get("tool_calls")):
            function = _object(call.get("function"))
            if name := _string(function.get("name")):
                self._begin_call(name)
            self._add_to_call(_piece(function.get("arguments")))
        self.answer.whole = self.answer.whole or bool(choice.get("finish_reason"))

    def _typed(self, value: Any, missing: T) -> T:
        """Return a value if it has the type of `missing`, else `missing`."""
        if isinstance(value, type(missing)):
            return value
        self.answer.unread = self.answer.unread or value is not None
        return missing

    def end(self) -> UpstreamAnswer:
        """Return the assembled answer."""
        answer, response = self.answer, self._response
        for name, arguments in self._calls:
            answer.call(name, _whole_characters(arguments))
        if response is not None:
            # The last event repeats the whole answer, but some servers omit the output in this event.
            answer.calls = response.calls or answer.calls
            answer.end(*response._ends)
        text, thoughts = (response.text, response.thoughts) if response is not None else ("", "")
        answer.settle(text or str(self._text), [thoughts or str(self._thoughts)])
        if response is not None:
            answer.wrong |= response.wrong
            answer.unread = answer.unread or (response.unread and not (answer.text or answer.calls))
            answer.failed = answer.failed or response.failed
            answer.material = answer.material or response.material
        return answer


def _of_response(response: Mapping[str, Any]) -> UpstreamAnswer:
    answer = UpstreamAnswer(_id(response.get("id")), _string(response.get("model"))[:MOST_NAME], whole=True)
    text, thoughts = list[str](), [_thought(response)]
    _add_usage(answer, response.get("usage"))
    answer.end(response.get("stop_reason"), _object(response.get("incomplete_details")).get("reason"))
    for choice in _objects(response.get("choices"))[:1]:
        message = _object(choice.get("message"))
        text.append(_content_text(message.get("content"), answer, ""))
        thoughts.append(_thought(message))
        # Annotations are citations of pages that the provider's search returned.
        answer.material = answer.material or bool(message.get("annotations"))
        answer.end(choice.get("finish_reason"), "refusal" if message.get("refusal") else None)
        for call in _objects(message.get("tool_calls")):
            function = _object(call.get("function"))
            answer.call(_string(function.get("name")), _plain(function.get("arguments")))
    for item in _objects(response.get("output")):
        if item.get("type") in ("message", None):
            text.append(_content_text(item.get("content"), answer, "\n"))
            answer.end(*(part.get("type") for part in _objects(item.get("content"))))
        elif item.get("type") == "reasoning":
            parts = [*_objects(item.get("summary")), *_objects(item.get("content"))]
            thoughts += [_string(part.get("text")) for part in parts]
        elif item.get("type") == "function_call":
            answer.call(_string(item.get("name")), _plain(item.get("arguments")))
        answer.material = answer.material or item.get("type") in SERVED
    text.append(_content_text(response.get("content"), answer, "\n"))
    for block in _objects(response.get("content")):
        answer.material = answer.material or _string(block.get("type")).endswith("_tool_result")
        if block.get("type") == "tool_use":
            answer.call(_string(block.get("name")), _plain(block.get("input")))
    answer.settle("\n".join(filter(None, text)), thoughts)
    contents = (response.get(name) for name in ("choices", "output", "content"))
    answer.failed = _reports_error(response)
    answer.unread = answer.unread or not (answer.failed or any(isinstance(value, list | str) for value in contents))
    return answer


def _reports_error(response: Mapping[str, Any]) -> bool:
    """Return whether a response or an event reports an error. Some servers send errors with status 200."""
    return bool(response.get("error")) or response.get("type") in ("error", "response.failed")


def _whole_characters(text: str) -> str:
    """Return a text with surrogate pairs joined and unpaired surrogates replaced, because no store accepts
    surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _content_text(content: Any, answer: UpstreamAnswer, between: str) -> str:
    """Return the text of an answer's message: its content, or its text parts joined by `between`. Set `unread` if the
    content has another shape."""
    if content is None or isinstance(content, str):
        return content or ""
    parts, texts = content if isinstance(content, list) else [content], list[str]()
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif not isinstance(part, dict):
            answer.unread = True
        elif (part.get("type") or "text") in _TEXTS:
            if isinstance(text := part.get("text"), str):
                texts.append(text)
            else:
                answer.unread = True
    return between.join(filter(None, texts))


def _thought(message: Mapping[str, Any]) -> str:
    """Return the thoughts in a message or a delta: from a separate field, or from parts of the content."""
    inner = [part.get("thinking") for part in _objects(message.get("content"))]
    own = message.get("reasoning_content") or message.get("reasoning")
    if not own and not inner:
        return ""
    parts = [
        "".join(_string(one.get("text")) for one in _objects(part)) if isinstance(part, list) else part
        for part in (own, *inner)
    ]  # fmt: skip
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def _add_usage(answer: UpstreamAnswer, usage: Any) -> None:
    """Add the usage in a response to an answer. A number that the usage lacks stays unchanged in the answer."""
    used = _object(usage)

    def tokens(name: str, of: Mapping[str, Any] = used) -> int:
        number = of.get(name)
        # In Python, a bool is an int.
        if type(number) is int and 0 <= number <= MOST_TOKENS:
            return number
        if number is not None:
            answer.wrong.add(name)
        return 0

    details = _object(used.get("prompt_tokens_details") or used.get("input_tokens_details"))
    # Anthropic's input tokens exclude tokens that were read from the cache or written to it.
    cache_tokens = tokens("cache_read_input_tokens") + tokens("cache_creation_input_tokens")
    answer.input_tokens = tokens("prompt_tokens") or tokens("input_tokens") + cache_tokens or answer.input_tokens
    answer.output_tokens = tokens("completion_tokens") or tokens("output_tokens") or answer.output_tokens
    cached = tokens("cached_tokens", details) or tokens("cache_read_input_tokens")
    answer.cached_tokens = cached or answer.cached_tokens
    written = tokens("cache_write_tokens", details) or tokens("cache_creation_input_tokens")
    answer.cache_write_tokens = written or answer.cache_write_tokens


def _decoded(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object. None if the data is not a JSON object, or has too many values."""
    if is_dense(data):
        return None
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            # The json package also reads NaN in logprobs, and surrogates that were split between two events.
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return _whole_characters(value) if isinstance(value, str) else ""


def _id(value: Any) -> str:
    """Return an id, or an empty text if `value` is too long or not a text."""
    return _string(value) if isinstance(value, str) and len(value) <= MOST_NAME else ""


def _piece(arguments: Any) -> str:
    """Return a piece of a call's arguments. The piece may end within a surrogate pair."""
    return arguments if isinstance(arguments, str) else _plain(arguments) if arguments else ""


def with_metadata(response: bytes, metadata: Mapping[str, str]) -> bytes:
    """Return a response of the protocol `responses` with `metadata` added to the metadata of the response. Return any
    other body unchanged."""
    if is_dense(response):
        return response
    try:
        fields = msgspec.json.decode(response, type=dict[str, Raw])
        own = msgspec.json.decode(fields["metadata"], type=dict[str, Any] | None) or {}
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError):
        return response
    fields["metadata"] = _raw({**own, **metadata})
    return b"{" + b",".join(_encode(name) + b":" + bytes(value) for name, value in fields.items()) + b"}"
