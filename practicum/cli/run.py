"""`practicum run`: answers one query with the context of a run, and learns from the query on demand."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument

from practicum.cli import options as opt
from practicum.cli.output import LONGEST_LINE, Printer
from practicum.core.counts import Count
from practicum.core.errors import PracticumError, Stopped, UsageError
from practicum.core.files import write_atomic
from practicum.core.views import entry_line
from practicum.core.words import one_line, quantity

if TYPE_CHECKING:
    from practicum.cli.running import Stopper
    from practicum.session.ask import Answered, Learned

VERDICTS = {True: "right", False: "wrong", None: None}


@opt.settings("scaling", "k", "preset", where=lambda setting: setting.use in ("attempts", "tools", "budget"))
def run(
    query: str = Argument(..., help="The query; - reads it from standard input."),
    context: Path = opt.task(...),
    learn: bool = opt.task(False, "--learn", help="Also learn from the query: adds a step and a version to the run."),
    target: str | None = opt.task(None),
    trust_run: opt.TrustRun = False,
    trace_out: Path | None = opt.output(None, help="Write an HTML page about the attempt and the network of agents."),
    json_: opt.Json = False,
    **options: Any,
) -> int:
    """Answer one query with a learned context.

    Shows the answer, the entries that the answer relies on, and why the answer was chosen. Settings that you do not
    pass are taken from the run in --context.
    """
    from practicum.cli.inputs import config_values
    from practicum.cli.running import Interrupted, Warnings, parts_for, run_work
    from practicum.session.space import ask
    from practicum.session.watching import Watches

    if options["scorer"] is not None and not learn:
        raise UsageError(
            "settings.unused", "--scorer needs --learn, because only learning scores an answer: pass both, or neither"
        )
    config, out, text = config_values(options), Printer(json_), _read(query)
    with out.status("answering") if out.is_terminal else nullcontext() as status:

        async def work(stop: Stopper) -> Answered:
            watch = Watches([stop, Warnings(out)])
            try:
                return await ask(
                    text, context, learn=learn, target=target, parts=parts_for(out, status), watch=watch,
                    trust_run=trust_run, **config,
                )  # fmt: skip
            except Stopped as stopped:
                raise Interrupted(
                    "run.interrupted", "interrupted: run the command again; finished calls are not paid for twice"
                ) from stopped

        answered = run_work(work, out)
    out.result(answered.as_json())
    _print(out, answered)
    if answered.learned is not None:
        _print_lesson(out, answered.learned, context)
        if answered.trouble:
            out.print(f"! {answered.trouble}")
    if trace_out is not None:
        _write_page(answered, context, config, trace_out)
        out.print(f"trace written to {trace_out}")
    if answered.trouble and answered.learned is None:
        raise PracticumError(
            "query.not_learned",
            f"nothing was learned: {answered.trouble}; run the command again; finished calls are not paid for twice",
        )
    return 1 if answered.error is not None else 0


def _write_page(answered: Answered, context: Path, overrides: dict[str, Any], path: Path) -> None:
    from practicum.methods.mael import Settings, team_of
    from practicum.session.records import override_config, run_config
    from practicum.view.pages.attempt import answer_page

    config = override_config(run_config(context), overrides)
    team = team_of(Settings(**config["settings"]), config.get("seed", 0)) if config.get("method") == "mael" else None
    write_atomic(path, answer_page(answered, team, context))


def _read(query: str) -> str:
    """Return the query; for -, the text on standard input."""
    if query != "-":
        return query
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(
            "text.not_utf8", f"standard input is not UTF-8: {error.reason} at byte {error.start}"
        ) from error


def _print(out: Printer, answered: Answered) -> None:
    """Print the answer, then the entries and attempts that led to the answer."""
    trace, choice = answered.attempt.trace, answered.attempt.choice
    out.print(answered.text if answered.error is None else f"no answer: {answered.error}", style="bold")
    if trace.reasoning:
        out.print(trace.reasoning, style="dim")
    out.print()
    _print_entries(out, answered)
    if len(answered.attempts) > 1:
        rows = []
        verdicts = choice.get("verdicts", ())
        for n, attempt in enumerate(answered.attempts):
            judged = verdicts[n] if n < len(verdicts) else None
            verdict = VERDICTS[attempt.feedback.success if judged is None else judged]
            error = attempt.trace.error
            answer = attempt.trace.answer if error is None else f"failed: {error}"
            rows.append((n + 1, "yes" if attempt is answered.attempt else "", verdict, answer))
        out.table(("attempt", "chosen", "verdict", "answer"), rows, text=("chosen", "verdict", "answer"), bold="chosen")
    if choice:  # `choice` of a single attempt gives the reason why no further attempt was made
        out.print(f"chosen by {choice['by']}: {choice['why']}")
    out.usage(answered.usage, answered.seconds, answered.hits)
    if refused := sum(len(attempt.trace.data.get("refused", ())) for attempt in answered.attempts):
        out.counts({Count.REFUSED_CALLS: refused})


def _print_entries(out: Printer, answered: Answered) -> None:
    """Print the entries that were retrieved for the query, and the entries that the answer relies on."""
    used = {entry.id for entry in answered.used}
    if answered.corrections:
        out.print(f"the agent also saw the corrections and notes {', '.join(answered.corrections)}")
    if answered.retrieved:
        rows = []
        for match in answered.retrieved:
            entry = match.entry
            text = one_line(entry.solved, LONGEST_LINE)
            rows.append((entry.id, f"{match.similarity:z.2f}", "yes" if entry.id in used else "", text))
        out.table(("entry", "similarity", "used", "text"), rows, text=("entry", "used", "text"), bold="used")
    for entry in answered.used:
        if entry.id not in {match.entry.id for match in answered.retrieved}:
            out.item(f"relied on {entry_line(entry)}")
    if answered.retrieved or used:
        return
    if shown := sum(not entry.hidden for entry in answered.context):
        out.print(f"the answer relies on no entry; version {answered.context.version} has {quantity(shown, 'entry')}")
    else:
        out.print("nothing has been learned yet, so the answer relies on no entry")


def _print_lesson(out: Printer, learned: Learned, context: Path) -> None:
    from practicum.cli.show import edit_text

    for done in learned.applied:
        action = "counted" if done.edit.op == "vote" else "learned"
        out.item(f"{action} [{done.id}]: {edit_text(done)}", style="green")
    refused = f"; {quantity(learned.refused, 'edit')} refused" if learned.refused else ""
    if not learned.applied:
        out.print(f"step {learned.step} of {context}: nothing new was learned{refused}")
        return
    undo = f"practicum space rollback {context} {learned.context.version - 1}"
    out.print(
        f"step {learned.step} made version {learned.context.version} of {context}{refused}; undo the step with {undo}"
    )
