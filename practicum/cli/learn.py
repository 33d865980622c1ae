"""`practicum learn` begins a run, `practicum space resume` continues one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from typer import Argument

from practicum.cli import options as opt
from practicum.core.errors import UsageError
from practicum.core.settings import Resume
from practicum.core.types import Task


@opt.settings(*opt.METHOD_SETTINGS, where=lambda setting: True, begins=True)
def learn(
    tasks: Path | None = Argument(
        None, help="Tasks as JSON lines: {'id'?, 'input', 'target'?, 'meta'?}; or a space: its outcomes."
    ),
    from_: Path | None = opt.what(
        None,
        "--from",
        metavar="SPACE",
        first=False,
        help="Learn from the outcomes of a space instead, as they were answered.",
    ),
    from_traces: str | None = opt.what(
        None,
        metavar="PATH|URL",
        help="Learn from traces instead: a file, a folder, or a URL such as s3://bucket/prefix.",
    ),
    val: Path | None = opt.what(None),
    test: Path | None = opt.what(None),
    fields: opt.Fields = None,
    trust: Literal["own", "labelled", "foreign"] | None = opt.what(None, metavar="NAME", first=False),
    trust_scores: bool = opt.what(False, "--trust-scores", first=False, help="Scores in foreign traces count."),
    seed_playbook: opt.SeedPlaybook = None,
    folder: opt.Out = None,
    store: opt.StoreUrl = None,
    log: opt.Log = [],
    json_: opt.Json = False,
    **given: Any,
) -> int:
    """Learn from tasks, traces or outcomes.

    The agent attempts tasks, a model reflects on the attempts, and the lessons become edits of the context.
    """
    from practicum.cli.inputs import config_values, open_traces, read_outcomes, read_tasks
    from practicum.cli.running import run_session
    from practicum.session.learn import learn as start
    from practicum.session.records import load_context

    if [tasks, from_, from_traces].count(None) != 2:
        raise UsageError(
            "tasks.missing",
            "learning takes tasks from one source: a file of JSON lines, --from SPACE, or --from-traces TRACES",
        )
    if trust_scores and from_traces is None:
        raise UsageError(
            "settings.unused", "--trust-scores is about the scores in traces: leave it out, or give --from-traces"
        )
    needs = {"scorer": given["scorer"], "trust_tools": given["trust_tools"]}
    config = config_values(given, None)
    train: Iterable[Task] = read_tasks(tasks, fields, trust or "own", **needs)
    if from_ is not None:
        train, config["from_traces"] = read_outcomes(from_, trust or "own", given["trust_tools"]), True
    if from_traces is not None:
        train = open_traces(from_traces, trust or "foreign", trust_scores)
    vals, tests = (read_tasks(path, fields, held_out=True, **needs) for path in (val, test))
    seed = load_context(seed_playbook) if seed_playbook is not None else None
    return run_session(
        lambda **how: start(
            train, val=tuple(vals), test=tuple(tests), out=folder, seed_context=seed, store=store or None,
            **config, **how,
        ),
        json_, log,
    )  # fmt: skip


@opt.settings(where=lambda setting: setting.resume is not Resume.NEVER)
def resume(
    run: opt.RunFolder, trust_run: opt.TrustRun = False, log: opt.Log = [], json_: opt.Json = False, **given: Any
) -> int:
    """Continue a run that was stopped.

    It keeps its own tasks and settings. Options correct what was wrong: a model, as long as the run keeps no answer
    of it; the agent, as long as it keeps no attempt; limits and the others at any time.
    """
    from practicum.cli.inputs import config_values
    from practicum.cli.running import run_session
    from practicum.models.budget import spent_limit
    from practicum.session.learn import resume as go_on
    from practicum.session.records import last_report, read_run
    from practicum.store.database import Store, as_stored

    changes = config_values(given)
    del changes["settings"]  # those of the method cannot change
    with as_stored(run), Store.open(run) as store:
        config, _, state = read_run(store)
        reason = last_report(store).get("stopped") or ""
    if state == "done":
        raise UsageError(
            "run.finished",
            f"{run} is finished, so there is nothing to resume: look at it with practicum show {run}, or learn more "
            f"from what it learned with practicum learn TASKS --seed-playbook {run} --model NAME",
        )
    spent = spent_limit(reason)
    # A limit that was raised since, in a run that was killed then, is not spent.
    same = spent is not None and reason.startswith(f"the budget of {getattr(config, spent) or 0:.12g} ")
    if state == "stopped" and same and spent not in changes:
        raise UsageError("budget.spent", f"{reason} in {run}: give a higher one with `{spent}`")
    return run_session(lambda **how: go_on(run, trust_run=trust_run, **changes, **how), json_, log)
