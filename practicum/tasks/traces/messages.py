"""Conversion of stored messages to items.

The messages of OpenAI (chat completions and Responses), Anthropic, Bedrock, Gemini and the Vercel AI SDK, and the
message parts of OpenTelemetry are supported. An image becomes its mark (see `core.images`). Another part that is not
text becomes its medium in brackets: [audio], [video] or [file], or [image] for an image without an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from pydantic_core import to_json

from practicum.core.images import Images, address_in, mark, marked
from practicum.core.types import Step, Turn
from practicum.tasks.traces.fields import Warn, decoded, objects_in, text_at, value_at
from practicum.tasks.traces.trace import Item

_KINDS = {
    "system": "system developer sys",
    "user": "user human prompter",
    "message": "assistant model gpt chatgpt claude bard bing chatbot bot ai",
    "observation": "tool function observation tool_response function_response function-response tool_result ipython",
    "action": "function_call tool_call function-call",
    "": "data",  # data of an application that uses the AI SDK
}
_KIND_OF_ROLE = {role: kind for kind, roles in _KINDS.items() for role in roles.split()}
# Types of parts. The types of tool calls and of their results are recognized by their ends.
_TEXTS = {"text", "input_text", "output_text"}
_THOUGHTS = {"thinking", "reasoning", "summary_text", "reasoning_text"}
_CALL_ENDS = ("tool_use", "tool_call", "tool-call", "_call")
_RESULT_ENDS = ("tool_result", "tool-result", "_call_output", "_call_response")
_MEDIA = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "document": "file",
    "file": "file",
    "blob": "file",
    "uri": "file",
}
"""Word in the type of a part that is not text → medium."""
_SKIPPED = {
    *("redacted_thinking", "redacted-reasoning", "encrypted_content"),  # encrypted
    *("step-start", "source-url", "source-document", "source"),  # of the AI SDK
    *("tool-approval-request", "tool-approval-response", "reasoning-file"),  # of the AI SDK
    *("mcp_list_tools", "additional_tools", "configuration_update", "ghost_snapshot"),
    *("compaction", "context_compaction", "compaction_trigger"),
}
_CALL_ID_FIELDS = ("call_id", "tool_use_id", "tool_call_id", "toolUseId", "toolCallId", "id")
_ARGUMENTS = ("input", "arguments", "args", "server_tool_call", "action", "code", "queries", "rawInput")
_CALL_RESULTS = ("output", "outputs", "results", "error")


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
    role = message.get("role", message.get("from"))
    kind = _KIND_OF_ROLE.get(role.lower()) if isinstance(role, str) else None
    if kind is None:
        warn(f"a message of unknown role {role!r:.40}; its text is kept")
        kind = str(role)[:40].strip() or "unknown"
    if not kind:
        return
    content = next((message[key] for key in ("content", "value", "text") if message.get(key) is not None), None)
    if kind == "action":  # of ShareGPT: one call or several as JSON
        for call in calls if isinstance(calls := decoded(content), list) else [calls]:
            yield from _call_items(call, warn) if isinstance(call, Mapping) else [action_item("", call)]
        return
    if parts := message.get("parts"):  # version 4 of the AI SDK repeats the parts in other fields
        yield from items_of_content(parts, kind, warn)
        return
    if thought := text_at(message, "reasoning_content", "reasoning"):
        yield Item("thought", thought)
    if "toolInvocations" in message:  # of early versions of the AI SDK
        for part in objects_in(message, "toolInvocations", warn):
            yield from _call_items(part, warn)
    call_id = text_at(message, "tool_call_id", "id") if kind == "observation" else ""
    yield from items_of_content(content, kind, warn, call_id)
    if refusal := text_at(message, "refusal"):
        yield Item("message", refusal)
    calls = message.get("tool_calls")
    for call in [*(calls if isinstance(calls, list) else ()), message.get("function_call")]:
        if isinstance(call, Mapping):
            yield from _call_items(call, warn)
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
            joined = [*neighbours]
            images = tuple(address for item in joined for address in item.images)
            yield Item(item_kind, "\n".join(item.text for item in joined), item_call, images)


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
    return (isinstance(kind, str) and (kind in _TEXTS or bool(_medium(item, kind)))) or list(item) == ["text"]


def _medium(part: Mapping[str, Any], type: str) -> str:
    """Return the medium of a part that is not text: image, audio, video or file; empty for other parts."""
    words = re.split(r"[_\-/]", f"{text_at(part, 'mediaType', 'mimeType', 'mime_type', 'mime')}/{type}")
    return next((_MEDIA[word] for word in words if word in _MEDIA), "")


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
    if not isinstance(name, str):
        yield from _items_of_untyped(part, kind, warn)
    elif name in _TEXTS:
        yield Item(kind, text_at(part, "text", "content"))
    elif name == "refusal":
        yield Item("message", text_at(part, "refusal"))
    elif name in _THOUGHTS:
        if text := text_at(part, "thinking", "content", "text", "reasoning"):
            yield Item("thought", text)
            return
        for key in ("summary", "content"):
            for item in _items_of_parts(part.get(key), "thought", warn):
                yield item._replace(kind="thought")
    elif name in _SKIPPED or name.startswith("data-"):
        return
    elif name.endswith(_RESULT_ENDS):
        yield _result_item(part, warn)
    elif name.endswith(_CALL_ENDS) or "toolCallId" in part or name == "tool-invocation":
        yield from _call_items(part, warn)
    elif address := address_in(part):
        yield Item(kind, mark(address), images=(address,))
    elif medium := _medium(part, name):
        warn(f"a part that is not text is shown as [{medium}]")
        yield Item(kind, f"[{medium}]")
    elif name == "steering-message":  # of the AI SDK: a message of the user during the agent's turn
        yield from items_of_content(part.get("parts"), "user", warn)
    else:
        warn(f"a part of unknown type {name!r:.40}")
        yield Item(kind, text_at(part, "text", "content"))


def _items_of_untyped(part: Mapping[str, Any], kind: str, warn: Warn) -> Iterator[Item]:
    """Yield the items of a part without a type. Bedrock and Gemini write such parts: a key names the content."""
    match part:
        case {"text": str(text)}:
            yield Item("thought" if part.get("thought") is True else kind, text)
        case (
            {"toolUse": Mapping() as call} | {"functionCall": Mapping() as call} | {"function_call": Mapping() as call}
        ):
            yield from _call_items(call, warn)
        case (
            {"toolResult": Mapping() as result}
            | {"functionResponse": Mapping() as result}
            | {"function_response": Mapping() as result}
        ):
            yield _result_item(result, warn)
        case {"reasoningContent": Mapping() as thought}:
            yield Item("thought", text_at(thought, "reasoningText/text"))
        case (
            {"image": Mapping() as media}
            | {"inlineData": Mapping() as media}
            | {"inline_data": Mapping() as media}
            | {"fileData": Mapping() as media}
        ):
            address = address_in(part)
            text = mark(address) if address else f"[{_medium(media, 'image' if 'image' in part else 'file')}]"
            yield Item(kind, text, images=(address,) if address else ())
        case _:
            yield Item(kind, as_json(part))


def _call_items(call: Mapping[str, Any], warn: Warn) -> Iterator[Item]:
    """Yield a tool call, and its result if the call holds the result too."""
    keys = ("function", "custom", "toolInvocation")
    inner = next((part for key in keys if isinstance(part := call.get(key), Mapping)), call)
    id, type = text_at(inner, *_CALL_ID_FIELDS) or text_at(call, *_CALL_ID_FIELDS), text_at(call, "type")
    arguments = next((inner[key] for key in _ARGUMENTS if inner.get(key) not in (None, {}, "{}", [])), "")
    name = text_at(inner, "name", "toolName") or re.sub(r"^tool-|_call$", "", type)
    if owner := text_at(inner, "server_label", "namespace"):
        name = f"{owner}.{name}"
    yield action_item(name, arguments, id)
    if "state" in inner:  # of the AI SDK
        results: tuple[str, ...] = ("output", "result", "errorText", "approval/reason")
    else:
        results = _CALL_RESULTS if type.endswith("_call") else ()
    result = next((value for key in results if (value := value_at(inner, key)) not in (None, [], "")), None)
    if result is not None and inner.get("preliminary") is not True:
        yield Item("observation", result_text(result, warn), id)


def _result_item(part: Mapping[str, Any], warn: Warn) -> Item:
    keys = ("content", "response", "result", "output", "server_tool_call_response")
    result = next((part[key] for key in keys if part.get(key) is not None), None)
    match result:
        case {"type": "text" | "error-text" | "json" | "error-json" | "content", "value": value}:  # of the AI SDK
            result = value
        case {"type": "execution-denied"}:
            result = f"denied: {text_at(result, 'reason')}"
        case {"output": str(value), **more} | {"error": str(value), **more} if not more:  # of Gemini
            result = value
        case str() if result.startswith('{"output":'):  # of early versions of Codex
            result = text_at(decoded(result), "output") or result
    return Item("observation", result_text(result, warn), text_at(part, *_CALL_ID_FIELDS))


class Conversation(NamedTuple):
    """Messages up to the user's last message (`input`), and the agent's `answer` to it, which is empty if the last
    message is the user's. `system` is the system message, `history` has the earlier turns, and `images` are the images
    of the user's messages."""

    system: str
    history: tuple[Turn, ...]
    input: str
    answer: str
    images: Images


def conversation(items: Iterable[Item]) -> Conversation:
    """Return items as a conversation. Tool calls and their results become lines of the agent's turns."""
    system: list[str] = []
    turns: list[tuple[list[str], list[str]]] = []
    """Messages of the user, and of the agent after them."""
    items = [item for item in items if item.text.strip()]
    images = marked(address for item in items if item.kind == "user" for address in item.images)
    for kind, text in ((item.kind, item.text.strip()) for item in items):
        if kind == "system":
            system.append(text)
        elif kind == "user":
            if not turns or turns[-1][1]:
                turns.append(([], []))
            turns[-1][0].append(text)
        elif kind != "thought":
            if not turns:
                turns.append((["…"], []))  # the agent begins
            turns[-1][1].append(text if kind == "message" else Step(kind, text).line)
    last = turns.pop() if turns else ([], [])
    history = tuple(Turn("\n\n".join(user), "\n".join(agent)) for user, agent in turns)
    return Conversation("\n\n".join(system), history, "\n\n".join(last[0]), "\n".join(last[1]), images)


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of chat messages."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(item, Mapping) and not {"role", "from"}.isdisjoint(item) for item in value)


def conversation_of(messages: list[Any]) -> Conversation:
    """Return a list of chat messages as a conversation."""
    return conversation(items_of_messages(messages, accept))


def accept(reason: str) -> None:
    """Accept a part of a task that is not text: its medium in brackets is the text."""
