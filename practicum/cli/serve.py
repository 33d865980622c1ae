"""`practicum serve`: the learning service, in front of a model server."""

from __future__ import annotations

import os
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.inputs import pairs
from practicum.cli.output import Printer
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL

KEYS_VARIABLE = "PRACTICUM_SERVE_KEYS"
"""An environment variable with keys, separated by commas. Other users of the machine can read a command line."""

learning = partial(Option, rich_help_panel="Learning")
rollout = partial(Option, rich_help_panel="Rollout")


def serve(
    run: str = Argument(
        "practicum-store",
        envvar="PRACTICUM_STORE",
        show_envvar=False,
        help="The run or store to serve and learn in: a folder, or postgresql://USER@HOST/DATABASE for several nodes.",
    ),
    upstream: str = Option(
        ..., help="The model server: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or local:PATH."
    ),
    host: str = Option("127.0.0.1", help="The address to listen on; without a key, this machine's own."),
    port: int = Option(8_700, min=0, max=65_535, help="The port; 0: a free one."),
    folder: Path | None = Option(None, help="This node's logs and caches, with a database as the store."),
    space: list[str] = Option(["default"], help="A space; repeatable. The first is that of requests that name none."),
    context: str | None = Option(None, metavar="RUN", help="What the first space starts from: RUN, RUN@NAME, a file."),
    key: list[str] = Option([], metavar="KEY", help=f"For all spaces, or SPACE=KEY; repeatable, or {KEYS_VARIABLE}."),
    a_minute: int | None = Option(None, min=1, help="Requests that each key may send a minute (default: any number)."),
    pass_key: bool = Option(False, "--pass-key", help="Clients send their own upstream key; KEY in x-practicum-key."),
    pass_: list[str] = Option(
        [], "--pass", metavar="PATH", help="A path of the model server that passes, such as /v1/files; repeatable."
    ),
    timeout: float = Option(600.0, min=1.0, help="Seconds that the upstream may be silent."),
    max_output_tokens: int | None = Option(
        None, min=1, help="--upstream local: tokens of an answer, unless the request gives a limit (default: 1024)."
    ),
    memory: int = Option(4_000, min=1, metavar="MB", help="For open spaces, about; those unused longest are closed."),
    max_read: int = Option(8, min=1, max=32, metavar="MB", help="Larger requests and answers pass without being read."),
    method: str | None = learning(None, help="How it learns (default: unified; profile small: episodes)."),
    profile: Literal["full", "small"] | None = learning(None, help="For capable or small models (local: small)."),
    set_: list[str] = learning([], "--set", metavar="NAME=VALUE", help="A setting of the method; repeatable."),
    learner: str | None = learning(None, metavar="MODEL", help="The model that learns (default: the upstream's)."),
    no_learning: bool = learning(False, "--no-learning", help="Corrections hold, and nothing else is learned."),
    judge: float = learning(0.0, min=0.0, max=1.0, help="Share of answers without an outcome that a judge scores."),
    review: Literal["none", "foreign", "all"] | None = learning(
        None, help="What waits for practicum review (default: what the space says; of a new one, foreign)."
    ),
    trust_users: bool = learning(False, "--trust-users", help="What end users ask need not wait for review."),
    trust_tools: bool = learning(False, "--trust-tools", help="What tools return need not wait for review."),
    learn_every: int = learning(20, min=1, help="Outcomes from which a round of learning begins."),
    learn_minutes: float = learning(60.0, min=0.0, help="Minutes after which a round begins with fewer."),
    max_calls_day: int | None = learning(None, min=1, help="Model calls of learning, a day and space (default: any)."),
    max_usd_day: float | None = learning(None, min=0.0, help="US dollars of learning, a day and space (default: any)."),
    canary: float = rollout(0.2, min=0.0, max=0.5, help="Share of sessions that see a new version first; 0: none."),
    canary_length: int = rollout(200, min=20, help="Scored requests after which a new version is promoted."),
    webhook: str | None = rollout(None, metavar="URL", help="Where alarms are posted as JSON."),
    log: list[str] = Option([], metavar="NAME", help="json: a line for each request; otel: spans. Repeatable."),
    json_: opt.Json = False,
) -> None:
    """Put learning in front of agents at work: they change one base URL, and send back what came of their answers.

    Clients of OpenAI's and Anthropic's protocols work as before; POST /v1/feedback takes scores and corrections.
    """
    try:
        from practicum.serve.server import run as start
        from practicum.serve.settings import ServiceSettings
        from practicum.session.outcomes import Trusted
    except ImportError as error:
        from practicum.core.requirements import pip_install

        raise UsageError("extra.missing", f"practicum serve needs: {pip_install('serve')} ({error})") from error
    if unknown := {*log} - {"json", "otel"}:
        raise UsageError("settings.invalid", f"there is no log {min(unknown)!r:.80} for --log: known are json, otel")
    where, folder = place(run, folder)
    settings = ServiceSettings(
        store=where, folder=folder, spaces=tuple(dict.fromkeys(space)), context=context, method=method, profile=profile,
        settings=pairs(set_, "--set"), review=review, learn=not no_learning, judge=judge, learner=learner,
        trusted=Trusted(users=trust_users, tools=trust_tools),
        learn_every=learn_every, learn_minutes=learn_minutes, max_calls_day=max_calls_day, max_usd_day=max_usd_day,
        canary=canary, canary_length=canary_length, memory=memory, max_read=max_read, webhook=webhook,
    )  # fmt: skip
    keys = [*key, *filter(None, os.environ.get(KEYS_VARIABLE, "").split(","))]
    out = Printer(json_)

    def ready(address: str, warnings: list[str], new: list[str]) -> None:
        # Without a password.
        name = str(where) if isinstance(where, Path) else where.render_as_string()
        about: dict[str, Any] = {"address": address, "spaces": settings.spaces, "store": name, "folder": str(folder)}
        out.announce({**about, "new": new, "warnings": warnings})
        spaces = ", ".join(f"{one} (new)" if one in new else one for one in settings.spaces)
        out.print(f"practicum serves {upstream} at {address}/v1: space {spaces}, store {name}")
        for warning in warnings:
            out.print(f"warning: {warning}")
        sys.stdout.flush()

    start(settings, upstream, host, port, keys, a_minute, pass_key, timeout, log, ready, max_output_tokens, pass_)


def place(store: str, folder: Path | None = None) -> tuple[Path | URL, Path]:
    """The store, and the folder of this node."""
    if "://" not in store:
        if folder is not None:
            raise UsageError("settings.unused", "--folder is for a database as the store: a folder holds all there is")
        return Path(store), Path(store)
    from practicum.models.download import cache_folder
    from practicum.store.backend import store_at

    kind, url = store_at(store)
    return url, folder or cache_folder() / "serve" / sha256(kind.address(url).encode()).hexdigest()[:16]
