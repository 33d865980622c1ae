"""Conversion of stored messages to items.

The messages of OpenAI (chat completions and Responses), Anthropic and Bedrock, and the message parts of OpenTelemetry
are supported. A part that is not text (an image, a file) becomes its type in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic_core import to_json

from practicum.tasks.traces.fields import Warn, text_at
from practicum.tasks.traces.trace import Item

_KIND_OF_ROLE = {"system": "system", "developer": "system", "user": "user", "assistant": "message"}
_KIND_OF_ROLE |= {"tool": "observation", "function": "observation", "model": "message"}  # "model" is Gemini's role
# Types of parts.
_TEXTS = {"text", "input_text", "output_text"}
_THOUGHTS = {"thinking", "reasoning", "summary_text", "reasoning_text"}
_CALLS = {"tool_use", "tool_call", "function_call", "custom_tool_call", "server_tool_use", "server_tool_call"}
_RESULTS = {
    *("tool_result", "tool_call_response", "function_call_output", "custom_tool_call_output"),
    *("server_tool_call_response", "web_search_tool_result"),
}
_MEDIA = {"image", "image_url", "input_image", "audio", "input_audio", "video", "document", "file", "input_file"}
_NOT_TEXT = _MEDIA | {"file_data", "blob", "uri"}
_CALL_ID_FIELDS = ("call_id", "tool_use_id", "tool_call_id", "toolUseId", "id")


def items_of_messages(messages: Iterable[Any], warn: Warn) -> Iterator[Item]:
    for message in messages:
        if isinstance(message, Mapping):
            yield from items_of_message(message, warn)
        else:
            warn("a message that is not an object")


def items_of_message(message: Mapping[str, Any], warn: Warn) -> Iterator[Item]:
    """Yield the items of one message: its thoughts, its content, its tool calls."""
    if message.get("object") == "response" and isinstance(message.get("output"), list):
        yield from items_of_messages(message["output"], warn)
        return
    if "role" not in message and isinstance(message.get("type"), str):
        yield from _items_of_part(message, "message", warn)
        return
    role = message.get("role")
    kind = _KIND_OF_ROLE.get(role, "") if isinstance(role, str) else ""
    if not kind:
        warn(f"a message of unknown role {role!r:.40}; its text is kept")
        kind = str(role)[:40].strip() or "unknown"
    if thought := text_at(message, "reasoning_content", "reasoning"):
        yield Item("thought", thought)
    call_id = text_at(message, "tool_call_id", "id") if kind == "observation" else ""
    yield from items_of_content(message.get("content", message.get("parts")), kind, warn, call_id)
    if refusal := text_at(message, "refusal"):
        yield Item("message", refusal)
    calls = message.get("tool_calls")
    for call in [*(calls if isinstance(calls, list) else ()), message.get("function_call")]:
        if isinstance(call, Mapping):
            yield _call_item(call)
        elif call is not None:
            warn("a tool call that is not an object")


def items_of_content(content: Any, kind: str, warn: Warn, call: str = "") -> Iterator[Item]:
    """Yield the items of a message's content: a text, a part, or a list of texts and parts. `call`: id of the tool call
    for items of `kind` that have no such id. Consecutive items with the same kind and the same id of a call are joined,
    except actions."""
    items = (i._replace(call=i.call or call) if i.kind == kind else i for i in _items_of_parts(content, kind, warn))
    for (item_kind, item_call), neighbours in groupby(items, key=lambda item: (item.kind, item.call)):
        if item_kind == "action":
            yield from neighbours
        else:
            yield Item(item_kind, "\n".join(item.text for item in neighbours), item_call)


def action_item(name: Any, arguments: Any, call: str = "") -> Item:
    """Return a tool call as an item with the text `name(arguments)`."""
    text = arguments if isinstance(arguments, str) else as_json(arguments)
    return Item("action", f"{name}({text})" if name else text, call)


def result_text(value: Any, warn: Warn) -> str:
    """Return a tool's result as text: a string unchanged, the texts of its parts, or JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(_is_part(item) for item in value):
        return "\n".join(item.text for item in _items_of_parts(value, "observation", warn))
    return as_json(value)


def as_json(value: Any) -> str:
    """Return a JSON value as text."""
    return to_json(value).decode()


def _is_part(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return isinstance(item, str)
    kind = item.get("type")  # any value is possible: if a result is a database schema, its columns have a `type`, too
    return (isinstance(kind, str) and kind in _TEXTS | _NOT_TEXT) or list(item) == ["text"]


def _items_of_parts(content: Any, kind: str, warn: Warn) -> Iterator[Item]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield Item(kind, part)
        elif isinstance(part, Mapping):
            yield from _items_of_part(part, kind, warn)
        elif part is not None:
            yield Item(kind, as_json(part))


def _items_of_part(part: Mapping[str, Any], kind: str, warn: Warn) -> Iterator[Item]:
    name = part.get("type")
    if not isinstance(name, str):  # in Bedrock, a part's only key is its type
        match part:
            case {"text": str(text)}:
                yield Item(kind, text)
            case {"toolUse": Mapping() as call}:
                yield _call_item(call)
            case {"toolResult": Mapping() as result}:
                yield _result_item(result, warn)
            case {"reasoningContent": Mapping() as thought}:
                yield Item("thought", text_at(thought, "reasoningText/text"))
            case _:
                yield Item(kind, as_json(part))
    elif name in _TEXTS:
        yield Item(kind, text_at(part, "text", "content"))
    elif name == "refusal":
        yield Item("message", text_at(part, "refusal"))
    elif name in _THOUGHTS:
        if text := text_at(part, "thinking", "content", "text"):
            yield Item("thought", text)
            return
        for key in ("summary", "content"):
            for item in _items_of_parts(part.get(key), "thought", warn):
                yield item._replace(kind="thought")
    elif name in _CALLS:
        yield _call_item(part)
    elif name in _RESULTS:
        yield _result_item(part, warn)
    elif name in _NOT_TEXT:
        warn(f"a part that is not text ({name}) is shown as [{name}]")
        yield Item(kind, f"[{name}]")
    elif name != "redacted_thinking":  # skipped, because it is encrypted
        warn(f"a part of unknown type {name!r:.40}")
        yield Item(kind, text_at(part, "text", "content"))


def _call_item(call: Mapping[str, Any]) -> Item:
    inner = next((part for key in ("function", "custom") if isinstance(part := call.get(key), Mapping)), call)
    keys = ("input", "arguments", "server_tool_call")
    arguments = next((inner[key] for key in keys if inner.get(key) not in (None, {}, "{}")), "")
    return action_item(inner.get("name"), arguments, text_at(call, *_CALL_ID_FIELDS))


def _result_item(part: Mapping[str, Any], warn: Warn) -> Item:
    keys = ("content", "response", "result", "output", "server_tool_call_response")
    result = next((part[key] for key in keys if part.get(key) is not None), None)
    return Item("observation", result_text(result, warn), text_at(part, *_CALL_ID_FIELDS))
