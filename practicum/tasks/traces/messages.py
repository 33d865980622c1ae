"""The words of a message, whichever API it was written for.

Read are the messages of OpenAI (chat completions and Responses), of Anthropic and of Bedrock, and the parts of
OpenTelemetry. What is no text (an image, a file) is shown by its name in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import to_json

from practicum.tasks.traces.trace import ACTION, MESSAGE, OBSERVATION, SYSTEM, THOUGHT, USER, Odd, Word, text_of

_KINDS = {
    "system": SYSTEM,
    "developer": SYSTEM,
    "user": USER,
    "assistant": MESSAGE,
    "model": MESSAGE,  # as Gemini has it
    "tool": OBSERVATION,
    "function": OBSERVATION,
}
_TEXTS = frozenset({"text", "input_text", "output_text"})
_THOUGHTS = frozenset({"thinking", "reasoning", "summary_text", "reasoning_text"})
_CALLS = frozenset(
    {"tool_use", "tool_call", "function_call", "custom_tool_call", "server_tool_use", "server_tool_call"}
)
_RESULTS = frozenset(
    {
        "tool_result",
        "tool_call_response",
        "function_call_output",
        "custom_tool_call_output",
        "server_tool_call_response",
        "web_search_tool_result",
    }
)
_MEDIA = ("image", "image_url", "input_image", "audio", "input_audio", "video", "document", "file", "input_file")
_NO_TEXT = frozenset({*_MEDIA, "file_data", "blob", "uri"})
_CALL_IDS = ("call_id", "tool_use_id", "tool_call_id", "toolUseId", "id")


def of_messages(messages: Iterable[Any], odd: Odd) -> Iterator[Word]:
    """The words of messages, in their order."""
    for message in messages:
        if isinstance(message, Mapping):
            yield from of_message(message, odd)
        else:
            odd("a message that is not an object")


def of_message(message: Mapping[str, Any], odd: Odd) -> Iterator[Word]:
    """The words of one message: what was thought, said, called or answered by a tool, in this order."""
    if message.get("object") == "response" and isinstance(message.get("output"), list):
        yield from of_messages(message["output"], odd)
        return
    if "role" not in message and isinstance(message.get("type"), str):
        yield from _of_part(message, MESSAGE, odd)
        return
    kind = kind_of(message.get("role"), odd)
    if thought := text_of(message, "reasoning_content", "reasoning"):
        yield Word(THOUGHT, thought)
    content = message.get("content", message.get("parts"))
    yield from of_content(content, kind, odd, text_of(message, "tool_call_id", "id") if kind == OBSERVATION else "")
    if refusal := text_of(message, "refusal"):
        yield Word(MESSAGE, refusal)
    calls = message.get("tool_calls")
    for call in [*(calls if isinstance(calls, list) else ()), message.get("function_call")]:
        if isinstance(call, Mapping):
            yield call_of(call)
        elif call is not None:
            odd("a tool call that is not an object")


def kind_of(role: Any, odd: Odd) -> str:
    """What one who speaks as `role` says. A role that is not known is odd, and stays as the kind of its words."""
    if isinstance(role, str) and role in _KINDS:
        return _KINDS[role]
    odd(f"a role that is not known ({role!r:.40}); its words are kept")
    return str(role)[:40].strip() or "unknown"


def of_content(content: Any, kind: str, odd: Odd, call: str = "") -> Iterator[Word]:
    """The words of a message's content: a text, a part, or a list of both. Neighbours of one kind are one word."""
    last: Word | None = None
    for word in _of_items(content, kind, odd):
        word = word._replace(call=word.call or call) if word.kind == kind else word
        if last is not None and (last.kind, last.call) == (word.kind, word.call) and word.kind != ACTION:
            last = last._replace(text=f"{last.text}\n{word.text}")
            continue
        if last is not None:
            yield last
        last = word
    if last is not None:
        yield last


def call_of(call: Mapping[str, Any]) -> Word:
    """A tool call, as `name(arguments)` with the arguments as JSON."""
    inner = next((part for key in ("function", "custom") if isinstance(part := call.get(key), Mapping)), call)
    keys = ("input", "arguments", "server_tool_call")
    arguments = next((inner[key] for key in keys if inner.get(key) not in (None, {}, "{}")), "")
    return action(inner.get("name"), arguments, text_of(call, *_CALL_IDS))


def action(name: Any, arguments: Any, call: str = "") -> Word:
    """What was called and with what."""
    shown = arguments if isinstance(arguments, str) else as_json(arguments)
    return Word(ACTION, f"{name}({shown})" if name else shown, call)


def plain(value: Any, odd: Odd) -> str:
    """A tool's result as text: as it is, the texts of its parts, or JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(_is_part(item) for item in value):
        return "\n".join(word.text for word in _of_items(value, OBSERVATION, odd))
    return as_json(value)


def as_json(value: Any) -> str:
    """Any JSON value as text."""
    return to_json(value).decode()


def _is_part(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return isinstance(item, str)
    # The type may be anything: a column of a schema has one, too.
    kind = item.get("type")
    return (isinstance(kind, str) and kind in _TEXTS | _NO_TEXT) or list(item) == ["text"]


def _of_items(content: Any, kind: str, odd: Odd) -> Iterator[Word]:
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str):
            yield Word(kind, item)
        elif isinstance(item, Mapping):
            yield from _of_part(item, kind, odd)
        elif item is not None:
            yield Word(kind, as_json(item))


def _of_part(part: Mapping[str, Any], kind: str, odd: Odd) -> Iterator[Word]:
    name = part.get("type")
    if not isinstance(name, str):
        yield from _of_untyped(part, kind, odd)
    elif name in _TEXTS:
        yield Word(kind, text_of(part, "text", "content"))
    elif name == "refusal":
        yield Word(MESSAGE, text_of(part, "refusal"))
    elif name in _THOUGHTS:
        yield from _thoughts(part, odd)
    elif name in _CALLS:
        yield call_of(part)
    elif name in _RESULTS:
        keys = ("content", "response", "result", "output", "server_tool_call_response")
        result = next((part[key] for key in keys if part.get(key) is not None), None)
        yield Word(OBSERVATION, plain(result, odd), text_of(part, *_CALL_IDS))
    elif name in _NO_TEXT:
        odd(f"a part that is no text ({name}); it is shown as [{name}]")
        yield Word(kind, f"[{name}]")
    elif name != "redacted_thinking":  # which holds nothing that could be read
        odd(f"a part of a kind that is not known ({name!r:.40})")
        yield Word(kind, text_of(part, "text", "content"))


def _thoughts(part: Mapping[str, Any], odd: Odd) -> Iterator[Word]:
    if text := text_of(part, "thinking", "content", "text"):
        yield Word(THOUGHT, text)
        return
    for key in ("summary", "content"):
        for word in _of_items(part.get(key), THOUGHT, odd):
            yield word._replace(kind=THOUGHT)


def _of_untyped(part: Mapping[str, Any], kind: str, odd: Odd) -> Iterator[Word]:
    """Parts of Bedrock name their type by their only key."""
    called, result, thought = (part.get(key) for key in ("toolUse", "toolResult", "reasoningContent"))
    if isinstance(part.get("text"), str):
        yield Word(kind, part["text"])
    elif isinstance(called, Mapping):
        yield call_of(called)
    elif isinstance(result, Mapping):
        yield Word(OBSERVATION, plain(result.get("content"), odd), text_of(result, *_CALL_IDS))
    elif isinstance(thought, Mapping):
        yield Word(
            THOUGHT, text_of(inner if isinstance(inner := thought.get("reasoningText"), Mapping) else {}, "text")
        )
    else:
        yield Word(kind, as_json(part))
