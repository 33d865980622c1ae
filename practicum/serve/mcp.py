"""Server of the Model Context Protocol: operations as tools, and the playbook as resources.

This module uses `Server` of the package `mcp`, so that the caller's roles determine the tools, and errors have
practicum's codes. `MCPServer` of the same package would list the same tools to every caller, use other error texts, and
configure the log of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from mcp.server import Server
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
    Tool,
)

from practicum.core.errors import PracticumError, error_body
from practicum.core.views import behind
from practicum.core.words import one_line
from practicum.serve.access import includes, require_role
from practicum.serve.answers import Answer, PlaybookPage, ShownText
from practicum.serve.api import Operation
from practicum.serve.mcp_opening import INSTRUCTIONS, NAME, VERSION
from practicum.serve.operations import OPERATIONS
from practicum.serve.tools import PLAYBOOK, TEMPLATES, allowed, listing, resource_listing

PAGE = 200
"""Number of entries of the playbook that are read at a time."""

MOST_ENTRIES = 2_000
"""Largest number of entries in the resource of the playbook."""

AGENT = "this agent"
"""Name of the caller in messages about a missing role."""


class ToolCaller(Protocol):
    """Caller of tools. The roles of the caller determine which tools it may call."""

    @property
    def roles(self) -> Collection[str]:
        """Roles of the caller."""

    async def perform(self, operation: Operation, arguments: Mapping[str, Any]) -> Answer:
        """Run an operation, and return its answer. Raise PracticumError if the operation fails."""


def make_server(caller_of: Callable[[Any], ToolCaller]) -> Server[Any]:
    """Return the server. `caller_of` takes the context of a request, and returns the caller who made the request."""

    async def list_tools(ctx: Any, params: object) -> ListToolsResult:
        tools = allowed(caller_of(ctx).roles)
        return ListToolsResult(tools=[Tool.model_validate(listing(tool)) for tool in tools])

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        content: dict[str, Any] | None
        if (operation := OPERATIONS.get(params.name)) is None:
            names = ", ".join(OPERATIONS)
            raise _refusal("request.malformed", f"no tool named {params.name!r:.80}: choose from {names}")
        # Models pass null for arguments that they leave out.
        arguments = {name: value for name, value in (params.arguments or {}).items() if value is not None}
        try:
            caller = caller_of(ctx)
            # The caller may have fewer roles than the key that it sends to the service.
            require_role(caller.roles, operation.role, f"the tool {operation.name}", AGENT)
            answer = await caller.perform(operation, arguments)
            text, content, wrong = answer.as_text(), answer.as_json(), False
            if isinstance(answer, ShownText):
                # Some clients show a model the structured content in place of the text: JSON with escaped line breaks,
                # which ends with ids.
                text, content = answer.before(str(arguments["input"])), None
        except PracticumError as error:
            text, content, wrong = str(error), {"error": error.body()}, True
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content, is_error=wrong)

    async def list_resources(ctx: Any, params: object) -> ListResourcesResult:
        caller = caller_of(ctx)
        if not includes(caller.roles, "ask"):
            return ListResourcesResult(resources=[])
        sections = (await _page(caller, limit=1)).sections
        return ListResourcesResult(resources=[*map(Resource.model_validate, resource_listing(sections))])

    async def list_templates(ctx: Any, params: object) -> ListResourceTemplatesResult:
        listed = TEMPLATES if includes(caller_of(ctx).roles, "ask") else []
        return ListResourceTemplatesResult(resource_templates=[*map(ResourceTemplate.model_validate, listed)])

    async def read_resource(ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri, caller = str(params.uri), caller_of(ctx)
        if uri != PLAYBOOK and not uri.startswith(f"{PLAYBOOK}/"):
            raise _refusal("request.malformed", f"unknown resource {uri!r:.200}: read {PLAYBOOK} or {PLAYBOOK}/SECTION")
        text = await _playbook(caller, unquote(uri[len(PLAYBOOK) + 1 :]))
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="text/markdown", text=text)])

    # No tool takes arguments from headers, so the SDK need not compare headers with the schemas of tools.
    return Server(
        NAME, version=VERSION, instructions=INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool, on_list_resources=list_resources, on_list_resource_templates=list_templates,
        on_read_resource=read_resource, get_tool_input_schema=lambda name: None,
    )  # fmt: skip


def _refusal(code: str, message: str) -> MCPError:
    """Return an error of the protocol, with practicum's code in `data`."""
    return MCPError(INVALID_PARAMS, message, error_body(code, message))


# The playbook as a resource


async def _page(caller: ToolCaller, **arguments: Any) -> PlaybookPage:
    try:
        require_role(caller.roles, "ask", PLAYBOOK, AGENT)
        answer = await caller.perform(OPERATIONS["playbook"], arguments)
    except PracticumError as error:
        raise MCPError(INVALID_PARAMS, str(error), error.body()) from error
    assert isinstance(answer, PlaybookPage)
    return answer


async def _playbook(caller: ToolCaller, section: str) -> str:
    """Return the playbook, or a section of it, as markdown."""
    page = await _page(caller, section=section, limit=PAGE)
    if section and section not in page.sections:
        raise MCPError(INVALID_PARAMS, f"the playbook has no section {section!r:.200}")
    entries = [*page.entries]
    while len(entries) < min(page.total, MOST_ENTRIES):
        more = (await _page(caller, section=section, skip=len(entries), limit=PAGE)).entries
        if not more:
            break
        entries += more
    by_section = dict[str, list[str]]()
    for entry in entries:
        by_section.setdefault(entry.section, []).append(behind(f"- [{entry.id}]", entry.text))
    parts = [f"# Playbook of {page.space}, version {page.version}"]
    parts += [f"## {one_line(name)}\n\n" + "\n".join(lines) for name, lines in sorted(by_section.items())]
    if page.total > len(entries):
        parts.append(f"{page.total - len(entries):,} older entries are left out: the tool `playbook` finds them.")
    return "\n\n".join(parts if entries else [*parts, "It has no entries yet."])
