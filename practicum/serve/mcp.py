"""The server of the Model Context Protocol: the tools of `serve.tools`, and the playbook as resources.

Who calls, and how an operation of the service is reached, is a `ToolCaller`: `mcp_http` has the service in its process,
`mcp_stdio` asks another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Protocol
from urllib.parse import unquote

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)
from mcp_types import Tool as Listed
from pydantic import ValidationError

from practicum.core.errors import PracticumError, UsageError, error_body
from practicum.core.views import behind
from practicum.core.words import fault, one_line, wrong_field
from practicum.serve.mcp_opening import INSTRUCTIONS, NAME, VERSION
from practicum.serve.tools import (
    PAGE,
    PLAYBOOK,
    TEMPLATES,
    TOOLS,
    Route,
    Tool,
    allowed,
    listing,
    may,
    resource_listing,
)

MOST_ENTRIES = 2_000
"""Entries of the playbook that the resource has at most."""


MOST_ARGUMENTS = 100
"""Arguments of the call of a tool, at most. Naming each of many as wrong would hold up other requests."""


class ToolCaller(Protocol):
    """Somebody who calls tools, in some roles."""

    @property
    def roles(self) -> Collection[str]:
        """What the caller may do."""

    async def ask(self, route: Route, given: Mapping[str, Any]) -> dict[str, Any]:
        """What an operation tells. Raises PracticumError."""


def make_server(caller_of: Callable[[Any], ToolCaller]) -> Server[Any]:
    """The server. `caller_of` says who calls, by the context of a request."""

    async def list_tools(ctx: Any, params: object) -> ListToolsResult:
        caller = caller_of(ctx)
        return ListToolsResult(tools=[_listed(tool) for tool in allowed(caller.roles)])

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        if (tool := TOOLS.get(params.name)) is None:
            raise _refusal("request.malformed", f"there is no tool {params.name!r:.80}: there are {', '.join(TOOLS)}")
        try:
            caller = caller_of(ctx)
            if not may(caller.roles, tool.role):
                have = ", ".join(sorted(caller.roles))
                raise UsageError(
                    "key.forbidden",
                    f"the tool {tool.name} takes the role {tool.role}, and you have {have}",
                    role=tool.role,
                )
            told = await caller.ask(*_read(tool, params.arguments or {}).asked())
            content, wrong = tool.text(told), False
        except PracticumError as error:
            content, told, wrong = str(error), {"error": error.body()}, True
        return CallToolResult(
            content=[TextContent(type="text", text=content)], structured_content=told, is_error=wrong
        )  # fmt: skip

    async def list_resources(ctx: Any, params: object) -> ListResourcesResult:
        caller = caller_of(ctx)
        if not may(caller.roles, "ask"):
            return ListResourcesResult(resources=[])
        sections = (await _told(caller, {"limit": 1}))["sections"]
        return ListResourcesResult(resources=[*map(Resource.model_validate, resource_listing(sections))])

    async def list_templates(ctx: Any, params: object) -> ListResourceTemplatesResult:
        listed = TEMPLATES if may(caller_of(ctx).roles, "ask") else []
        return ListResourceTemplatesResult(resource_templates=[*map(ResourceTemplate.model_validate, listed)])

    async def read_resource(ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri, caller = str(params.uri), caller_of(ctx)
        if uri != PLAYBOOK and not uri.startswith(f"{PLAYBOOK}/"):
            raise _refusal("request.malformed", f"there is no resource {uri!r:.200}: {PLAYBOOK} is one")
        if not may(caller.roles, "ask"):
            raise _refusal("key.forbidden", f"{PLAYBOOK} takes the role ask, and you have {', '.join(caller.roles)}")
        text = await _playbook(caller, unquote(uri[len(PLAYBOOK) + 1 :]))
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="text/markdown", text=text)])

    # No tool takes anything from headers, so none are compared with its schema.
    return Server(
        NAME, version=VERSION, instructions=INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool, on_list_resources=list_resources, on_list_resource_templates=list_templates,
        on_read_resource=read_resource, get_tool_input_schema=lambda name: None,
    )  # fmt: skip


def _refusal(code: str, message: str) -> MCPError:
    """An error of the protocol, with its code in `data`."""
    return MCPError(INVALID_PARAMS, message, error_body(code, message))


def _read(tool: type[Tool], arguments: Mapping[str, Any]) -> Tool:
    """What a tool is given. What a model gives as null it leaves out. Raises UsageError that says what is wrong."""
    if len(arguments) > MOST_ARGUMENTS:
        raise UsageError(
            "request.malformed", f"{tool.name} was called with {len(arguments):,} arguments, more than {MOST_ARGUMENTS}"
        )
    try:
        return tool.model_validate({name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        fields = ", ".join(tool.model_fields) or "nothing"
        raise UsageError(
            "request.malformed",
            one_line(f"{tool.name} was called wrongly: {fault(error, model=tool)}; it takes {fields}", 400),
            param=wrong_field(error),
        ) from None


@cache
def _listed(tool: type[Tool]) -> Listed:
    return Listed.model_validate(listing(tool))


# The playbook as a resource


async def _told(caller: ToolCaller, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return await caller.ask(("GET", "/v1/playbook"), given)
    except PracticumError as error:
        raise MCPError(INVALID_PARAMS, str(error), error.body()) from error


async def _playbook(caller: ToolCaller, section: str) -> str:
    """The playbook, or a section of it, as markdown."""
    told = await _told(caller, {"section": section, "limit": PAGE})
    if section and section not in told["sections"]:
        raise MCPError(INVALID_PARAMS, f"the playbook has no section {section!r:.200}")
    entries, total = told["entries"], told["total"]
    while len(entries) < min(total, MOST_ENTRIES):
        more = (await _told(caller, {"section": section, "skip": len(entries), "limit": PAGE}))["entries"]
        if not more:
            break
        entries += more
    by_section = dict[str, list[str]]()
    for entry in entries:
        by_section.setdefault(entry["section"], []).append(behind(f"- [{entry['id']}]", entry["text"]))
    parts = [f"# Playbook of {told['space']}, version {told['version']}"]
    parts += [f"## {one_line(name)}\n\n" + "\n".join(lines) for name, lines in sorted(by_section.items())]
    if total > len(entries):
        parts.append(f"{total - len(entries):,} older entries are left out: the tool `playbook` finds them.")
    return "\n\n".join(parts if entries else [*parts, "It has no entries yet."])
