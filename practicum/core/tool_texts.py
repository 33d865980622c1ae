"""Descriptions of an agent's tools and of their parameters as entries of a context, so that a method edits them as it
edits every entry.

The text of an entry begins with the name of the tool or parameter, as in `send_email: Sends an e-mail.` or
`send_email(recipient): The address.`. The agent sees the texts in place of the original descriptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from practicum.core.context import Context
from practicum.core.edits import Add
from practicum.core.visible import visible_to_model

SECTION = "tool descriptions"
"""Section of the descriptions."""

TOOL = "tool"
"""Key of an entry's data that holds the name of the tool, and with `parameter` the name of the parameter."""

ToolTexts = Mapping[tuple[str, str], str]
"""(tool, parameter) → description. The description of the tool itself has an empty parameter."""


class Tool(NamedTuple):
    """Definition of a tool. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


def tool_entries(tools: Iterable[Tool]) -> Iterator[Add]:
    """Yield an entry for the description of each tool, and of each parameter that has one."""
    for tool in tools:
        data = {TOOL: tool.name, "schema": dict(tool.schema)}
        yield Add(SECTION, f"{tool.name}: {tool.description}".strip(), data=data, sources=("seed",))
        for name, parameter in _parameters(tool.schema).items():
            if text := parameter.get("description"):
                data = {TOOL: tool.name, "parameter": name}
                yield Add(SECTION, f"{tool.name}({name}): {text}", data=data, sources=("seed",))


def tool_texts(context: Context) -> ToolTexts:
    """Return the descriptions in a context, as a model may see them."""
    texts: dict[tuple[str, str], str] = {}
    for entry in context.in_section(SECTION):
        named = _NAMED.match(entry.text)
        # An edit may remove the name from the text; an entry that a person or a curator adds has no data.
        tool, parameter = entry.data.get(TOOL), entry.data.get("parameter", "")
        if tool is None and named is not None:
            tool, parameter = named["tool"], named["parameter"] or ""
        if isinstance(tool, str) and isinstance(parameter, str):
            same = named is not None and (named["tool"], named["parameter"] or "") == (tool, parameter)
            texts[tool, parameter] = visible_to_model(entry.text[named.end() :] if named and same else entry.text)
    return texts


_NAMED = re.compile(r"(?P<tool>[\w.-]+)(?:\((?P<parameter>[\w.-]+)\))?\s*:\s*")
"""Name at the beginning of a description."""


def stored_tools(context: Context) -> list[Tool]:
    """Return the tools whose definitions are stored in a context, with the descriptions of the context."""
    schemas = {e.data[TOOL]: e.data["schema"] for e in context.in_section(SECTION) if "schema" in e.data}
    texts = tool_texts(context)
    return [with_texts(Tool(name, "", schema), texts) for name, schema in schemas.items()]


def with_texts(tool: Tool, texts: ToolTexts) -> Tool:
    """Return a tool with these descriptions. Without a description in `texts`, the description of the tool stays."""
    schema: dict[str, Any] = deepcopy(dict(tool.schema))
    for name, parameter in _parameters(schema).items():
        if (text := texts.get((tool.name, name))) is not None:
            parameter["description"] = text
    return Tool(tool.name, texts.get((tool.name, ""), tool.description), schema)


def read_tools(value: Any) -> list[Tool]:
    """Return the tools in a JSON value: the result of MCP's `tools/list`, or the `tools` of a request in the format of
    OpenAI or Anthropic. The list is empty if the value holds no tools."""
    value = value.get("result", value) if isinstance(value, Mapping) else value
    listed = value.get("tools") if isinstance(value, Mapping) else None
    return [tool for tool, _, _ in map(_definition, listed if isinstance(listed, list) else ()) if tool is not None]


def described(item: Any, texts: ToolTexts) -> Any:
    """Return a tool of a request, as JSON in the format of OpenAI or Anthropic, with these descriptions. Everything
    else in the JSON is unchanged."""
    tool, fields, key = _definition(item)
    if tool is None or not any(name == tool.name for name, _ in texts):
        return item
    changed = with_texts(tool, texts)
    new = {"description": changed.description, key: changed.schema}
    fields = {**fields, **{name: value for name, value in new.items() if value or name in fields}}
    return {**item, "function": fields} if "function" in item else fields


def _definition(item: Any) -> tuple[Tool | None, Mapping[str, Any], str]:
    """Return the tool in a JSON value, the mapping with its fields, and the name of the field with the schema. The
    tool is None if the value is not a definition of a tool."""
    fields = item.get("function", item) if isinstance(item, Mapping) else None
    if not isinstance(fields, Mapping) or not isinstance(name := fields.get("name"), str) or not name:
        return None, {}, ""
    key = next((key for key in _SCHEMAS if isinstance(fields.get(key), Mapping)), "parameters")
    return Tool(name, str(fields.get("description") or ""), fields.get(key) or {}), fields, key


_SCHEMAS = ("inputSchema", "input_schema", "parameters")
"""Fields with the schema of a tool: in MCP, in Anthropic's and in OpenAI's protocol."""


def _parameters(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    properties = schema.get("properties")
    items = properties.items() if isinstance(properties, Mapping) else ()
    return {name: parameter for name, parameter in items if isinstance(parameter, dict)}
