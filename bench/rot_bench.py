"""A learned context over a long online stream in which the world changes: accuracy, size, cost and outdated entries.

The world has situations in a few domains. Each situation has two words that no other situation has, is described in
many wordings, and has one right answer of eight. A stream of tasks draws the situations with a skew (by rank, as Zipf's
law). At half of the stream, one of each three situations of similar frequency gets another right answer. The options
`--wrong` and `--missing` set the shares of tasks with a wrong label and without a label, and `--late` the number of
tasks whose labels arrive together, after the last of them was attempted.

The model is simulated, and knows only its prompt:
- The agent looks for the situation of its task in entries, memories, solved tasks and the note, and answers as they do.
  If they disagree, it follows the text nearest to the end of its prompt (`--conflict last`), the first text, or a
  random text. If no text is about the situation, it guesses by a seeded hash, and never an answer that it was shown to
  avoid.
- The reflector writes "If SITUATION, answer ANSWER." from the feedback, unless the playbook that it is shown agrees on
  this. With `--noise`, a share of its insights has a wrong answer. It tags a used entry helpful if the entry gives the
  right answer, and otherwise harmful. Without a label it writes nothing.
- The curator reads the playbook that it is shown: it UPDATEs the last entry that gives another answer for the situation
  of an insight, or else reports the insight as COVERED, or else ADDs it. It trusts the newest insight, as it does not
  weigh the record of an entry.
- Memories and proposals say the same sentence, unless the memories or the playbook that they are shown say it. The
  proposer adds nothing that it was not shown, so it often writes fewer bullets than it is asked for.
- The judge accepts every answer, and an agent of a network solves each task by itself.

With `--model NAME` the agent and the learner are a real model with the profile small, in place of the simulated model;
`never_shown` then counts retrieved entries only.

All random choices follow from the seed. A bench with one seed says nothing about another world; intervals cover the
draw of the tasks (Wilson).

    python bench/rot_bench.py [METHOD ...] --tasks 2000 --seeds 3 --wrong 0.2 --out PICTURE.png
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from measure import arguments, print_table
from simulated_world import FIXED, TOPICS

import practicum
from practicum import methods
from practicum.analysis.png import COLOURS, GREY, check_png, new_figure, plain, write_png
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.intervals import share_ci95
from practicum.core.types import Prompt, Task
from practicum.engine.loop import StepReport
from practicum.engine.state import ModelCall
from practicum.models.scripted import Call, ScriptedClient, in_parts
from practicum.session.result import Progress, Watch
from practicum.testing import fill

METHODS = ("none", "icl", "episodes", "ace", "combee", "rcl", "reasoning_bank", "unified", "mael")
LEAST_BATCH: Mapping[str, int] = {"combee": 10}
"""Method → its smallest batch, because one lesson has no groups."""

ANSWERS = ("amber", "basalt", "cobalt", "denim", "ebony", "flint", "garnet", "hazel")
DOMAINS = ("billing", "delivery", "account", "travel", "repair", "warranty")
MORE_TOPICS = (
    "acorn", "beacon", "cradle", "dragon", "falcon", "goblet", "harness", "iceberg", "jigsaw", "kettle", "lagoon",
    "magnet", "nectar", "otter", "parrot", "quilt",
)  # fmt: skip
MOST_SITUATIONS = (len(TOPICS) + len(MORE_TOPICS)) // 2

QUESTION = f"Sort each message into one of the colors {', '.join(ANSWERS)}. Answer with the color only."
"""Instructions of a real model."""

OPENINGS = ("Hello,", "Good morning,", "Please help:", "Hi there,", "To the team:", "Urgent:")
MIDDLES = (
    "a question on {a} and {b} for {domain}", "{domain}: it concerns {b}, and also {a}",
    "my {a} needs {b}, says {domain}", "{domain} wrote to me on {a} with {b}",
    "the {b} of my {a} is a matter for {domain}", "{a}, then {b}, and no {domain}",
)  # fmt: skip
CLOSINGS = ("since today.", "once again.", "for a week now.", "and I wait.", "as before.", "thank you.", "since May.")


# ---- the world


@dataclass(frozen=True, slots=True)
class Situation:
    """Situation of tasks: its right answer before the change (`old`) and after the change (`new`)."""

    index: int
    old: str
    new: str

    @property
    def changes(self) -> bool:
        return self.old != self.new

    @property
    def clause(self) -> str:
        return clause(self.index)


@dataclass(frozen=True)
class World:
    """Stream of tasks. `labels` are in the tasks; `right` holds the right answer of each task by its id."""

    situations: tuple[Situation, ...]
    tasks: tuple[Task, ...]
    right: Mapping[str, str]
    change: int
    """Number of tasks before the change."""

    def answer(self, index: int, done: int) -> str:
        """Return the right answer of a situation after `done` tasks of the stream."""
        situation = self.situations[index]
        return situation.old if done <= self.change else situation.new


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of the measurement. `wrong` and `missing`: shares of tasks with a wrong label and without a label.
    `late`: number of tasks whose labels arrive together. `noise`: share of the reflector's insights that have a wrong
    answer. `window`: number of tasks of an accuracy. `model`: name of a real model; "": the simulated model."""

    tasks: int = 2000
    situations: int = 60
    wrong: float = 0.0
    missing: float = 0.0
    late: int = 1
    noise: float = 0.0
    conflict: str = "last"
    window: int = 200
    model: str = ""


@lru_cache(maxsize=1)
def topics() -> tuple[tuple[str, str], ...]:
    """Return the two words of each situation."""
    words = Random("situations").sample([*TOPICS, *MORE_TOPICS], 2 * MOST_SITUATIONS)
    return tuple(zip(words[::2], words[1::2], strict=True))


def clause(index: int) -> str:
    """Return the condition of a rule about a situation."""
    a, b = topics()[index]
    return f"a message to {DOMAINS[index % len(DOMAINS)]} is about {a} and {b}"


def rule(index: int, answer: str) -> str:
    return f"If {clause(index)}, answer {answer}."


def wording(index: int, rng: Random) -> str:
    """Return a description of a situation."""
    a, b = topics()[index]
    middle = rng.choice(MIDDLES).format(a=a, b=b, domain=DOMAINS[index % len(DOMAINS)])
    return f"{rng.choice(OPENINGS)} {middle}, {rng.choice(CLOSINGS)}"


def make_world(plan: Plan, seed: int) -> World:
    """Make the situations and the stream of tasks. The labels are drawn separately, so that worlds with other shares of
    wrong or missing labels have the same tasks."""
    rng, labels = Random(f"world {seed}"), Random(f"labels {seed}")
    ranked = rng.sample(range(plan.situations), plan.situations)
    changing = {rng.choice(ranked[start : start + 3]) for start in range(0, plan.situations, 3)}
    situations = []
    for index in range(plan.situations):
        old, new = rng.sample(ANSWERS, 2)
        situations.append(Situation(index, old, new if index in changing else old))
    weights = [1 / rank for rank in range(1, plan.situations + 1)]
    tasks, right = [], {}
    for n, index in enumerate(rng.choices(ranked, weights, k=plan.tasks)):
        situation, id = situations[index], f"t{n}"
        answer = right[id] = situation.old if n < plan.tasks // 2 else situation.new
        fate, other = labels.random(), labels.choice([one for one in ANSWERS if one != answer])
        label = None if fate < plan.missing else other if fate < plan.missing + plan.wrong else answer
        tasks.append(Task(id, wording(index, rng), label))
    return World(tuple(situations), tuple(tasks), right, plan.tasks // 2)


# ---- reading texts of the world


@lru_cache(maxsize=2**16)
def subject(text: str) -> int | None:
    """Return the situation that a text is about: the first situation whose two words are in the text."""
    words = set(re.findall(r"[a-z]+", text))
    return next((index for index, (a, b) in enumerate(topics()) if a in words and b in words), None)


@lru_cache(maxsize=2**16)
def claim(text: str) -> tuple[int, str] | None:
    """Return the situation and the answer of a rule or of a memory; None for another text."""
    index, match = subject(text), re.search(rf"(?<!not )answer ({'|'.join(ANSWERS)})\b", text)
    return None if index is None or match is None else (index, match[1])


Claims = Mapping[int, Sequence[tuple[str, str]]]
"""Situation → ids and answers of the entries that are about the situation, in the order of a prompt."""


@lru_cache(maxsize=2**12)
def read_page(page: str) -> tuple[frozenset[str], Claims]:
    """Return the ids of the entries on a page of a playbook, plain or annotated, and the claims of these entries."""
    lines = re.findall(r'^(?:\[|<entry id=")(e\d+)(?:\] \(|" section=")(.*)', page, re.MULTILINE)
    claims: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for id, text in lines:
        if (stated := claim(text)) is not None:
            claims[stated[0]].append((id, stated[1]))
    return frozenset(id for id, _ in lines), claims


def claims_about(index: int | None, pages: Iterable[str]) -> list[tuple[str, str]]:
    """Return the ids and answers of the entries about a situation."""
    return [] if index is None else [one for page in pages for one in read_page(page)[1].get(index, ())]


_CASE = re.compile(r"^Task: (.*)\n(?:(?!Task: ).*\n)*?Answer: (.*)\nFeedback: (.*)", re.MULTILINE)
"""Attempt in a prompt. Groups: the task, the answer, the feedback."""


@dataclass(frozen=True, slots=True)
class Case:
    """Attempt as a prompt shows it: its situation, its answer and the label; the label is None if it is unknown."""

    index: int
    answer: str
    label: str | None


def cases(text: str) -> list[Case]:
    """Return the attempts in a prompt."""
    result = []
    for task, answer, feedback in _CASE.findall(text):
        right = re.search(r"The right answer is: (\w+)", feedback)
        label = right[1] if right else answer if feedback.startswith("The answer is right") else None
        if (index := subject(task)) is not None:
            result.append(Case(index, answer, label))
    return result


def section(text: str, heading: str) -> list[str]:
    """Return the items of a list below a heading of a prompt."""
    _, _, rest = text.partition(f"# {heading}")
    return re.findall(r"^- (.*)", rest.partition("\n\n")[0], re.MULTILINE)


# ---- the simulated model


@dataclass
class Model:
    """Model of all roles. `shown` are the ids of all entries that the agent was shown, and `turns` the texts of the
    solved tasks that the agent was shown. `asked` counts equal prompts of a step, because attempts at a high
    temperature differ."""

    plan: Plan
    seed: int
    shown: set[str] = field(default_factory=set)
    turns: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, call: Call) -> str:
        if call.schema is None:
            return self._attempt(call)
        name = str(call.schema["title"])
        answers = {
            "Reflection": self._reflection, "CoverageGap": self._reflection, "RootCause": self._tagged,
            "Changes": self._changes, "Mutations": self._changes, "Memories": self._memories, "Bullets": self._bullets,
        }  # fmt: skip
        fields = answers[name](call.prompt) if name in answers else {**FIXED[name], **OWN.get(name, {})}
        return json.dumps({**fill(call.schema, 0), **fields})

    def _attempt(self, call: Call) -> str:
        prompt = call.prompt
        task, _, note = prompt.user.partition("\n\n")
        index = subject(task)
        for page in prompt.pages:
            self.shown |= read_page(page)[0]
        self.turns.update(turn.user for turn in prompt.turns)
        stated = claims_about(index, prompt.pages)
        avoided = set()
        for turn in prompt.turns:
            if subject(turn.user) == index:
                answer = turn.assistant.removeprefix("Answer: ")
                if "an example to avoid" in turn.user:
                    avoided.add(answer)
                else:
                    stated.append(("", answer))
        noted = [claimed for line in note.split("\n") if (claimed := claim(line)) is not None]
        stated += [("", answer) for about, answer in noted if about == index]
        self.asked[prompt.user] += 1
        again = self.asked[prompt.user] if call.options.temperature else 0
        answer = self._choose([answer for _, answer in stated], f"{task} {again}")
        answer = answer or self._rng(f"guess {task} {again}").choice([x for x in ANSWERS if x not in avoided])
        ids = [id for id, _ in stated if id]
        used = [id for id, one in stated if id and one == answer]
        doubts = [{"id": id, "why": "against another entry"} for id in ids if id not in used]
        missing = "" if stated else "a rule"
        return in_parts(prompt, {"used": used, "doubts": doubts, "missing": missing, "answer": answer})

    def _choose(self, answers: Sequence[str], about: str) -> str:
        """Choose among the answers that a prompt states, in the order of the prompt. Returns "" without answers."""
        if not answers:
            return ""
        if self.plan.conflict == "random":
            return self._rng(f"conflict {about}").choice(answers)
        return answers[-1 if self.plan.conflict == "last" else 0]

    def _rng(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")

    def _reflection(self, prompt: Prompt) -> dict[str, Any]:
        tagged, seen = self._tagged(prompt), cases(prompt.user)
        label = next((one.label for one in seen if one.label is not None), None)
        if not seen or label is None:
            return {**tagged, "insights": []}
        index, rng = seen[0].index, self._rng(f"noise {prompt.user}")
        if rng.random() < self.plan.noise:
            label = rng.choice([one for one in ANSWERS if one != label])
        agreed = {answer for _, answer in claims_about(index, prompt.pages)} == {label}
        insights = [] if agreed else [{"section": "strategies", "text": rule(index, label)}]
        return {**tagged, "correction": f"answer {label}", "insights": insights}

    def _tagged(self, prompt: Prompt) -> dict[str, Any]:
        """Return a verdict on each entry that the agent used."""
        _, _, rest = prompt.user.partition("# Entries that the agent says it used\n")
        used, seen = re.findall(r"\[(e\d+)\]", rest.partition("\n")[0]), cases(prompt.user)
        label = next((one.label for one in seen if one.label is not None), None)
        stated = dict(claims_about(seen[0].index, prompt.pages)) if seen else {}
        return {"tags": [{"id": id, "verdict": _verdict(stated.get(id), label)} for id in used]}

    def _changes(self, prompt: Prompt) -> dict[str, Any]:
        """Return one change for each situation of the insights. If insights about a situation disagree, the majority
        decides, and the last insight on ties."""
        insights = re.findall(r"^Insight (\d+)[^:]*: (.*)", prompt.user, re.MULTILINE)
        about: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for number, text in insights:
            if (stated := claim(text)) is not None:
                about[stated[0]].append((int(number), stated[1]))
        changes = []
        for index, group in about.items():
            counts = Counter(answer for _, answer in group)
            answer = max(reversed(group), key=lambda one: counts[one[1]])[1]
            entries = claims_about(index, prompt.pages)
            other = [id for id, one in entries if one != answer]
            op = "UPDATE" if other else "COVERED" if entries else "ADD"
            ids = other[-1:] or [id for id, _ in entries[-1:]]
            text = rule(index, answer) if op != "COVERED" else ""
            numbers = [number for number, _ in group]
            changes.append({"op": op, "insights": numbers, "ids": ids, "section": "strategies", "text": text})
        return {"changes": changes or [{"op": "COVERED", "insights": [], "ids": []}]}

    def _memories(self, prompt: Prompt) -> dict[str, Any]:
        seen = next(iter(cases(prompt.user)), None)
        if seen is None or seen.label is None:
            return {"items": []}
        recalled = map(claim, section(prompt.user, "Memories it relied on, which are known already"))
        if (seen.index, seen.label) in recalled:
            return {"items": []}
        avoid = "" if seen.answer == seen.label else f"Do not answer {seen.answer}. "
        about = clause(seen.index)
        item = {"title": about.split(" is ")[1], "description": f"{about.capitalize()}."}
        return {"items": [{**item, "content": f"{avoid}{rule(seen.index, seen.label)}"}]}

    def _bullets(self, prompt: Prompt) -> dict[str, Any]:
        if bullets := section(prompt.user, "Your bullets so far"):
            return {"bullets": bullets}
        stated: dict[int, list[str]] = defaultdict(list)
        headings = ("Approaches that worked", "Approaches that failed")
        memories = (claim(text) for heading in headings for text in section(prompt.user, heading))
        outcomes = ((one.index, one.label) for one in cases(prompt.user) if one.label is not None)
        for index, answer in (*filter(None, memories), *outcomes):
            stated[index].append(answer)
        chosen = {index: self._choose(answers, prompt.user) for index, answers in stated.items()}
        new = [
            rule(index, answer)
            for index, answer in chosen.items()
            if answer not in [one for _, one in claims_about(index, prompt.pages)]
        ]
        return {"bullets": new}


OWN: Mapping[str, Mapping[str, Any]] = {
    "Ability": {"alone": True}, "Verdict": {"right": True}, "Quality": {"points": 10},
    "State": {"ledger": [], "assessment": [], "hypotheses": [], "phase": "convergent"},
    "Contrast": {"holds": [], "separates": [], "spurious": [], "best": 1},
}  # fmt: skip
"""Schema → fixed values of this world."""


def _verdict(answer: str | None, label: str | None) -> str:
    if answer is None or label is None:
        return "neutral"
    return "helpful" if answer == label else "harmful"


# ---- the measurement


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one task of the stream. Tokens, calls and seconds of a step are divided by the tasks of the step.
    `shown`: mean size of the agent's prompts (tokens). `seconds`: CPU time."""

    right: bool
    changes: bool
    shown: float
    agent_tokens: float
    tokens: float
    agent_calls: float
    calls: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shares:
    """Entries that are not hidden, and shares of these entries: never shown to the agent; in contradiction with another
    entry; with an outdated answer; with any wrong answer. `never_helped`: share never voted helpful, of the entries in
    sections with votes; None: no entry has a vote."""

    entries: int
    never_shown: float
    never_helped: float | None
    contradicting: float
    outdated: float
    wrong: float


@dataclass
class Recorder(Watch):
    """Observer of a run: makes a row for each task, and the shares of entries at three points of the stream."""

    world: World
    model: Model
    client: ScriptedClient
    points: Mapping[int, str]
    rows: list[Row] = field(default_factory=list)
    shares: dict[str, Shares] = field(default_factory=dict)
    step_calls: list[ModelCall] = field(default_factory=list)
    retrieved: set[str] = field(default_factory=set)
    began_step: float = field(default_factory=time.process_time)

    def called(self, call: ModelCall) -> None:
        self.step_calls.append(call)

    def stepped(self, report: StepReport, progress: Progress) -> None:
        now, n, before = time.process_time(), len(report.attempts), len(self.rows)
        by_agent = [call.usage for call in self.step_calls if call.role == "agent"]
        by_learner = [call.usage for call in self.step_calls if call.role != "agent"]
        costs = {
            "shown": fmean(usage.input_tokens for usage in by_agent),
            "agent_tokens": sum(usage.tokens for usage in by_agent) / n,
            "tokens": sum(usage.tokens for usage in by_learner) / n,
            "agent_calls": len(by_agent) / n,
            "calls": len(by_learner) / n,
            "seconds": (now - self.began_step) / n,
        }
        for attempt in report.attempts:
            self.retrieved.update(id for id, _ in attempt.retrieved)
            index = subject(attempt.task.input)
            changes = index is not None and self.world.situations[index].changes
            right = attempt.trace.answer == self.world.right[attempt.task.id]
            self.rows.append(Row(right, changes, **costs))
        for point, name in self.points.items():
            if before < point <= len(self.rows):
                self.shares[name] = self._shares(report.context, point)
        self.step_calls.clear()
        self.client.calls.clear()
        self.model.asked.clear()
        self.began_step = time.process_time()

    def _shares(self, context: Context, done: int) -> Shares:
        entries = [entry for entry in context if not entry.hidden]
        stated = {entry.id: one for entry in entries if (one := entry_claim(entry)) is not None}
        answers: dict[int, set[str]] = defaultdict(set)
        for index, answer in stated.values():
            answers[index].add(answer)
        situations = self.world.situations
        wrong = [index for index, answer in stated.values() if answer != self.world.answer(index, done)]
        outdated = [
            index for index, answer in stated.values()
            if situations[index].old == answer != self.world.answer(index, done)
        ]  # fmt: skip
        shown = [e for e in entries if e.id in self.model.shown | self.retrieved or e.text in self.model.turns]
        sections = {e.section for e in entries if e.helpful or e.harmful}
        voted = [e for e in entries if e.section in sections]
        n = max(len(entries), 1)
        return Shares(
            len(entries),
            1 - len(shown) / n if entries else 0.0,
            sum(e.helpful == 0 for e in voted) / len(voted) if voted else None,
            sum(len(answers[index]) > 1 for index, _ in stated.values()) / n,
            len(outdated) / n,
            len(wrong) / n,
        )


def entry_claim(entry: Entry) -> tuple[int, str] | None:
    """Return the situation and the answer that an entry gives: a rule, a memory, a solved task, or the answer of an
    agent of a network that was rewarded. Solved tasks that are stored and never shown give no answer."""
    data = entry.data
    if "reward" in data:
        index = subject(entry.key) if data["kind"] == "solve" and data["reward"] >= 0.5 else None
        return None if index is None else (index, entry.text)
    if "answer" in data:
        index = subject(entry.text) if data.get("good", True) else None
        return None if index is None else (index, str(data["answer"]))
    return claim(entry.text)


def measure(method: str, plan: Plan, seed: int, keep: Path | None = None) -> dict[str, Any]:
    """Run a method on the stream of a seed, and return its figures as JSON values. The run is stored in the folder
    `keep`; None: it is removed."""
    world, model = make_world(plan, seed), Model(plan, seed)
    client, end = ScriptedClient(model), plan.tasks
    points = {world.change: "before", min(world.change + plan.window, end - 1): "after", end: "end"}
    recorder = Recorder(world, model, client, points)
    settings = methods.for_one_task(method, {})
    batch = max(plan.late, LEAST_BATCH.get(method, 1))
    if batch > 1 and "batch" in methods.setting_docs(method):
        settings["batch"] = batch
    simulated: dict[str, Any] = {"profile": "full", "parts": practicum.Parts(clients={"agent": client})}
    real = {"profile": "small", "model": plan.model, "instructions": QUESTION, "concurrency": 1, "timeout": 3000}
    with tempfile.TemporaryDirectory(prefix="practicum-rot-") as folder:
        run = practicum.learn(
            world.tasks, method=method, settings=settings, out=(keep or Path(folder)) / f"{method}-{seed}",
            choices=ANSWERS, seed=seed, watch=recorder,
            **(real if plan.model else simulated),
        )  # fmt: skip
        result = asyncio.run(run)
    rows = recorder.rows
    windows = {
        "before": rows[world.change - plan.window : world.change],
        "after": rows[world.change : world.change + plan.window],
        "end": rows[-plan.window :],
    }
    spans = [rows[start : start + plan.window] for start in range(0, len(rows), plan.window)]
    return {
        "method": method,
        "seed": seed,
        "accuracy": {name: _hits(some) for name, some in windows.items()},
        "shares": {name: asdict(shares) for name, shares in recorder.shares.items()},
        "over_time": [_means(span) for span in spans],
        "calls": fmean(row.calls for row in rows),
        "counts": dict(result.errors),
        "answers": "".join("01"[row.right] for row in rows),
    }


def _hits(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the number of right answers and the number of tasks: of all tasks, and of tasks whose situation changes
    and does not change."""
    changed, unchanged = [row for row in rows if row.changes], [row for row in rows if not row.changes]
    parts = {"all": rows, "changed": changed, "unchanged": unchanged}
    return {name: [sum(row.right for row in part), len(part)] for name, part in parts.items()}


def _means(rows: Sequence[Row]) -> dict[str, float]:
    names = ("right", "shown", "agent_tokens", "tokens", "agent_calls", "calls", "seconds")
    return {name: round(fmean(getattr(row, name) for row in rows), 4) for name in names}


# ---- the report


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of one method over all seeds: shares of right answers with 95% intervals, means of the
    rest."""
    accuracy: dict[str, dict[str, Any]] = {}
    for name, parts in results[0]["accuracy"].items():
        accuracy[name] = {}
        for part in parts:
            hits, n = (sum(result["accuracy"][name][part][at] for result in results) for at in (0, 1))
            accuracy[name][part] = [hits / n, *share_ci95(hits, n)] if n else None
    shares = {
        point: {name: _mean([result["shares"][point][name] for result in results]) for name in values}
        for point, values in results[0]["shares"].items()
    }
    spans = zip(*(result["over_time"] for result in results), strict=True)
    over_time = [{name: _mean([one[name] for one in span]) for name in span[0]} for span in spans]
    return {"accuracy": accuracy, "shares": shares, "over_time": over_time}


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def print_report(summaries: Mapping[str, Mapping[str, Any]], plan: Plan) -> None:
    """Print three tables: accuracy, entries, and costs over time."""
    names = ("before", "after", "end")
    parts = ("all", "changed", "unchanged")
    print(f"right answers (%) in {plan.window} tasks: before the change, after it, at the end of the stream")
    columns = ["method", *(f"{name} {part}" for name in names for part in parts)]
    rows = [[method, *(_percent(s["accuracy"][n][p]) for n in names for p in parts)] for method, s in summaries.items()]
    print_table(columns, rows)
    print("\nentries at these points, and shares of the entries at the end (%)")
    kinds = ("never_shown", "never_helped", "contradicting", "outdated", "wrong")
    rows = []
    for method, s in summaries.items():
        counts = [f"{s['shares'][name]['entries']:.0f}" for name in names]
        rows.append([method, *counts, *(_percent([s["shares"]["end"][kind]]) for kind in kinds)])
    print_table(["method", *names, *kinds], rows)
    for name, title, form in (
        ("shown", "tokens of the agent's prompt", ".0f"), ("tokens", "learner's tokens a task", ".0f"),
        ("calls", "learner's calls a task", ".2f"), ("agent_calls", "agent's calls a task", ".2f"),
        ("seconds", "CPU a task (ms)", ".0f"),
    ):  # fmt: skip
        print(f"\n{title}, in each {plan.window} tasks")
        scale = 1000 if name == "seconds" else 1
        rows = [[m, *(format(scale * span[name], form) for span in s["over_time"])] for m, s in summaries.items()]
        print_table(["method", *(str(plan.window * (n + 1)) for n in range(len(rows[0]) - 1))], rows)


def _percent(values: Sequence[float | None] | None) -> str:
    """Format a share and, if present, its interval."""
    if not values or values[0] is None:
        return "-"
    share, *interval = (100 * (value or 0.0) for value in values)
    return f"{share:.0f} [{interval[0]:.0f}, {interval[1]:.0f}]" if interval else f"{share:.0f}"


def picture(
    results: Sequence[Mapping[str, Any]], summaries: Mapping[str, Mapping[str, Any]], plan: Plan, path: Path
) -> None:
    """Draw the accuracy, the size of the agent's prompt and the learner's tokens over the stream."""
    figure = new_figure(9.0, 10.0)
    axes = figure.subplots(3, 1, sharex=True)
    smooth = max(plan.window // 2, 1)
    for number, (method, s) in enumerate(summaries.items()):
        colour = GREY if method == "none" else COLOURS[number % len(COLOURS)]
        style = {"color": colour, "linewidth": 1.6, "linestyle": "--" if number >= len(COLOURS) else "-"}
        runs = [result["answers"] for result in results if result["method"] == method]
        right = [fmean(int(answers[n]) for answers in runs) for n in range(plan.tasks)]
        ends = range(smooth, plan.tasks + 1)
        axes[0].plot(ends, [100 * fmean(right[n - smooth : n]) for n in ends], label=method, **style)
        middles = [plan.window * (n + 0.5) for n in range(len(s["over_time"]))]
        for axis, name in ((axes[1], "shown"), (axes[2], "tokens")):
            axis.plot(middles, [span[name] for span in s["over_time"]], **style)
    titles = (f"right answers of the last {smooth} (%)", "tokens of the agent's prompt", "learner's tokens a task")
    for axis, title in zip(axes, titles, strict=True):
        axis.axvline(plan.tasks // 2, color=GREY, linewidth=1, linestyle=":")
        axis.set_ylabel(title)
        plain(axis, "both")
    axes[1].set_yscale("log")
    axes[2].set_yscale("symlog", linthresh=100)
    axes[2].set_xlabel("tasks")
    axes[0].set_ylim(0, 102)
    axes[0].legend(loc="lower right", frameon=False, ncols=3)
    write_png(figure, path)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("methods", nargs="*", default=[*METHODS], metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0")
    parser.add_argument("--conflict", choices=("last", "first", "random"), default="last")
    for name, value in asdict(Plan()).items():
        if name != "conflict":
            parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--out", type=Path, metavar="PNG")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="store the runs in this folder")
    options = parser.parse_args()
    if not 1 <= options.situations <= MOST_SITUATIONS or 2 * options.window > options.tasks:
        parser.error(f"pass up to {MOST_SITUATIONS} situations, and a window of at most half of the tasks")
    if options.out is not None:
        check_png(options.out, "--out")
    plan = Plan(**{name: getattr(options, name) for name in asdict(Plan())})
    results = [measure(method, plan, seed, options.keep) for method in options.methods for seed in range(options.seeds)]
    summaries = {m: summary([result for result in results if result["method"] == m]) for m in options.methods}
    print_report(summaries, plan)
    if options.out is not None:
        picture(results, summaries, plan, options.out)
    if options.json:
        print(json.dumps({"bench": "rot", "plan": asdict(plan), "summaries": summaries, "results": results}))


if __name__ == "__main__":
    main()
