"""`practicum eval`: score a context on tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from practicum.cli.running import Stopper
    from practicum.session.evaluate import Evaluation

Opt = typer.Option


def evaluate(
    tasks: Path = typer.Argument(..., help="Tasks as JSON lines, with targets where the scorer needs them."),
    context: Path | None = Opt(None, help="A run, or a playbook file; without it, the agent with nothing learned."),
    model: str | None = Opt(None, help="Model of the agent (default: that of the run, else local)."),
    repeat: int = Opt(1, min=1, help="Times each task is run."),
    method: str | None = Opt(None, help="How the context is shown (default: as the run's method does, else ace)."),
    scaling: opt.Scaling[str | None] = None,
    k: opt.K[int | None] = None,
    preset: opt.Preset[str | None] = None,
    set_: opt.Set[list[str]] = [],
    role: opt.Role[list[str]] = [],
    scorer: opt.Scorer[str | None] = None,
    instructions: opt.Instructions[str | None] = None,
    choices: opt.Choices[str | None] = None,
    reasoning: opt.ReasoningOrNot[bool | None] = None,
    agent: opt.Agent[str | None] = None,
    max_turns: opt.MaxTurns[int | None] = None,
    tool_timeout: opt.ToolTimeout[float | None] = None,
    fields: opt.Fields[str] = "",
    concurrency: opt.Concurrency[int | None] = None,
    seed: opt.Seed[int | None] = None,
    temperature: opt.Temperature[float | None] = None,
    max_output_tokens: opt.MaxOutputTokens[int | None] = None,
    timeout: opt.Timeout[float | None] = None,
    structure: opt.Structure[str | None] = None,
    embedder: opt.Embedder[str | None] = None,
    max_calls: opt.MaxCalls[int | None] = None,
    max_tokens: opt.MaxTokens[int | None] = None,
    json_: opt.Json[bool] = False,
) -> int:
    """Score a context on tasks, with a 95% interval. Settings not given are those of the run."""
    from practicum.cli.inputs import choices_of, method_settings, read_instructions, read_tasks, roles_of
    from practicum.cli.running import Interrupted, console_for, print_json, run_work, telling
    from practicum.core.context import Context
    from practicum.session.evaluate import evaluate as score
    from practicum.session.learn import INTERRUPTED
    from practicum.session.records import load_context, over, run_config

    listed = read_tasks(tasks, fields)
    given: dict[str, Any] = {
        "method": method,
        "settings": method_settings(set_, scaling=scaling, k=k, preset=preset),
        "model": model,
        "roles": roles_of(role),
        "scorer": scorer,
        "instructions": read_instructions(instructions) if instructions is not None else None,
        "choices": choices_of(choices, listed) if choices is not None else None,
        "reasoning": reasoning,
        "max_turns": max_turns,
        "tool_timeout": tool_timeout,
        "agent": agent,
        "concurrency": concurrency,
        "seed": seed,
        "temperature": temperature,
        "max_output_tokens": max_output_tokens,
        "timeout": timeout,
        "structure": structure,
        "embedder": embedder,
        "max_calls": max_calls,
        "max_tokens": max_tokens,
    }
    config = over(run_config(context) if context is not None else {}, given)
    if repeat > 1 and not config.get("temperature", 0.0) and not json_:
        console_for(json_).print("note: at temperature 0 repeats differ only as far as the model is not deterministic")
    learned = load_context(context) if context is not None else Context()
    console = console_for(json_)

    async def work(stop: Stopper) -> Evaluation:
        return await score(listed, learned, repeat=repeat, parts=telling(console), on_state=stop.state, **config)

    found = run_work(work, console)
    if json_:
        print_json(found.as_json())
    _report(console, found, len(listed))
    if found.stopped:
        kind = Interrupted if found.stopped == INTERRUPTED else UsageError
        raise kind(f"the evaluation is not whole: {found.stopped}")
    return 0


def _report(console: Console, found: Evaluation, tasks: int) -> None:
    """What a person wants to know; of an evaluation that was stopped, what was paid for until then."""
    from practicum.cli.live import report_roles, to_know, usage_words

    low, high = found.ci95
    times = f", {found.repeat} times each" if found.repeat > 1 else ""
    of = f"{found.n}" if found.n == tasks else f"{found.n} of {tasks}"
    if found.n:
        console.print(f"score {found.score:.1%} (95% interval {low:.1%} to {high:.1%}) on {of} tasks{times}")
    if found.measures:
        means = ", ".join(f"{name} {mean:,.2f}" for name, mean in found.measures.items())
        console.print(f"measured, on average: {means}")
    console.print(f"usage: {usage_words(found.usage)} in {found.seconds:.1f} s; {found.errors} failed attempts")
    if len(found.by_role) > 1:
        report_roles(console, found.by_role)
    to_know(console, found.counts)
