"""`practicum mcp`: serves the memory of an agent over the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from typer import Option

from practicum.cli import options as opt
from practicum.core.errors import PracticumError, UsageError

if TYPE_CHECKING:
    from practicum.serve.transport import Transport


class AgentRole(StrEnum):
    """Role that `--grant` can give to an agent."""

    ask = "ask"
    report = "report"
    review = "review"


def mcp(
    store: str | None = opt.option(None, metavar="PLACE"),
    service: str | None = Option(None, metavar="URL", help="Address of a running service, in place of --store."),
    key_env: str | None = Option(None, metavar="NAME", help="The environment variable with the key of the service."),
    space: str | None = opt.option(None, metavar="NAME"),
    learner: str | None = opt.option(None, metavar="MODEL"),
    grant: list[AgentRole] = opt.option([AgentRole.ask, AgentRole.report], metavar="ROLE"),
    json_: opt.Json = False,
) -> None:
    """Serve a memory over MCP for Claude Code, Cursor and others.

    The MCP client starts this command and exchanges messages with it over standard input and output. The agent learns
    across sessions. The tools are recall, remember, report, playbook, history and remove; --grant review adds the tools
    that review edits.
    """
    if (store is None) == (service is None):
        raise UsageError(
            "settings.missing", "pass either --store FOLDER or --service URL (of a running practicum serve)"
        )
    if service is not None and learner is not None:
        raise UsageError("settings.unused", "--learner applies to a store only: a service has its own learner")
    if store is not None and key_env is not None:
        raise UsageError("settings.unused", "--key-env applies to a service only: a store needs no key")
    from practicum.serve.mcp_stdio import run
    from practicum.serve.transport import ServiceTransport, StoreTransport

    # These packages are imported later, after the first answer to the client, so check now that they exist.
    if missing := [name for name in ("aiohttp", "mcp", "uvicorn") if find_spec(name) is None]:
        from practicum.core.requirements import pip_install

        raise UsageError(
            "extra.missing", f"practicum mcp needs: {pip_install('serve')} ({', '.join(missing)} cannot be found)"
        )
    if space is not None:
        from practicum.store.spaces import require_space_name

        require_space_name(space)
    if learner is not None:
        from practicum.models.registry import require_model_name

        require_model_name(learner)
    roles = frozenset(grant)
    transport: Transport
    session = f"mcp-{uuid4().hex}"
    if service is not None:
        transport = ServiceTransport(service, space, _key(key_env), roles=roles, agent=session)
    elif store is not None and "://" in store:
        raise UsageError(
            "store.unsupported",
            "--store must be a folder: to use a database, start practicum serve and pass --service URL",
        )
    else:
        # Expand ~ here, because agents start commands without a shell.
        store = str(Path(store or "").expanduser().absolute())
        transport = StoreTransport(Path(store), space or "default", learner, roles=roles, agent=session)
    if json_:
        options = {"store": store, "service": service, "key-env": key_env, "space": space, "learner": learner}
        arguments = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
        arguments += [part for one in grant for part in ("--grant", one.value)]
        # Use the full path of Python, because desktop programs usually do not have the environment on their PATH. With
        # -P, no module of the current folder, which may be a project of others, is imported.
        started = {"command": sys.executable, "args": ["-P", "-m", "practicum.cli.app", "mcp", *arguments]}
        from practicum.cli.output import Printer

        Printer(True).result({"mcpServers": {"practicum": started}})
        return
    run(transport, _failed)


def _failed(error: PracticumError) -> None:
    from practicum.cli.output import print_error

    print_error(str(error))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise UsageError("key.missing", f"the environment variable {variable} (--key-env) is empty or not set")
    return key
