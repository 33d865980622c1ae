"""`practicum learn` starts a run, `practicum space resume` continues one."""

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
        None, help="Tasks as JSON lines: {'id'?, 'input', 'target'?, 'meta'?}; or a space (its outcomes)."
    ),
    from_: Path | None = opt.task(
        None,
        "--from",
        metavar="SPACE",
        first=False,
        help="In place of TASKS: learn from the outcomes of a space, with the recorded answers.",
    ),
    from_traces: str | None = opt.task(
        None,
        metavar="PATH|URL",
        help="In place of TASKS: learn from traces in a file, a folder, or a URL such as s3://bucket/prefix.",
    ),
    val: Path | None = opt.task(None),
    test: Path | None = opt.task(None),
    fields: opt.Fields = None,
    trust: Literal["own", "labelled", "foreign"] | None = opt.task(None, metavar="NAME", first=False),
    trust_scores: bool = opt.task(False, "--trust-scores", first=False, help="Use the scores in foreign traces."),
    trace_fields: str | None = opt.task(
        None,
        metavar="NAME=PATH,...",
        first=False,
        help="Fields of traces of another format: messages=PATH, or task=PATH,answer=PATH; also score, target, id.",
    ),
    seed_playbook: opt.SeedPlaybook = None,
    folder: opt.Out = None,
    store: opt.StoreUrl = None,
    log: opt.Log = [],
    json_: opt.Json = False,
    **options: Any,
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
            "learning needs exactly one source: a file of tasks (JSON lines), --from SPACE or --from-traces TRACES",
        )
    if trust_scores and from_traces is None:
        raise UsageError(
            "settings.unused", "--trust-scores applies to traces only: omit --trust-scores, or pass --from-traces"
        )
    if trace_fields is not None and from_traces is None:
        raise UsageError("settings.unused", "--trace-fields applies to traces only: pass --from-traces")
    needs = {"scorer": options["scorer"], "trust_tools": options["trust_tools"]}
    config = config_values(options, None)
    train: Iterable[Task] = read_tasks(tasks, fields, trust or "own", **needs)
    if from_ is not None:
        train, config["from_traces"] = read_outcomes(from_, trust or "own", options["trust_tools"]), True
    if from_traces is not None:
        train = open_traces(from_traces, trust or "foreign", trust_scores, trace_fields)
    vals, tests = (read_tasks(path, fields, held_out=True, **needs) for path in (val, test))
    seed = load_context(seed_playbook) if seed_playbook is not None else None
    return run_session(
        lambda **hooks: start(
            train, val=tuple(vals), test=tuple(tests), out=folder, seed_context=seed, store=store or None,
            **config, **hooks,
        ),
        json_, log,
    )  # fmt: skip


@opt.settings(where=lambda setting: setting.resume is not Resume.NEVER)
def resume(
    run: opt.RunFolder, trust_run: opt.TrustRun = False, log: opt.Log = [], json_: opt.Json = False, **options: Any
) -> int:
    """Continue a run that was stopped.

    The run keeps its tasks and settings, unless you pass options. The model of a role can only change while the run has
    no answer from that role. The agent can only change while the run has no attempt. Limits and other settings can
    change at any time.
    """
    from practicum.cli.inputs import config_values
    from practicum.cli.running import run_session
    from practicum.models.budget import spent_limit
    from practicum.session.learn import resume as go_on
    from practicum.session.records import last_report, read_run
    from practicum.store.database import Store, as_stored

    changes = config_values(options)
    del changes["settings"]  # a resume cannot change settings of the method
    with as_stored(run), Store.open(run) as store:
        config, _, state = read_run(store)
        reason = last_report(store).get("stopped") or ""
    if state == "done":
        raise UsageError(
            "run.finished",
            f"{run} is finished, so there is nothing to resume: look at the run with practicum show {run}, or start "
            f"another run from its playbook with practicum learn TASKS --seed-playbook {run} --model NAME",
        )
    spent = spent_limit(reason)
    # The last report names the limit that was spent. If a resume raised this limit and was killed before the resume
    # wrote a report, the current limit is not spent.
    same = spent is not None and reason.startswith(f"the budget of {getattr(config, spent) or 0:.12g} ")
    if state == "stopped" and same and spent not in changes:
        raise UsageError("budget.spent", f"{reason} in {run}: pass a higher limit with `{spent}`")
    return run_session(lambda **hooks: go_on(run, trust_run=trust_run, **changes, **hooks), json_, log)
