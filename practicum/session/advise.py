"""Advice before a run: method and settings for given tasks, model and budget, with an estimate of the cost.

The advice comes from a table (`session.advice_table`). No model is called and nothing is written. The advised options
have passed the checks that `learn` makes before its first model call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from statistics import median
from typing import Any

from practicum.core.context import Context, initial_context
from practicum.core.edits import Add
from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task, Usage
from practicum.core.views import count_tokens
from practicum.core.words import quantity
from practicum.engine.state import RunState, Seat
from practicum.methods import episodes
from practicum.methods.blocks.show import LEAST, TURN_FRAME
from practicum.models.budget import Budget, Need
from practicum.models.prices import Price
from practicum.models.registry import ROLES, price_of, require_model_name
from practicum.models.scripted import ScriptedClient
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Embedder, Vectors, WordLlama
from practicum.session.advice_table import ADVICE, CALLS, CHEAPER, FEW, SIMILAR, ModelKind, Row, TaskKind
from practicum.session.components import Parts, make_scorer
from practicum.session.config import Config, Splits, config_from
from practicum.session.opening import Reserve, call_options, run_embedder
from practicum.session.setup import Setup, build_setup, set_up, strangers, with_defaults
from practicum.store.journal import Journal
from practicum.tasks.load import MAX_CHOICE, choices_from
from practicum.tasks.scoring.registry import JUDGED

NAME = "NAME"
"""Placeholder for the name of a model, if the caller names no model."""

MAX_COMPARED = 500
"""Maximum number of tasks that are compared with each other."""

NEAREST = 4
"""Number of nearest tasks whose most frequent target is the guess for a task."""

FRAME, TOOLS = 40, 1500
"""Assumed numbers of tokens: the fixed text of a prompt; the descriptions and results of tools in one model call."""

ENTRY, MAX_SHOWN = {"full": 20, "small": 5}, 8_000
"""Number of tokens that learning from one task adds to the context, by profile; and maximum number of tokens of all
entries in a prompt. The number for the profile small is measured: 60 tasks together added 243 to 371 tokens
(docs/results.md). The number for the profile full is assumed."""

THOUGHT = 1000
"""Assumed number of tokens of the prompt of a call that learns (such as a reflection), without the task, the answer and
the rules in the prompt."""

WRITTEN = {"full": 400, "small": 60}
"""Assumed tokens of a reflection, of an answer of unknown length, or of reasoning before an answer, by profile."""


@dataclass(frozen=True, slots=True)
class NeighbourAgreement:
    """Agreement between the targets of tasks and the targets of the tasks nearest to them.

    `tasks` is the number of compared tasks. `nearest` is the share of compared tasks whose target equals the most
    frequent target of the task's four nearest tasks. `frequent` is the share of compared tasks that have the most
    frequent target of all compared tasks.
    """

    tasks: int
    nearest: float
    frequent: float

    @property
    def similar(self) -> bool:
        """Whether similar tasks usually have the same answer (see `SIMILAR`)."""
        return self.nearest - self.frequent >= SIMILAR * (1 - self.frequent)


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for tasks, a model and a budget.

    `options` are keywords of `learn` to add to the caller's keywords; `learning` and `evaluation` are the estimated
    usages of learning and of one evaluation; `roles` are the roles whose models the run calls. `alike` is None if the
    targets of the tasks were not compared.
    """

    tasks: TaskKind
    model: ModelKind
    row: Row
    alike: NeighbourAgreement | None
    options: Mapping[str, Any]
    roles: tuple[str, ...]
    learning: Usage
    evaluation: Usage
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        neighbours = self.alike
        return {
            "tasks": self.tasks, "model": self.model, "method": self.row.method, "settings": dict(self.row.settings),
            "reason": self.row.reason, "measured": self.row.measured or None,
            "nearest": neighbours and {
                "tasks": neighbours.tasks, "right": neighbours.nearest, "most_frequent": neighbours.frequent,
            },
            "learning": _price(self.learning), "evaluation": _price(self.evaluation), "notes": list(self.notes),
        }  # fmt: skip


def _price(usage: Usage) -> dict[str, Any]:
    return {"calls": usage.calls, "tokens": usage.tokens, "usd": usage.usd}


async def advise(tasks: Sequence[Task], test: Sequence[Task], values: Mapping[str, Any]) -> Advice:
    """Return advice for training tasks and held-out tasks.

    `values` are fields of `Config` without method and settings. Raises UsageError or TaskFileError if `learn` would
    refuse the tasks or the values before its first model call.
    """
    splits, notes = Splits(tuple(tasks), test=tuple(test)), list[str]()
    config = with_defaults(config_from(values), Parts())
    options: dict[str, Any] = {}
    if config.model is None and "agent" not in _by_role(config):
        options["model"] = NAME
    few = _few_targets(splits, config)
    if few and (new := sorted({str(task.target) for task in test if task.target is not None} - {*few})):
        notes.append(
            f"{quantity(len(new), 'target')} of held-out tasks (such as {new[0]!r}) do not occur in the training "
            "tasks, so answers are not treated as choices; if the answers are choices, list all choices "
            "(`choices=a,b,c`)"
        )
    elif few:
        options["choices"] = few
    if not config.labels and not config.judged:
        options["judged"] = True
        notes.append("without labels, a judge's verdict is the feedback, so `judged` is added")
    values = _plannable({**values, **options})
    config = with_defaults(config_from(values), Parts())
    _check(splits, config)
    kind, model = _kind_of_tasks(splits.train, config), _kind_of_model(config)
    # Use WordLlama in place of a provider's embedder, because advice makes no calls.
    embedder = WordLlama() if ":" in config.embedder else run_embedder(config, Parts())
    neighbours = await compare_neighbours(splits.train, embedder) if kind in ("choices", "answers") else None
    holds = {"any", *(["few"] if len(tasks) < FEW else []), *(["similar"] if neighbours and neighbours.similar else [])}
    row = next(row for row in ADVICE if (row.tasks, row.model) == (kind, model) and row.when in holds)
    setup = plan_run(row, values, splits)
    whole, refused = fits(setup, len(tasks)), refusal(setup)
    if (not whole or refused) and row.method not in ("none", "episodes"):
        notes.append(f"{row.method} would exceed the budget: {price_text(*estimate(setup, len(tasks)))}")
        doubt = "" if neighbours is None or neighbours.similar else ", although similar tasks often differ in answer"
        row = replace(row, method=CHEAPER[0], settings=CHEAPER[1], measured="", reason=(
            f"{CHEAPER[0]} is the cheapest method for these tasks{doubt}; with a higher budget, use {row.method}: "
            f"{row.reason}"
        ))  # fmt: skip
        setup = plan_run(row, values, splits)
        whole, refused = fits(setup, len(tasks)), refusal(setup)
    if refused:
        raise UsageError("budget.too_small", f"{refused}; use fewer test tasks or a lower `max_output_tokens`")
    if not whole:
        most = bisect_right(range(1, len(tasks)), False, key=lambda n: not fits(setup, n))
        notes.append(
            f"the budget covers about {quantity(max(most, 1), 'task')} of {len(tasks):,}: learning stops after "
            "these tasks and keeps the lessons from them; pass fewer tasks or raise the limit"
        )
    if kind == "text" and config.scorer == "exact" and config.labels:
        notes.append("targets are long, and `exact` requires identical text: use a judge or a scorer of your own")
    if row.method == "none" and not test:
        notes.append("without `test`, the run makes no model calls")
    if not setup.roles:
        options.pop("model", None)
    if (
        config.review == "foreign"
        and row.method != "none"
        and (authors := strangers(setup.config, setup.survey.levels))
    ):
        notes.append(f"lessons from {authors} wait for review (practicum review RUN)")
    return Advice(kind, model, row, neighbours, options, setup.roles, *estimate(setup, len(tasks)), tuple(notes))


def _plannable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of `Config` without the nonce and the redaction: both need a key, which would be written to
    disk."""
    unused = ("redact", "redact_map") if values.get("redact") else ()
    return {**{name: value for name, value in values.items() if name not in unused}, "nonce": ""}


def advise_instead(
    advice: Advice, row: Row, tasks: Sequence[Task], test: Sequence[Task], values: Mapping[str, Any]
) -> Advice:
    """Return the advice with another row, such as the method that a check found. `values` are as for `advise`."""
    setup = plan_run(row, _plannable({**values, **advice.options}), Splits(tuple(tasks), test=tuple(test)))
    learning, evaluation = estimate(setup, len(tasks))
    return replace(advice, row=row, roles=setup.roles, learning=learning, evaluation=evaluation)


def _few_targets(splits: Splits, config: Config) -> tuple[str, ...]:
    """Return the distinct targets of the training tasks as choices. Return () if the caller passed choices, or if an
    answer is not a choice among few targets."""
    excluded = config.choices or config.uses_tools or not config.labels or config.scorer not in ("exact", "choice")
    if excluded or any(task.target is None for task in splits.train):
        return ()
    try:
        return choices_from(splits.train)
    except UsageError:
        return ()


def _check(splits: Splits, config: Config) -> None:
    """Refuse an unknown scorer, role or model; two models for one role; tasks without targets if the scorer needs
    targets; and a limit in USD if the price of a model is unknown."""
    if unknown := [role for role in config.roles if role not in ROLES]:
        raise UsageError(
            "role.unknown",
            f"unknown role {unknown[0]!r}: the roles are {', '.join(ROLES)}",
            role=unknown[0],
            valid=[*ROLES],
        )
    if len(_by_role(config)) < len(config.roles):
        raise UsageError(
            "role.duplicate",
            "a role has two models: agent and generator are the same role, and so are curator and mutator",
        )
    missing = sum(task.target is None for task in splits.train)
    if make_scorer(config, Parts()).needs_target and config.labels and missing:
        raise TaskFileError(
            "tasks.no_target",
            f'{missing:,} of {quantity(len(splits.train), "task")} have no target: add "target", name the field of the '
            "targets with `fields=target=NAME`, score with a judge (`scorer=judge`), or learn from verdicts "
            "(`labels=False` `judged`)",
        )
    for name in filter(None, (config.model, *config.roles.values())):
        if name == NAME:
            continue
        require_model_name(name)
        if config.max_usd is not None and price_of(name, config.prices)(Usage(1)) is None:
            raise UsageError(
                "price.unknown",
                f"the price of {name} is unknown, so the budget of {config.max_usd:g} USD cannot be enforced: pass "
                "`prices=in=0.4,out=1.6` (US dollars per million tokens) or `max_tokens`",
                model=name,
            )


def _kind_of_tasks(tasks: Sequence[Task], config: Config) -> TaskKind:
    if config.uses_tools:
        return "tools"
    targets = [task.target for task in tasks if task.target is not None]
    if not config.labels or config.scorer in JUDGED or len(targets) < len(tasks):
        return "text"
    if config.choices:
        return "choices"
    # The scorer `numeric` compares only the last number of a target, so a long worked solution is an answer too.
    return "text" if median(map(len, targets)) > MAX_CHOICE and config.scorer != "numeric" else "answers"


def _kind_of_model(config: Config) -> ModelKind:
    """Return the kind of the model that attempts the tasks: tiny for `local`, otherwise by the run's profile."""
    if _by_role(config).get("agent", config.model) == "local":
        return "tiny"
    return "small" if config.profile == "small" else "capable"


def _by_role(config: Config) -> dict[str, str]:
    """Return the model names by canonical role name."""
    return {ROLES.get(role, role): model for role, model in config.roles.items()}


async def compare_neighbours(tasks: Sequence[Task], embedder: Embedder) -> NeighbourAgreement:
    """Compare the target of each task in a seeded sample (at most MAX_COMPARED tasks) with the targets of the nearest
    other tasks in the sample. All tasks need targets."""
    sample = list(tasks) if len(tasks) <= MAX_COMPARED else Random(0).sample(list(tasks), MAX_COMPARED)
    targets = {task.id: str(task.target) for task in sample}
    context = initial_context(Add("tasks", task.input, sources=(task.id,)) for task in sample)
    retriever, right = Retriever(Vectors(embedder)), 0
    for task in sample:
        near = [m.entry.sources[0] for m in (await retriever.nearest(context, task.input, NEAREST + 1)).matches]
        others = [targets[id] for id in near if id != task.id][:NEAREST]
        # On a tie, the nearest task's target wins.
        right += bool(others) and Counter(others).most_common(1)[0][0] == targets[task.id]
    frequent = Counter(targets.values()).most_common(1)[0][1]
    return NeighbourAgreement(len(sample), right / len(sample), frequent / len(sample))


def plan_run(row: Row, values: Mapping[str, Any], splits: Splits) -> Setup:
    """Return the setup of the run that a row advises, after the checks that `learn` makes. Models of roles that the run
    does not call are left out."""
    configured = {**values, "method": row.method, "settings": dict(row.settings)}
    config = with_defaults(config_from(configured), Parts())
    asked = (*build_setup(config.model_copy(update={"roles": {}}), splits, Parts()).roles, "agent")
    return set_up({**configured, "roles": {r: m for r, m in _by_role(config).items() if r in asked}}, splits)


def estimate(setup: Setup, n: int) -> tuple[Usage, Usage]:
    """Estimate the usage of learning from n tasks, and of one evaluation of the test tasks after learning.

    No prefix cache is assumed. More tasks never give a lower estimate.
    """
    config, settings, train = setup.config, setup.settings, setup.splits.train
    profile = config.profile or "full"
    attempts, thoughts = CALLS[config.method, profile]
    task = sum(count_tokens(t.text) for t in train) / len(train)
    lengths = [count_tokens(t.target) for t in train if t.target is not None] or [WRITTEN[profile]]
    answer = sum(lengths) / len(lengths)
    turn, turns = task + answer + TURN_FRAME, getattr(settings, "examples", 0)
    if isinstance(settings, episodes.Settings):
        # A task with a target needs no attempt if only the answer is shown.
        shown = config.agent == "chat" and config.labels and config.targets
        attempts = sum(t.target is None for t in train) / len(train) if shown else 1.0
        turns = min(settings.k, max(LEAST, int(settings.window / turn)))
    rules = min(ENTRY[profile] * n, MAX_SHOWN) if thoughts else 0
    prompt = FRAME + count_tokens(config.instructions) + sum(map(count_tokens, config.choices)) + task
    prompt += min(turns, n) * turn + (TOOLS if config.uses_tools else 0)
    # Before a number, models usually write their reasoning, even without `reasoning`.
    thought = WRITTEN[profile] if config.reasoning or config.scorer == "numeric" else 0
    per_attempt = (config.max_turns + 1) // 2 if config.uses_tools else int(config.asks)
    judged = config.scorer in JUDGED
    verdicts = attempts if judged or config.judged else 0

    def usage(calls: float, read: float, written: float, role: str) -> Usage:
        count = ceil(calls)
        total = Usage(count, ceil(count * read), 0, ceil(count * written))
        name = config.roles.get(role) or config.model or config.roles.get("agent") or NAME
        return replace(total, usd=price_of(name, config.prices)(total) if count else 0.0)

    def attempted(tasks: int, attempts: float, verdicts: float, rules: float) -> Usage:
        own = usage(tasks * attempts * per_attempt, prompt + rules, answer + thought, "agent")
        return own + usage(tasks * verdicts, FRAME + 3 * answer + task, WRITTEN["small"], "judge")

    evaluated = getattr(settings, "attempts", 1)
    # During learning, half of the rules exist on average.
    learning = attempted(n, attempts, verdicts, rules / 2)
    learning += usage(n * thoughts, THOUGHT + task + answer + rules / 2, WRITTEN[profile], "reflector")
    return learning, attempted(len(setup.splits.test), evaluated, evaluated * judged, rules)


def fits(setup: Setup, n: int) -> bool:
    """Return whether learning from n tasks and the evaluation together are expected to stay within the limits of the
    run."""
    learning, evaluation = estimate(setup, n)
    return Budget(setup.config.limits).exceeded_by(Need.of(learning + evaluation)) is None


@dataclass
class _Priced(ScriptedClient):
    """Client that only computes the cost of a model's calls; the model is not opened."""

    prices: Mapping[str, Price] = field(default_factory=dict)

    def cost(self, usage: Usage) -> float | None:
        return price_of(self.name, self.prices)(usage)


def refusal(setup: Setup) -> str:
    """Return the reason why `learn` would refuse the limits of the run, or "" if `learn` would accept the limits.

    The limits must cover the highest possible cost of one step and of the final evaluation.
    """
    config = setup.config

    def seat(role: str) -> Seat:
        name = config.roles.get(role) or config.model or NAME
        return Seat(_Priced(lambda call: "", name, prices=config.prices), call_options(config))

    state = RunState(
        Journal(), {role: seat(role) for role in setup.roles}, setup.agent, setup.scorer,
        Vectors(WordLlama()),
    )  # fmt: skip
    try:
        Reserve(setup, state, Context()).check()
    except UsageError as error:
        return str(error)
    return ""


def price_text(*parts: Usage) -> str:
    """Return the sum of estimated usages as text: calls, tokens and cost."""
    usage = sum(parts, Usage())
    usd = "price unknown" if usage.usd is None else f"${usage.usd:,.2f}" if usage.usd else "no charge"
    return f"about {quantity(usage.calls, 'call')}, {quantity(usage.tokens, 'token')}, {usd}"
