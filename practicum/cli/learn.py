"""`practicum learn`: learn from tasks, or go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from practicum.cli import options as opt
from practicum.core.errors import UsageError

Opt = typer.Option


def learn(
    tasks: Path | None = typer.Argument(None, help="Tasks as JSON lines: {'id'?, 'input', 'target'?, 'meta'?}."),
    from_traces: Path | None = Opt(None, help="Learn from what agents did already: a file or folder of traces."),
    val: Path | None = Opt(None, help="Tasks to choose the best context by."),
    test: Path | None = Opt(None, help="Held-out tasks, scored at the end."),
    method: str = Opt("ace", help="How to learn; `practicum methods` lists them."),
    model: str = Opt("local", help="openai:..., anthropic:..., http://host:port/v1#name, local, local:/path.gguf."),
    role: opt.Role[list[str]] = [],
    epochs: int | None = Opt(None, help="Times the tasks are gone through."),
    batch_size: str | None = Opt(None, help="Tasks attempted at once before the context changes; combee: or auto."),
    asynchronous: bool = Opt(False, "--asynchronous", help="combee: no barrier; slow attempts hold no other up."),
    staleness: int | None = Opt(None, help="combee --asynchronous: versions a delta may be behind unreconciled."),
    scaling: opt.Scaling[str | None] = None,
    k: opt.K[int | None] = None,
    preset: opt.Preset[str | None] = None,
    online: bool = Opt(False, "--online", help="TASKS is a stream: predict each, then learn from it."),
    no_labels: opt.NoLabels[bool] = False,
    judge: bool = Opt(
        False, "--judge", help="A judge's verdict is the feedback: with --no-labels, or for traces without a score."
    ),
    set_: opt.Set[list[str]] = [],
    scorer: opt.Scorer[str | None] = None,
    instructions: opt.Instructions[str] = "",
    choices: opt.Choices[str] = "",
    reasoning: opt.Reasoning[bool] = False,
    agent: opt.Agent[str] = "chat",
    max_turns: opt.MaxTurns[int] = 12,
    tool_timeout: opt.ToolTimeout[float] = 20.0,
    fields: opt.Fields[str] = "",
    seed_playbook: Path | None = Opt(None, help="Start from a playbook file or from another run."),
    before: bool = Opt(False, "--before", help="Also score --test with the context the run starts from."),
    validate_every: opt.ValidateEvery[int] = 1,
    concurrency: opt.Concurrency[int] = 16,
    seed: opt.Seed[int] = 0,
    max_calls: opt.MaxCalls[int | None] = None,
    max_tokens: opt.MaxTokens[int | None] = None,
    max_usd: opt.MaxUsd[float | None] = None,
    max_minutes: float | None = Opt(None, help="Stop after this long."),
    temperature: opt.Temperature[float] = 0.0,
    max_output_tokens: opt.MaxOutputTokens[int] = 1024,
    timeout: opt.Timeout[float] = 120.0,
    retries: opt.Retries[int] = 5,
    structure: opt.Structure[str] = "native",
    window: opt.Window[int | None] = None,
    embedder: opt.Embedder[str] = "wordllama",
    out: Path | None = Opt(None, help="Folder to keep the run in (default: a new one under ./runs)."),
    json_: opt.Json[bool] = False,
) -> int:
    """Learn from tasks: attempt, reflect, and make the context better."""
    from practicum.cli.running import run_session
    from practicum.session.learn import learn as start

    limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_usd": max_usd, "max_minutes": max_minutes}
    if (tasks is None) == (from_traces is None):
        raise UsageError("which tasks? Give a file of JSON lines, or --from-traces TRACES")
    from practicum.cli.inputs import (
        choices_of,
        method_settings,
        read_instructions,
        read_tasks,
        read_traces,
        roles_of,
    )
    from practicum.session.records import load_context

    traces = read_traces(from_traces) if from_traces is not None else None
    train = read_tasks(tasks, fields) if traces is None else traces.tasks
    vals, tests = read_tasks(val, fields), read_tasks(test, fields)
    config: dict[str, Any] = {
        "method": method,
        "settings": method_settings(
            set_,
            epochs=epochs,
            batch=batch_size,
            online=online or None,
            asynchronous=asynchronous or None,
            staleness=staleness,
            scaling=scaling,
            k=k,
            preset=preset,
        ),
        "model": model,
        "roles": roles_of(role),
        "agent": agent,
        "scorer": scorer,
        "instructions": read_instructions(instructions),
        "choices": choices_of(choices, [*train, *vals, *tests]),
        "reasoning": reasoning,
        "max_turns": max_turns,
        "tool_timeout": tool_timeout,
        "labels": not no_labels,
        "judged": judge,
        "from_traces": traces is not None,
        "trace_faults": 0 if traces is None else traces.faults,
        "seed": seed,
        "concurrency": concurrency,
        "structure": structure,
        "temperature": temperature,
        "max_output_tokens": max_output_tokens,
        "timeout": timeout,
        "attempts": retries + 1,
        "window": window,
        "embedder": embedder,
        "validate_every": validate_every,
        "before": before,
        **limits,
    }
    seeds = load_context(seed_playbook) if seed_playbook is not None else None
    return run_session(
        lambda **how: start(train, val=vals, test=tests, out=out, seed_context=seeds, **config, **how), json_
    )


def resume(
    run: Path = typer.Argument(..., help="The run's folder."),
    max_calls: opt.MaxCalls[int | None] = None,
    max_tokens: opt.MaxTokens[int | None] = None,
    max_usd: opt.MaxUsd[float | None] = None,
    max_minutes: float | None = Opt(None, help="Stop after this long."),
    json_: opt.Json[bool] = False,
) -> int:
    """Go on with a run that was stopped. It keeps its tasks and settings; its budgets can be raised."""
    from practicum.cli.running import run_session
    from practicum.session.learn import resume as go_on
    from practicum.session.records import read_run
    from practicum.store.database import Store

    with Store.open(run) as store:
        _, _, state = read_run(store)
    if state == "done":
        raise UsageError(
            f"{run} is finished, so there is nothing to resume: look at it with practicum show {run}, or learn more "
            f"from what it learned with practicum learn TASKS --seed-playbook {run}"
        )
    limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_usd": max_usd, "max_minutes": max_minutes}
    return run_session(lambda **how: go_on(run, limits=limits, **how), json_)
