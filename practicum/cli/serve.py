"""`practicum serve`: runs the learning proxy in front of a model server."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.inputs import pairs
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.settings import SettingField
from practicum.core.words import fault

if TYPE_CHECKING:
    from sqlalchemy import URL

KEYS_VARIABLE = "PRACTICUM_SERVE_KEYS"
"""Environment variable with keys, separated by commas. The variable keeps keys out of the command line, which other
users of the machine can read."""


def _settings() -> Mapping[str, SettingField]:
    from practicum.serve.settings import SETTINGS

    return SETTINGS


@opt.settings(where=lambda setting: True, fields=_settings, begins=True)
def serve(
    run: str = Argument(
        "practicum-store",
        envvar="PRACTICUM_STORE",
        show_envvar=False,
        help="The run or store to serve: a folder, or postgresql://USER@HOST/DATABASE for several nodes.",
    ),
    json_: opt.Json = False,
    **options: Any,
) -> None:
    """Serve a learning proxy in front of a model server.

    Agents change one base URL and report outcomes. Clients of the OpenAI and Anthropic protocols work unchanged. POST
    /v1/feedback accepts scores and corrections.
    """
    try:
        from pydantic import ValidationError

        from practicum.serve.server import run as start
        from practicum.serve.settings import ServiceSettings
    except ImportError as error:
        from practicum.core.requirements import pip_install

        raise UsageError("extra.missing", f"practicum serve needs: {pip_install('serve')} ({error})") from error
    values = {name: value for name, value in options.items() if value not in (None, [])}
    if unknown := {*values.get("log", ())} - {"json", "otel"}:
        raise UsageError("settings.invalid", f"--log {min(unknown)!r:.80} is unknown: pass json or otel")
    where, values["folder"] = place(run, values.get("folder"))
    values["settings"] = pairs(values.get("settings", ()), "--set")
    values["keys"] = [*values.get("keys", ()), *filter(None, os.environ.get(KEYS_VARIABLE, "").split(","))]
    if "spaces" in values:
        values["spaces"] = [*dict.fromkeys(values["spaces"])]
    try:
        settings = ServiceSettings(store=where, **values)
    except ValidationError as error:
        raise UsageError("settings.invalid", opt.as_options(fault(error))) from error
    out = Printer(json_)

    def ready(address: str, warnings: list[str], new: list[str]) -> None:
        # render_as_string hides the password.
        name = str(where) if isinstance(where, Path) else where.render_as_string()
        about: dict[str, Any] = {
            "address": address,
            "spaces": settings.spaces,
            "store": name,
            "folder": str(settings.folder),
        }
        out.announce({**about, "new": new, "warnings": warnings})
        spaces = ", ".join(f"{one} (new)" if one in new else one for one in settings.spaces)
        out.print(f"practicum serves {settings.upstream} at {address}/v1: space {spaces}, store {name}")
        for warning in warnings:
            out.print(f"warning: {warning}")
        sys.stdout.flush()

    start(settings, ready)


def place(store: str, folder: Path | None = None) -> tuple[Path | URL, Path]:
    """Return the store (a folder or a URL) and the folder of this node."""
    if "://" not in store:
        if folder is not None:
            raise UsageError("settings.unused", "--folder applies only if the store is a database: omit --folder")
        return Path(store), Path(store)
    from practicum.models.download import cache_folder
    from practicum.store.backend import store_at

    kind, url = store_at(store)
    return url, folder or cache_folder() / "serve" / sha256(kind.address(url).encode()).hexdigest()[:16]
