"""MIPROv2: a model proposes instructions, attempts give demonstrations, and Bayesian optimization searches for the best
combination of both (Opsahl-Ong et al., 2024, section 4).

The optimizer is part of DSPy (package `dspy`): it draws sets of demonstrations from successful attempts, has a model
propose instructions, and tries combinations of an instruction and a set. Each evaluation of a combination ends a step.
Instructions and demonstrations are entries: the entries of the best combination are shown, the others are hidden.
docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, create_model

from practicum.core.bounded import MaxChars, Output
from practicum.core.clashes import ON, Clash
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, Update, ordered_union
from practicum.core.errors import UsageError
from practicum.core.types import Attempt, Instructions, Prompt, Task, Turn
from practicum.core.views import View, render_turns
from practicum.engine.loop import Batch, Method, Schedule, StepReport, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import as_experience
from practicum.methods.blocks.sample import everything
from practicum.methods.blocks.show import answer
from practicum.methods.none import keep_nothing
from practicum.methods.settings import CandidateSettings
from practicum.plugins.rivals.bridge import AskModel, PackageSearch
from practicum.plugins.rivals.search import LONGEST, SECTION, best_instruction, ranked, visible_score

DEMOS = "demonstrations"
"""Section of the demonstrations that are shown."""

HIDDEN = {SECTION: f".{SECTION}", DEMOS: f".{DEMOS}"}
"""Sections of instructions and demonstrations that are not part of the best combination."""

NONE = "Do the task."
"""Initial instruction that DSPy gets if the agent has no instruction."""


class Settings(CandidateSettings):
    NO_GATE: ClassVar[str] = "judges its candidates itself"
    REQUIRES: ClassVar[tuple[str, ...]] = ("dspy", "optuna")

    candidates: int = Field(default=6, ge=1)
    """Number of instructions, and number of sets of demonstrations; a combination has one of each."""
    trials: int = Field(default=10, ge=1)
    """Number of combinations that are tried."""
    minibatch: int = Field(default=35, ge=1)
    """Number of comparison tasks on which a trial evaluates a combination; all comparison tasks if there are fewer."""
    full: int = Field(default=5, ge=1)
    """Number of trials between two evaluations of the best combination so far on all comparison tasks."""
    bootstrapped: int = Field(default=4, ge=0)
    """Maximum number of demonstrations in a set that are successful attempts of the agent."""
    labeled: int = Field(default=4, ge=0)
    """Number of demonstrations up to which a set is filled with tasks and their target answers."""

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash(
            {"labeled": ON, "bootstrapped": 0},
            "a set of demonstrations needs answers of the agent before target answers: set bootstrapped above 0, or "
            "labeled=0",
        ),
    )


def method(s: Settings) -> Method:
    """Attempt tasks for demonstrations, propose instructions, try combinations of instructions and demonstrations, keep
    the best."""
    act = answer(best_combination)
    return Method(
        name="mipro",
        show=best_combination,
        sample=everything,
        act=act,
        attempt=once(act),
        reflect=as_experience,
        update=keep_nothing,
        accept=always,
        schedule=bayesian_search(s),
        roles=("curator",),
        costs="attempts for demonstrations, attempts with each combination on a minibatch, a call for each instruction",
    )


async def best_combination(context: Context, task: Task, run: Run) -> View:
    """Return a view of the best combination: the instruction, with the demonstrations as earlier turns."""
    demos = demonstrations(context)
    view, turns = await best_instruction(context, task, run), render_turns(demos)
    ids = tuple(entry.id for entry in context if entry.id in view.ids or entry in demos)
    return replace(view, turns=turns.turns, ids=ids, tokens=view.tokens + turns.tokens)


def demonstrations(context: Context) -> list[Entry]:
    """Return the shown demonstrations in order. Demonstrations without an answer, for example added by hand, are
    skipped."""
    answered = (e for e in context.in_section(DEMOS) if "answer" in e.data)
    return sorted(answered, key=lambda e: int(e.data.get("turn", 0)))


def bayesian_search(s: Settings) -> Schedule:
    """Return a schedule of trials of combinations. Combinations are compared on the validation tasks. Without
    validation tasks, combinations are compared on 80% of the training tasks, and made from the other 20%."""
    return lambda method, tasks, context, run, validation: BayesianSearch(
        method, tasks, context, run, validation, s
    ).steps()


@dataclass(frozen=True, slots=True)
class Candidate:
    """Combination of an instruction and demonstrations. `text` is the instruction ("": the initial instruction of the
    run). `demos` has the id of a task and an answer for each demonstration."""

    text: str = ""
    demos: tuple[tuple[str, str], ...] = ()


START = Candidate()
"""Initial candidate of the run."""


@dataclass(frozen=True, slots=True, repr=False)
class TaskInput:
    """Task as the value of a field of DSPy. Its text is the task's input."""

    task: Task

    def __str__(self) -> str:
        return self.task.text

    def __repr__(self) -> str:
        return repr(self.task.text)


@dataclass(eq=False)
class BayesianSearch(PackageSearch):
    """Adapter through which DSPy calls models. DSPy sees the agent as a program with one predictor."""

    settings: Settings
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Outputs of the current comparison, by task id."""

    asks: int = 0
    """Number of calls, so far, of the model that proposes instructions."""

    tried: dict[tuple[Candidate, str], Attempt] = field(default_factory=dict)
    scored: dict[tuple[Candidate, str], Attempt] = field(default_factory=dict)
    parts: dict[Candidate, list[float]] = field(default_factory=dict)
    wholes: dict[Candidate, float] = field(default_factory=dict)
    ids: dict[str | tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        learned, self.others = self._split()
        self.learned = {task.id: task for task in learned}
        self.about = ordered_union(task.sources for task in learned)
        self.start, candidates = self.context, ranked(self.context)
        self.first_text = candidates[0].text if candidates else ""
        if candidates:
            self.ids[START.text] = candidates[0].id

    def _split(self) -> tuple[list[Task], list[Task]]:
        """Return the tasks to learn from, and the tasks to compare candidates on. Without validation tasks, 80% of the
        tasks are for comparisons, as in DSPy."""
        order = list(self.tasks)
        if self.validation is not None:
            return order, list(self.validation.tasks)
        if len(order) < 2:
            raise UsageError(
                "tasks.missing",
                "method mipro compares candidates on tasks that it does not learn from: set `val`, or pass at least "
                "2 tasks",
            )
        self.run.at("split").rng().shuffle(order)
        cut = len(order) - max(1, int(0.8 * len(order)))
        return order[:cut], order[cut:]

    # ---- in the thread of DSPy

    def optimize(self, ask: AskModel) -> None:
        import dspy
        from dspy.utils.callback import BaseCallback

        def example(task: Task) -> Any:
            target = {"answer": task.target} if self.run.targets and task.target is not None else {}
            return dspy.Example(task=TaskInput(task), **target).with_inputs("task")

        self.ask, settings = ask, self.settings
        instructions = "\n\n".join(part for part in (self.run.instructions, self.first_text) if part) or NONE
        fields = {"task": (Any, dspy.InputField()), "answer": (str, dspy.OutputField())}
        signature = dspy.Signature(fields, instructions)
        # DSPy replaces an empty proposal with DSPy's default instruction. So the default instruction also means the
        # initial instruction of the run.
        self.first = {signature.instructions, signature.with_instructions("").instructions}
        model, watch = dspy.BaseLM("practicum"), BaseCallback()
        watch.on_evaluate_start, watch.on_evaluate_end = self.compare, lambda **event: self.outputs.clear()
        train, val = [example(task) for task in self.learned.values()], [example(task) for task in self.others]
        labeled = settings.labeled if any("answer" in each for each in train) else 0
        optimizer = dspy.MIPROv2(
            self.metric, prompt_model=model, task_model=model, auto=None, num_candidates=settings.candidates,
            num_threads=1, max_bootstrapped_demos=settings.bootstrapped, max_labeled_demos=labeled, seed=self.run.seed,
            init_temperature=settings.warmth,
        )  # fmt: skip
        try:
            with dspy.context(lm=model, adapter=self, callbacks=[watch]):
                optimizer.compile(
                    dspy.Predict(signature), trainset=train, valset=val, num_trials=settings.trials,
                    minibatch=settings.minibatch < len(val), minibatch_size=min(settings.minibatch, len(val)),
                    minibatch_full_eval_steps=settings.full, program_aware_proposer=False,
                )  # fmt: skip
        except ValueError as error:
            # DSPy raises this error when every tried combination was evaluated on all tasks. The search is then
            # complete.
            if "No valid program" not in str(error):
                raise

    def __call__(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        """Answer a model call of DSPy. If the call has a task, attempt the task. Otherwise ask the model that proposes
        instructions."""
        if isinstance(shown := inputs.get("task"), TaskInput):
            if self.outputs:
                return [self.outputs[shown.task.id]]
            return [self.ask(partial(self._attempted, self._candidate(signature, demos), shown.task))]
        texts = tuple((name, _description(definition)) for name, definition in signature.output_fields.items())
        warmth = lm_kwargs.get("temperature", lm.kwargs.get("temperature"))
        form = _form(signature.__name__, texts)
        instructions = Instructions(signature.instructions, examples=_example(signature, form))
        prompt = instructions.prompt(self.run.profile, _parts(signature, inputs))
        return [self.ask(partial(self._proposed, prompt, form, warmth))]

    def compare(self, call_id: str, instance: Any, inputs: Any) -> None:
        """Start an evaluation of a combination: make all attempts of the evaluation concurrently, and end the step."""
        tasks = [each.task.task for each in inputs["devset"] or instance.devset]
        candidate = self._candidate(inputs["program"].signature, inputs["program"].demos)
        attempts = self.ask(partial(self._tried, candidate, tasks))
        self.ask(partial(self._ended, candidate, attempts))
        self.outputs = {task.id: self._outputs(attempt) for task, attempt in zip(tasks, attempts, strict=True)}

    def metric(self, example: Any, prediction: Any, trace: Any = None) -> float | bool:
        """Return the score of an attempt. If DSPy passes a trace, return whether the attempt can be a demonstration."""
        return float(prediction.score) if trace is None else bool(prediction.good)

    def _candidate(self, signature: Any, demos: Any) -> Candidate:
        text = "" if signature.instructions in self.first else str(signature.instructions).strip()
        answered = ((demo.task.task.id, str(demo.get("answer") or "")) for demo in demos)
        return Candidate(text, tuple(dict.fromkeys(demo for demo in answered if demo[1])))

    def _outputs(self, attempt: Attempt) -> dict[str, Any]:
        """Return the values of an attempt that DSPy reads: the answer, the score that learning may see (0 without such
        a score), and whether the attempt can be a demonstration."""
        good = attempt.feedback.success is True and bool(attempt.trace.answer)
        return {"answer": attempt.trace.answer, "score": visible_score(attempt, self.run) or 0.0, "good": good}

    # ---- in the event loop

    async def _attempted(self, candidate: Candidate, task: Task) -> dict[str, Any]:
        """Return the outputs of an attempt at a task with a candidate. The attempt is made only once, even if DSPy
        requests the same attempt for several sets of demonstrations."""
        key = candidate, task.id
        if key not in self.tried:
            place = self.at.at(f"attempt {len(self.attempts) + 1}")
            (self.tried[key],) = attempts = await self.method.attempt(Batch((task,)), self._shown(candidate), place)
            self.losses.count(attempts, ())
            self.attempts += attempts
            self.run.require_own(sources_of(attempts))
        return self._outputs(self.tried[key])

    async def _proposed(self, prompt: Prompt, form: type[BaseModel], warmth: float | None) -> dict[str, str]:
        """Return the texts that a model writes for the fields of `form`. A failed call is counted, and all of its texts
        are empty."""
        self.asks += 1
        at = self.at.at(f"ask {self.asks}", self.about)
        output = await at.try_ask("curator", prompt, form, Count.LOST_UPDATES, temperature=warmth)
        if output is None:
            return dict.fromkeys(form.model_fields, "")
        return {name: str(text).strip() for name, text in output.model_dump().items()}

    async def _tried(self, candidate: Candidate, tasks: Sequence[Task]) -> list[Attempt]:
        """Return an attempt at each task with the candidate. For a task on which the candidate was evaluated before,
        return the earlier attempt."""
        missing = [task for task in tasks if (candidate, task.id) not in self.scored]
        if missing:
            attempts = await self.compared(missing, self._shown(candidate))
            self.scored.update(((candidate, r.task.id), r) for r in attempts)
        return [self.scored[candidate, task.id] for task in tasks]

    def _shown(self, candidate: Candidate) -> Context:
        if candidate == START:
            return self.start
        text = candidate.text or self.first_text
        adds = [Add(SECTION, text)] if text else []
        adds += [self._demo(demo, turn) for turn, demo in enumerate(candidate.demos)]
        return Context().apply(Delta(tuple(adds))).context

    def _demo(self, demo: tuple[str, str], turn: int) -> Add:
        """Return the entry of a demonstration. The entry has the sources of the task and of the attempts that gave this
        answer."""
        id, text = demo
        task = self.learned[id]
        attempts = [r for (_, task_id), r in self.tried.items() if task_id == id and r.trace.answer == text]
        sources = ordered_union([task.sources, sources_of(attempts)])
        return Add(DEMOS, task.input, data={"answer": text, "turn": turn}, sources=sources)

    async def _ended(self, candidate: Candidate, attempts: Sequence[Attempt]) -> StepReport:
        score = fmean(visible_score(attempt, self.run) or 0.0 for attempt in attempts)
        if len(attempts) == len(self.others):
            self.wholes.setdefault(candidate, score)
        self.parts.setdefault(candidate, []).append(score)
        # As in DSPy, only a candidate that was evaluated on all comparison tasks can be the best. If scores are equal,
        # the older candidate is the best.
        best = max(self.wholes, key=lambda each: self.wholes[each])
        delta = self._delta(candidate, best)
        instruction, demos = self._entries(candidate)
        data = {
            "instruction": instruction, "demonstrations": demos,
            "score": round(score, 6), "compared": len(attempts), "best_score": round(self.wholes[best], 6),
        }  # fmt: skip
        return self.report(delta, instruction, data, self.wholes[best] if self.validation is not None else None)

    def _delta(self, candidate: Candidate, best: Candidate) -> Delta:
        """Return the edits of a step: add the new entries of this candidate, and update the scores and sections of all
        entries."""
        adds: dict[str | tuple[str, str], Add] = {}
        if candidate.text and candidate.text not in self.ids:
            adds[candidate.text] = Add(SECTION, candidate.text, sources=self.about)
        adds |= {demo: self._demo(demo, 0) for demo in candidate.demos if demo not in self.ids}
        self.ids |= {key: f"e{id}" for id, key in enumerate(adds, self.context.next_number)}
        applied = self.context.apply(Delta(tuple(adds.values()))).context
        instruction, demos = self._entries(best)
        edits: list[Update] = []
        for entry in applied:
            section, data = entry.section.removeprefix("."), dict(entry.data)
            if section not in HIDDEN:
                continue
            if section == SECTION:
                data |= self._score_of(entry.id)
            elif entry.id in demos:
                data["turn"] = demos.index(entry.id)
            section = section if entry.id in (instruction, *demos) else HIDDEN[section]
            if (section, data) != (entry.section, dict(entry.data)):
                edits.append(Update(entry.id, section=section, data=data))
        return Delta((*adds.values(), *edits))

    def _entries(self, candidate: Candidate) -> tuple[str | None, list[str]]:
        """Return the id of the entry of the candidate's instruction (None: no entry), and the ids of the entries of the
        candidate's demonstrations, in order."""
        if candidate == START:
            demos = [e.id for e in demonstrations(self.start)]
        else:
            demos = [self.ids[demo] for demo in candidate.demos]
        return self.ids.get(candidate.text), demos

    def _score_of(self, id: str) -> dict[str, Any]:
        """Return the score of an instruction with the demonstrations that score best with this instruction. Scores on
        all comparison tasks take precedence over scores on minibatches."""
        candidates = [each for each in self.parts if self.ids.get(each.text) == id]
        if not candidates:
            return {}
        scores = {each: self.wholes.get(each, fmean(self.parts[each])) for each in candidates}
        best = max(candidates, key=lambda each: (each in self.wholes, scores[each]))
        return {"score": round(scores[best], 6), "with": [self.ids[demo] for demo in best.demos]}


@cache
def _form(name: str, texts: tuple[tuple[str, str], ...]) -> type[BaseModel]:
    """Return the output form of a call: a field for each text, given by its name and description."""
    text_type = Annotated[str, MaxChars(4_000, LONGEST)]
    fields: dict[str, Any] = {text: (text_type, Field(description=description)) for text, description in texts}
    return create_model(name, __base__=Output, **fields)


def _description(definition: Any) -> str:
    return str(definition.json_schema_extra.get("desc", ""))


def _parts(signature: Any, inputs: Mapping[str, Any]) -> list[str]:
    """Return the parts of a prompt: the input fields of a signature, each under its description."""
    return [f"# {_description(definition)}\n{inputs[name]}" for name, definition in signature.input_fields.items()]


def _example(signature: Any, form: type[BaseModel]) -> tuple[Turn, ...]:
    """Return the worked example of a signature; empty if WORKED lacks a field of the signature."""
    if not {*signature.input_fields, *signature.output_fields} <= WORKED.keys():
        return ()
    answer = form.model_validate({name: WORKED[name] for name in signature.output_fields})
    return (Turn("\n\n".join(_parts(signature, WORKED)), answer.model_dump_json()),)


WORKED = {
    "examples": """\
Example({'task': 'Tell visitors that the pool is closed on Sunday for cleaning.', 'answer': 'Pool closed on Sunday for \
cleaning.'}), Example({'task': 'Tell visitors that children under ten need an adult with them.', 'answer': 'Children \
under ten only with an adult.'})""",
    "prior_observations": "The tasks ask for notices for the visitors of a pool.",
    "observations": "Each notice says one thing in a few words, names the day or the age that it is about, and has "
    "neither a greeting nor a reason.",
    "summary": "Short notices for the visitors of a pool: one thing each, in a few words, without a greeting.",
    "dataset_description": "Short notices for the visitors of a pool: one thing each, in a few words.",
    "task_demos": """\
Task: Tell visitors that the pool is closed on Sunday for cleaning.
Answer: Pool closed on Sunday for cleaning.""",
    "basic_instruction": "Write notices for a swimming pool.",
    "tip": "Keep the instruction clear and concise.",
    "proposed_instruction": "Write a notice for the visitors of a swimming pool. Say one thing in a few words, with "
    "the day, the time or the age that it is about. Leave out greetings and reasons.",
}
"""Values for the fields of DSPy's signatures, for worked examples."""
