"""Contents of the Model Context Protocol's lists, as JSON: operations as tools, and the playbook as resources.

This module does not import the protocol's SDK, so that `mcp_opening` can list the tools before the SDK is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import quote

from practicum.serve.access import includes
from practicum.serve.api import Operation
from practicum.serve.operations import OPERATIONS

PLAYBOOK = "practicum://playbook"
"""URI of the playbook as a resource. The URIs of sections begin with this URI."""

TEMPLATES = [
    {
        "uriTemplate": f"{PLAYBOOK}/{{section}}", "name": "playbook section", "mimeType": "text/markdown",
        "description": "A section of the playbook.",
    }
]  # fmt: skip
"""Content of `resources/templates/list`."""


def listing(operation: Operation) -> dict[str, Any]:
    """Return the item for an operation in the list `tools/list`."""
    schema = operation.form.model_json_schema()
    schema.pop("title")
    schema.pop("description", None)
    for field in schema["properties"].values():
        field.pop("title", None)
    hints = {
        "readOnlyHint": operation.reads, "idempotentHint": operation.reads or operation.adds, "openWorldHint": False,
    }  # fmt: skip
    if not operation.reads:
        hints["destructiveHint"] = not operation.adds
    return {
        "name": operation.name, "title": operation.summary,
        "description": f"{operation.about} {operation.advice}".strip(), "inputSchema": schema, "annotations": hints,
    }  # fmt: skip


def allowed(roles: Collection[str]) -> list[Operation]:
    """Return the operations that an agent with these roles may call as tools. Operations on all spaces need the role
    `admin`."""
    return [
        operation
        for operation in OPERATIONS.values()
        if includes(roles, "admin" if operation.whole else operation.role)
    ]  # fmt: skip


def resource_listing(sections: Iterable[str] = ()) -> list[dict[str, str]]:
    """Return the content of `resources/list`: the playbook, and each of its sections."""
    about = [(PLAYBOOK, "playbook", "All that was learned: the entries of the playbook that is live.")]
    about += [
        (f"{PLAYBOOK}/{quote(name, safe='')}", f"playbook: {name}", f"The section {name} of the playbook.")
        for name in sections
    ]
    return [{"uri": uri, "name": name, "description": text, "mimeType": "text/markdown"} for uri, name, text in about]
