"""`practicum space report`: report the outcome of an answer that a learning service passed on."""

from __future__ import annotations

from typing import Any

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import one_line


def report(
    interaction: str | None = Argument(None, help="The id of an interaction, or of the provider's response."),
    last: bool = Option(False, "--last", help="The last interaction, of --session or --user if given."),
    session: str | None = Option(None, help="The session of the last interaction."),
    user: str | None = opt.option(None),
    score: float | None = Option(None, min=0.0, max=1.0, help="The score of the answer, from 0 to 1."),
    target: str | None = opt.option(None),
    comment: str | None = Option(None, help="Words about the answer."),
    url: str = Option("http://127.0.0.1:8700", help="The address of the service."),
    key: str | None = opt.option(None, envvar="PRACTICUM_KEY"),
    space: str | None = opt.option(None),
    json_: opt.Json = False,
) -> None:
    """Report the outcome of an answer of a service.

    An outcome is a score, the right answer or a comment. --last needs a key that may review and report. --last
    without an outcome shows the last interaction.
    """
    from practicum.client import open as open_space
    from practicum.models.keys import ADDRESSES

    if not url.startswith(ADDRESSES):
        raise UsageError("service.invalid_address", f"--url takes http://HOST:PORT, not {url!r:.80}")
    if last == (interaction is not None):
        raise UsageError("settings.missing", "give the id of an interaction, or --last")
    if not last and (session is not None or user is not None):
        raise UsageError("settings.unused", "--session and --user choose the last interaction: add --last")
    given = {"score": score, "target": target, "comment": comment}
    out = Printer(json_)
    told: dict[str, Any] = {}
    with open_space(url, space=space, key=key) as served:
        if last:
            found = served.interactions_sync(session=session, user=user, limit=1)
            if not found:
                raise UsageError(
                    "interaction.unknown",
                    f"{url} has no such interaction: see its page Interactions, or GET /v1/interactions",
                )
            told = {"last": found[0]}
            interaction = found[0]["id"]
            out.print(f"{interaction}: {one_line(found[0]['question'], 200)}")
            out.print(f"  answered: {one_line(found[0]['answer'], 200) or '(no text)'}")
        if not last or any(value is not None for value in given.values()):
            reported = served.feedback_sync(interaction, score=score, target=target, comment=comment)
            told |= reported
            said = f"score {reported['score']:g}" if reported["score"] is not None else "no score"
            effect = f"; its correction: {reported['correction']}" if reported["correction"] else ""
            out.print(f"{reported['status']}: {said}{effect}")
        else:
            out.print("report about it with --score, --target or --comment")
    out.result(told)
