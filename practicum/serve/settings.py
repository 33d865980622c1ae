"""Settings of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from practicum.core.settings import HELPS, Panel, Setting, settings_of
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.session.config import SETTINGS as OF_RUN

if TYPE_CHECKING:
    from sqlalchemy import URL

    from practicum.session.outcomes import Trusted
else:
    # Commands read the fields before the database package is loaded.
    URL = Any


def _of_run(name: str, note: str = "", *, first: bool = False) -> Setting:
    """Return the setting of runs with this name as a setting of services, in the panel for learning, with `note`."""
    return replace(OF_RUN[name].setting, panel=Panel.LEARNING, note=note, first=first)


class ServiceSettings(BaseModel):
    """Settings of a service: its store, upstream, keys, spaces, learning and rollouts.

    `store` is a folder that only this service uses, or a PostgreSQL database that several nodes share.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    # fmt: off
    store: Path | URL
    folder: Annotated[Path, Setting(
        "Folder of this node's logs and caches, if the store is a database.", Panel.SERVICE, typed=Path,
        note="If the store is a folder, it also holds the logs and caches.",
    )]
    upstream: Annotated[str, Setting(
        "The model server: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or local:PATH.",
        Panel.SERVICE, first=True,
    )] = ""
    host: Annotated[str, Setting(
        "Address to listen on. Without a key, only addresses of this machine.", Panel.SERVICE, first=True,
    )] = "127.0.0.1"
    port: Annotated[int, Setting(HELPS["--port"], Panel.SERVICE, first=True)] = Field(
        default=8_700, ge=0, le=65_535)
    spaces: Annotated[tuple[str, ...], Setting(
        HELPS["--space"], Panel.SERVICE, option="--space", metavar="NAME", typed=list[str], first=True,
        note="Repeatable. Requests that name no space use the first space.",
    )] = ("default",)
    context: Annotated[str | None, Setting(
        HELPS["--context"], Panel.SERVICE, metavar="RUN", first=True,
        note="The first space starts from this context.",
    )] = None
    keys: Annotated[tuple[str, ...], Setting(
        HELPS["--key"], Panel.SERVICE,
        option="--key", metavar="KEY", typed=list[str], first=True,
        note="Also read from PRACTICUM_SERVE_KEYS (separated by commas): other users can see a command line.",
    )] = ()
    per_minute: Annotated[int | None, Setting(
        HELPS["--per-minute"], Panel.SERVICE, unit="requests/min", note="None means no limit.",
    )] = Field(default=None, ge=1)
    pass_key: Annotated[bool, Setting(
        "Clients send their own key for the model server, and the service's key as x-practicum-key.", Panel.SERVICE,
    )] = False
    passing: Annotated[tuple[str, ...], Setting(
        "Path of the model server to pass on, such as /v1/files; repeatable.", Panel.SERVICE,
        option="--pass", metavar="PATH", typed=list[str],
    )] = ()
    upstream_timeout: Annotated[float, Setting(
        "Timeout (s) while the model server sends nothing.", Panel.SERVICE, unit="s",
    )] = Field(default=600.0, ge=1)
    max_output_tokens: Annotated[int | None, replace(
        OF_RUN["max_output_tokens"].setting, panel=Panel.SERVICE,
        note="Only for the upstream local; a limit in the request takes precedence. None means 1,024.",
    )] = Field(default=None, ge=1)
    memory: Annotated[int, Setting(
        "Approximate memory limit for open spaces (MB); least recently used spaces are closed first.", Panel.SERVICE,
        unit="MB", metavar="MB",
    )] = Field(default=4_000, ge=1)
    max_read: Annotated[int, Setting(
        "Largest request, answer or event that is parsed and stored (MB). Larger requests and answers pass unchanged.",
        Panel.SERVICE, unit="MB", metavar="MB",
    )] = Field(default=8, ge=1, le=32)
    log: Annotated[tuple[str, ...], Setting(
        HELPS["--log"], Panel.OUTPUT,
        metavar="NAME", typed=list[str], note="json: one line per request on standard error; otel: spans.",
    )] = ()
    method: Annotated[str | None, _of_run(
        "method", "None means unified, or episodes with the profile small.", first=True,
    )] = None
    profile: Annotated[Profile | None, _of_run(
        "profile", "None means small with the upstream local, else full.",
    )] = None
    settings: Annotated[Mapping[str, Any], _of_run("settings")] = Field(default_factory=dict)
    learner: Annotated[str | None, Setting(
        HELPS["--learner"], Panel.LEARNING, metavar="MODEL", first=True,
        note="None means the model of the upstream.",
    )] = None
    learn: Annotated[bool, Setting(
        "Learn from outcomes. With --no-learning, only corrections take effect.", Panel.LEARNING,
        option=" /--no-learning",
    )] = True
    judge_share: Annotated[float, Setting(
        "Of the answers without an outcome, the share that a judge scores for learning.", Panel.LEARNING, unit="0 to 1",
    )] = Field(default=0.0, ge=0, le=1)
    review: Annotated[Review | None, _of_run(
        "review", "None means the setting of the space: foreign for a new space.", first=True,
    )] = None
    trust_users: Annotated[bool, Setting(
        "Trust questions of end users like your own tasks.", Panel.LEARNING,
    )] = False
    trust_tools: Annotated[bool, _of_run("trust_tools")] = False
    learn_every: Annotated[int, Setting(
        "Number of waiting outcomes that starts a round of learning.", Panel.LEARNING, unit="outcomes",
    )] = Field(default=20, ge=1)
    learn_minutes: Annotated[float, Setting(
        "Minutes after which a single waiting outcome starts a round of learning.", Panel.LEARNING, unit="min",
    )] = Field(default=60.0, ge=0)
    max_calls_day: Annotated[int | None, Setting(
        "Limit of model calls for learning, per day and space.", Panel.LEARNING, unit="calls", first=True,
    )] = Field(default=None, ge=1)
    max_usd_day: Annotated[float | None, Setting(
        "Limit of the cost of learning (USD), per day and space.", Panel.LEARNING, unit="USD", first=True,
    )] = Field(default=None, ge=0)
    canary: Annotated[float, Setting(
        "Share of sessions that see a new version first. 0: no canary.", Panel.ROLLOUT, unit="0 to 0.5",
    )] = Field(default=0.2, ge=0, le=0.5)
    canary_length: Annotated[int, Setting(
        "Number of scored requests after which a new version that is not worse is promoted.", Panel.ROLLOUT,
        unit="requests",
    )] = Field(default=200, ge=20)
    webhook: Annotated[str | None, Setting(
        "URL to which alarms are posted as JSON.", Panel.ROLLOUT, metavar="URL", first=True,
    )] = None
    # fmt: on

    @property
    def trusted(self) -> Trusted:
        """Sources of text that count as the operator's own: end users and tools, if the settings trust them."""
        from practicum.session.outcomes import Trusted

        return Trusted(users=self.trust_users, tools=self.trust_tools)


SETTINGS = settings_of(ServiceSettings)
"""Settings of a service by name."""
