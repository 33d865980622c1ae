"""`practicum run`: answer one query with what was learned, and learn from it where wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import PracticumError, Stopped, UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from practicum.cli.running import Stopper
    from practicum.core.types import Rollout
    from practicum.session.ask import Answered, Learned

Opt = typer.Option


def run(
    query: str = typer.Argument(..., help="What to answer; - reads it from standard input."),
    context: Path = Opt(..., help="A run, or a playbook file."),
    scaling: str | None = Opt(None, help="Attempts at the query: parallel, sequential or none (as the run's)."),
    k: opt.K[int | None] = None,
    preset: str | None = Opt(
        None, help="Attempts and memories for queries of this weight: routine, standard, critical."
    ),
    learn: bool = Opt(False, "--learn", help="Learn from the query: one more step and version of the run."),
    target: str | None = Opt(None, help="--learn: the right answer, where it is known (else a judge's word counts)."),
    method: str | None = Opt(None, help="How to answer and to learn (default: as the run; ace for a playbook file)."),
    model: str | None = Opt(None, help="Model of every role (default: that of the run, else local)."),
    role: opt.Role[list[str]] = [],
    set_: opt.Set[list[str]] = [],
    scorer: str | None = Opt(None, help="--learn: exact, numeric, choice, contains, regex, judge or module:function."),
    instructions: str | None = Opt(None, help="What the agent is told beside the query: a text, or @FILE."),
    choices: str | None = Opt(None, help="The possible answers, as a,b,c."),
    reasoning: opt.ReasoningOrNot[bool | None] = None,
    agent: opt.Agent[str | None] = None,
    max_turns: opt.MaxTurns[int | None] = None,
    tool_timeout: opt.ToolTimeout[float | None] = None,
    seed: opt.Seed[int | None] = None,
    temperature: opt.Temperature[float | None] = None,
    max_output_tokens: opt.MaxOutputTokens[int | None] = None,
    timeout: opt.Timeout[float | None] = None,
    structure: opt.Structure[str | None] = None,
    embedder: opt.Embedder[str | None] = None,
    max_calls: opt.MaxCalls[int | None] = None,
    max_tokens: opt.MaxTokens[int | None] = None,
    max_usd: opt.MaxUsd[float | None] = None,
    trace_out: Path | None = Opt(None, help="Write what happened as a page of HTML: a network's graph and its steps."),
    json_: opt.Json[bool] = False,
) -> int:
    """Answer one query with what was learned: the answer, what it rests on, and why it was chosen."""
    from practicum.cli.inputs import choices_of, method_settings, read_instructions, roles_of
    from practicum.cli.running import Interrupted, console_for, print_json, run_work, telling
    from practicum.session.ask import ask

    if scorer is not None and not learn:
        raise UsageError("--scorer is for --learn: nothing is scored here")
    given: dict[str, Any] = {
        "method": method,
        "settings": method_settings(set_, scaling=scaling, k=k, preset=preset),
        "model": model,
        "roles": roles_of(role),
        "scorer": scorer,
        "instructions": read_instructions(instructions) if instructions is not None else None,
        "choices": choices_of(choices, ()) if choices is not None else None,
        "reasoning": reasoning,
        "agent": agent,
        "max_turns": max_turns,
        "tool_timeout": tool_timeout,
        "seed": seed,
        "temperature": temperature,
        "max_output_tokens": max_output_tokens,
        "timeout": timeout,
        "structure": structure,
        "embedder": embedder,
        "max_calls": max_calls,
        "max_tokens": max_tokens,
        "max_usd": max_usd,
    }
    console, text = console_for(json_), _read(query)
    with console.status("answering") if console.is_terminal else _nothing():
        parts = telling(console)

        async def work(stop: Stopper) -> Answered:
            try:
                return await ask(text, context, learn=learn, target=target, parts=parts, on_state=stop.state, **given)
            except Stopped as stopped:
                raise Interrupted("interrupted: ask again, and what was paid for is not paid again") from stopped

        found = run_work(work, console)
    if json_:
        print_json(found.as_json())
    _report(console, found, context)
    if trace_out is not None:
        _draw(found, context, given, trace_out)
        console.print(f"what happened: {trace_out}")
    if found.trouble and found.learned is None:
        raise PracticumError(
            f"nothing was learned: {found.trouble}; ask again, and what was paid for is not paid again"
        )
    return 1 if found.rollout.trace.error is not None else 0


def _draw(found: Answered, context: Path, given: Mapping[str, Any], path: Path) -> None:
    """The page of what happened."""
    from practicum.analysis.network.page import answer_page
    from practicum.core.files import write_atomic
    from practicum.methods.mael import Settings, team_of
    from practicum.session.records import over, run_config

    made = over(run_config(context), given)
    team = team_of(Settings(**made["settings"]), made.get("seed", 0)) if made.get("method") == "mael" else None
    write_atomic(path, answer_page(found, team))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def _read(query: str) -> str:
    """The query, or what standard input says."""
    import sys

    if query != "-":
        return query
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8: {error.reason} at byte {error.start}") from error


def _report(console: Console, found: Answered, context: Path) -> None:
    """What a person wants to know: the answer first."""
    from practicum.cli.live import usage_words
    from practicum.cli.tables import print_table

    error = found.rollout.trace.error
    console.print(found.text if error is None else f"no answer: {error}", style="bold")
    if found.rollout.trace.reasoning:
        console.print(found.rollout.trace.reasoning, style="dim")
    console.print()
    _entries(console, found)
    if len(found.attempts) > 1:
        print_table(console, _attempts(found))
    if choice := found.rollout.choice:
        # Also of one attempt: a sequence says why it ended with it.
        console.print(f"chosen by {choice['by']}: {choice['why']}")
    hits = f"; {found.hits} results were in the journal" if found.hits else ""
    console.print(f"usage: {usage_words(found.usage)} in {found.seconds:.1f} s{hits}")
    if found.learned is not None:
        _lesson(console, found.learned, context)
        if found.trouble:
            console.print(f"to know: {found.trouble}")


def _entries(console: Console, found: Answered) -> None:
    """What was learned and shown for this query, and what of it the answer relies on."""
    from practicum.cli.tables import print_table

    used = {entry.id for entry in found.used}
    if found.retrieved:
        print_table(console, _looked_up(found, used))
    for entry in found.used:
        if entry.id not in {f.entry.id for f in found.retrieved}:
            console.print(f"relied on [{entry.id}] ({entry.section}) {entry.text}")
    if found.retrieved or used:
        return
    shown = sum(not entry.hidden for entry in found.context)
    if shown:
        console.print(f"it relied on none of the {shown:,} entries of version {found.context.version}")
    else:
        console.print("there are no memories yet: it answered with nothing learned")


def _looked_up(found: Answered, used: set[str]) -> Table:
    from practicum.cli.tables import table

    made = table("entry", "similarity", "used", "what it says", numbers=("similarity",))
    for near in found.retrieved:
        answer = f" → {near.entry.data['answer']}" if "answer" in near.entry.data else ""
        relied = "yes" if near.entry.id in used else ""
        said = near.entry.text + answer
        made.add_row(near.entry.id, f"{near.similarity:z.2f}", relied, said, style="bold" if relied else "")
    return made


def _attempts(found: Answered) -> Table:
    from practicum.cli.tables import table

    made = table("attempt", "chosen", "verdict", "answer", numbers=("attempt",))
    for n, rollout in enumerate(found.attempts, 1):
        chosen = "yes" if rollout is found.rollout else ""
        made.add_row(str(n), chosen, _verdict(found, n - 1), _came_to(rollout), style="bold" if chosen else "")
    return made


def _verdict(found: Answered, n: int) -> str:
    """What was said of an attempt: by the judge who chose, or by what learning heard."""
    said = found.rollout.choice.get("verdicts", ())
    verdict = said[n] if n < len(said) else None
    verdict = found.attempts[n].feedback.success if verdict is None else verdict
    return {True: "right", False: "wrong", None: "-"}[verdict]


def _came_to(rollout: Rollout) -> str:
    return rollout.trace.answer if rollout.trace.error is None else f"failed: {rollout.trace.error}"


def _lesson(console: Console, learned: Learned, context: Path) -> None:
    from practicum.cli.context import edit_words

    for done in learned.applied:
        console.print(f"learned [{done.id}]: {edit_words(done)}", style="green")
    refused = f"; {learned.refused} edits refused" if learned.refused else ""
    if not learned.applied:
        console.print(f"step {learned.step} of {context}: nothing new was learned{refused}")
        return
    undo = f"practicum rollback {context} {learned.context.version - 1}"
    console.print(f"step {learned.step} made version {learned.context.version} of {context}{refused}; undo it: {undo}")
