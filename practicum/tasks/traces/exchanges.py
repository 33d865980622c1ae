"""Conversion of the requests and responses of model providers to items.

The requests and responses of OpenAI (chat completions, Responses, completions), Anthropic, Gemini, Bedrock, LangChain
and the AI SDK are supported, as JSON values or as JSON texts. Messages and parts that `messages` cannot read are first
rewritten to the form of OpenAI: LangChain names the role of a message in `type`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from practicum.tasks.traces.fields import Warn, object_at, text_at, value_at
from practicum.tasks.traces.messages import items_of_content, items_of_message
from practicum.tasks.traces.trace import Item

_SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction")
_REQUEST = ("messages", "input", "contents", "prompt", "prompts", "new_message")
_RESPONSE = ("generations", "choices", "candidates", "messages", "message", "output", "content", "completion")
_BATCHES = ("generations", "choices", "candidates", "prompts")
"""Lists whose first item is read: the further items are alternatives, or other requests of a batch."""

_LANGCHAIN = {"human": "user", "ai": "assistant", "chat": "user"}
_LANGCHAIN |= {role: role for role in ("system", "developer", "tool", "function", "remove")}
_RESPONSES_ITEM = re.compile(r"message|reasoning|\w+_call(_output)?")
_MOST_ENCODINGS = 3


def request_items(value: Any, warn: Warn) -> list[Item]:
    """Return the items of a request: the system message, then the messages. A text is a message of the user. The list
    is empty if the value has no messages in a known form."""
    value = unquoted(value)
    if not isinstance(value, Mapping) or _is_message(value):
        return _items(value, "user", warn)
    system = next((part for at in (value, value.get("config")) for key in _SYSTEM if (part := value_at(at, key))), None)
    key = next((key for key in _REQUEST if value.get(key)), "")
    content = _first(value[key]) if key in _BATCHES else value.get(key)
    if isinstance(content, Mapping) and not _is_message(content):
        return _items(system, "system", warn) + request_items(content, warn)
    return _items(system, "system", warn) + _items(content, "user", warn)


def response_items(value: Any, warn: Warn) -> list[Item]:
    """Return the items of a response. Of several choices, the first is read. A text is a message of the agent. The list
    is empty if the value has no message in a known form."""
    value = unquoted(value)
    if not isinstance(value, Mapping) or _is_message(value):
        return _items(value, "message", warn)
    if key := next((key for key in _RESPONSE if value.get(key)), ""):
        return response_items(_first(value[key]) if key in _BATCHES else value[key], warn)
    calls = value.get("toolCalls")
    parts = [value.get("text"), *(calls if isinstance(calls, list) else ())]
    return _items([part for part in parts if part and isinstance(part, str | Mapping)], "message", warn)


def unquoted(value: Any) -> Any:
    """Parse a JSON text, which may be encoded several times. Return any other value unchanged."""
    for _ in range(_MOST_ENCODINGS):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = from_json(value)
        except ValueError:
            break
    return value


def is_tool_message(value: Any) -> bool:
    """Return whether a value is the result of a tool as a LangChain message."""
    return isinstance(value, Mapping) and value.get("type") == "tool" and "tool_call_id" in value


def _items(value: Any, kind: str, warn: Warn) -> list[Item]:
    """Return the items of a text, a message, a list of messages, or of the parts of a message of `kind`."""
    if isinstance(value, Mapping) and "parts" in value and "role" not in value:
        return _items(value["parts"], kind, warn)
    values = value if isinstance(value, list) else [value]
    if any(isinstance(item, list) for item in values) and not any(map(_is_pair, values)):
        return _items(values[0], kind, warn)
    if not any(_is_pair(item) or _is_message(item) for item in values):
        return list(items_of_content(_parts(values), kind, warn))
    items: list[Item] = []
    for message in filter(None, map(_message, values)):
        items += items_of_message(message, warn)
    return items


def _first(value: Any) -> Any:
    """Return the first item of a list, or of the first of nested lists. Return any other value unchanged."""
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _is_pair(value: Any) -> bool:
    """Return whether a value is a message as role and text, such as `["human", "Hello"]`."""
    return isinstance(value, list) and len(value) == 2 and value[0] in ("user", "assistant", *_LANGCHAIN)


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    type = value.get("type")
    if isinstance(value.get("role"), str) or value.get("lc") is not None:
        return True
    if not isinstance(type, str):
        return False
    return (_role(type) in _LANGCHAIN and ("content" in value or "data" in value)) or bool(
        _RESPONSES_ITEM.fullmatch(type)
    )


def _role(type: str) -> str:
    """Return the role in a type or class of LangChain, such as "ai" of `AIMessageChunk`."""
    return re.sub(r"Message(Chunk)?$", "", type).lower()


def _message(value: Any) -> Mapping[str, Any] | None:
    """Return a message in the form of OpenAI; None if the value is not shown to the model."""
    if isinstance(value, str):
        return {"role": "user", "content": value}
    if _is_pair(value):
        return {"role": _LANGCHAIN.get(value[0], value[0]), "content": value[1]}
    if not isinstance(value, Mapping):
        return None
    fields, type = value, value.get("type")
    if value.get("lc") is not None:  # a LangChain object: its class is the last part of `id`
        name = value.get("id")
        type = name[-1] if isinstance(name, list) and name else None
        fields = object_at(value, "kwargs") or {"content": text_at(value, "repr")}
    elif "role" not in value and isinstance(value.get("data"), Mapping):
        fields = value["data"]
    role = fields.get("role")
    if not isinstance(role, str):
        role = _LANGCHAIN.get(_role(type) if isinstance(type, str) else "", "")
        if not role:
            return fields  # an item of the Responses API
    more = object_at(fields, "additional_kwargs")
    if role == "remove" or (role == "tool" and value_at(fields, "content/function")):  # a definition of a tool
        return None
    if more.get("lc_source") == "summarization":  # a summary of earlier turns, which LangChain stores as the user's
        role = "system"
    lists = (fields.get("tool_calls") or more.get("tool_calls"), fields.get("invalid_tool_calls"))
    calls = [call for calls in lists if isinstance(calls, list) for call in calls]
    content = _parts(fields.get("content", fields.get("parts")))
    if calls and isinstance(content, list):
        content = [part for part in content if not (isinstance(part, Mapping) and part.get("type") == "tool_use")]
    return {
        **{key: fields[key] for key in ("function_call", "tool_call_id") if key in fields},
        **{key: text_at(fields, key) or text_at(more, key) for key in ("reasoning_content", "reasoning", "refusal")},
        "role": role,
        "content": content,
        "tool_calls": calls,
    }


def _parts(content: Any) -> Any:
    if isinstance(content, list):
        return [_part(part) if isinstance(part, Mapping) else part for part in content]
    return _part(content) if isinstance(content, Mapping) else content


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of a message in a form that `messages` reads."""
    if "toolName" in part and "type" not in part:  # AI SDK
        result = part.get("output", part.get("result"))
        return {**part, "type": "tool-call" if result is None else "tool-result"}
    if part.get("type") == "input_json_delta":
        return {"type": "text", "text": ""}
    return part
