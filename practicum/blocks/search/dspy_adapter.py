"""What the `dspy` package's MIPROv2 sees: our agent as a program of one predictor, and our models behind an adapter.

Nothing here is ours to decide: each attempt, comparison and question is wished for, and answered by `bayes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from practicum.core.types import Prompt, Task

Ask = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MiproSettings:
    """How the package searches: `sets` instructions and sets of demonstrations, of which `trials` combinations are
    tried on `minibatch` tasks each; after each `every` trials the best one is compared on all. A set has up to
    `bootstrapped` answers of the agent's own, filled up to `labeled` with right answers."""

    sets: int
    trials: int
    minibatch: int
    every: int
    bootstrapped: int
    labeled: int
    warmth: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instruction ("": the one the run starts from) with demonstrations: ids of tasks, and their answers."""

    text: str = ""
    demos: tuple[tuple[str, str], ...] = ()


START = Candidate()
"""What the run starts from, as it is."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt a task that is learned from, for a demonstration."""

    candidate: Candidate
    task: Task


@dataclass(frozen=True, slots=True)
class Compare:
    """Attempt tasks that candidates are compared on."""

    candidate: Candidate
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of an attempt: its score, as far as learning may see one, and whether it can be a demonstration."""

    answer: str
    score: float
    good: bool


@dataclass(frozen=True, slots=True)
class Say:
    """Ask the model that describes data and proposes instructions for `texts`: the name of each, and what it is."""

    prompt: Prompt
    name: str
    texts: tuple[tuple[str, str], ...]
    warmth: float | None


def work(
    how: MiproSettings, told: str, tasks: Sequence[Task], others: Sequence[Task], seed: int, labels: bool
) -> Callable[[Ask], None]:
    """The package's search over tasks to learn from and tasks to compare on, for a bridge. `told` is what the agent is
    told at the start; without `labels` the package sees no right answer."""
    import dspy
    from dspy.utils.callback import BaseCallback

    def example(task: Task) -> Any:
        known = {"answer": task.target} if labels and task.target is not None else {}
        return dspy.Example(task=Shown(task), **known).with_inputs("task")

    def search(ask: Ask) -> None:
        fields = {"task": (Any, dspy.InputField()), "answer": (str, dspy.OutputField())}
        signature = dspy.Signature(fields, told or NONE)
        # A proposal that is empty reads as words of the package's own, not as none.
        ours = _Ours(ask, {signature.instructions, signature.with_instructions("").instructions})
        model, watch = dspy.BaseLM("practicum"), BaseCallback()
        watch.on_evaluate_start, watch.on_evaluate_end = ours.compare, ours.compared
        train, val = [example(task) for task in tasks], [example(task) for task in others]
        labeled = how.labeled if any("answer" in one for one in train) else 0
        optimizer = dspy.MIPROv2(
            ours.metric, prompt_model=model, task_model=model, auto=None, num_candidates=how.sets, num_threads=1,
            max_bootstrapped_demos=how.bootstrapped, max_labeled_demos=labeled, seed=seed, init_temperature=how.warmth,
        )  # fmt: skip
        with dspy.context(lm=model, adapter=ours, callbacks=[watch]), _till_all_is_compared():
            optimizer.compile(
                dspy.Predict(signature), trainset=train, valset=val, num_trials=how.trials,
                minibatch=how.minibatch < len(val), minibatch_size=min(how.minibatch, len(val)),
                minibatch_full_eval_steps=how.every, program_aware_proposer=False,
            )  # fmt: skip

    return search


@contextmanager
def _till_all_is_compared() -> Iterator[None]:
    """The package fails where all that was tried is compared on all tasks already; to us its search is over."""
    try:
        yield
    except ValueError as error:
        if "No valid program" not in str(error):
            raise


@dataclass(frozen=True, slots=True, repr=False)
class Shown:
    """A task as the value of a field: it reads as its input, and stays the task it is."""

    task: Task

    def __str__(self) -> str:
        return self.task.input

    def __repr__(self) -> str:
        return repr(self.task.input)


class _Ours:
    """The adapter that the package asks models through, and its metric. All runs in the one thread of the package, so
    that an attempt and its score follow one another."""

    def __init__(self, ask: Ask, start: set[str]) -> None:
        """`start` are instructions that stand for the one the run starts from."""
        self.ask, self.start = ask, start
        self.known: dict[str, Tried] = {}

    def __call__(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        if isinstance(shown := inputs.get("task"), Shown):
            task, candidate = shown.task, self._candidate(signature, demos)
            tried = self.known[task.id] if self.known else self.ask(Attempt(candidate, task))
            return [{"answer": tried.answer, "score": tried.score, "good": tried.good}]
        texts = tuple((name, _what(of)) for name, of in signature.output_fields.items())
        told = "\n\n".join(f"# {_what(of)}\n{inputs[name]}" for name, of in signature.input_fields.items())
        warmth = lm_kwargs.get("temperature", lm.kwargs.get("temperature"))
        return [self.ask(Say(Prompt(signature.instructions, told), signature.__name__, texts, warmth))]

    def compare(self, call_id: str, instance: Any, inputs: Any) -> None:
        """A comparison begins: all of its attempts are made at once."""
        tasks = tuple(one.task.task for one in inputs["devset"] or instance.devset)
        program = inputs["program"]
        tried = self.ask(Compare(self._candidate(program.signature, program.demos), tasks))
        self.known = {task.id: one for task, one in zip(tasks, tried, strict=True)}

    def compared(self, call_id: str, outputs: Any, exception: Any) -> None:
        """It is over."""
        self.known = {}

    def metric(self, example: Any, prediction: Any, trace: Any = None) -> float | bool:
        """The score; where demonstrations are drawn, whether the attempt can be one."""
        return float(prediction.score) if trace is None else bool(prediction.good)

    def _candidate(self, signature: Any, demos: Any) -> Candidate:
        text = "" if signature.instructions in self.start else str(signature.instructions).strip()
        known = ((demo.task.task.id, str(demo.get("answer") or "")) for demo in demos)
        return Candidate(text, tuple(dict.fromkeys(demo for demo in known if demo[1])))


def _what(of: Any) -> str:
    return str(of.json_schema_extra.get("desc", ""))


NONE = "Do the task."
"""What the package is told to start from where the agent is told nothing."""
