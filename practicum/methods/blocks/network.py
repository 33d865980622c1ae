"""Attempts by a network of agents, which are shown experience before their steps, and the agents' pools of experience
(MAEL, sections 2.1, 2.3).

An experience is an entry that records a step, in the pool of the agent that made the step. For a new step, experience
is retrieved from the pool of the acting agent, among steps of the same kind, by alpha x similarity + (1 - alpha) x
reward. The strategy `step` retrieves experience for each step separately. The strategy `task` chooses one past trace,
by the similarity of the past task and the reward of the answer to the past task. Each step is shown the best experience
of this trace."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from practicum.agents.network import ACCEPTED, Kind, Network, Question, StepOutput, TaskPart
from practicum.agents.team import AgentTeam
from practicum.core.bounded import MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, Vote
from practicum.core.errors import AgentError, ProviderError, RequestError, UsageError, WindowError
from practicum.core.types import Attempt, Instructions, Lesson, Prompt, Step, Task, Trace, Turn
from practicum.core.views import View, count_tokens
from practicum.core.visible import visible_to_model
from practicum.engine.run import ActSeam, Run
from practicum.methods.blocks.show import learning_feedback
from practicum.retrieval.search import Match
from practicum.store.journal import digest, noting_refusal

Strategy = Literal["none", "task", "step"]
"""Strategy for retrieving experience (section 2.3). none: never; task: from one past trace for the whole task; step:
for every step separately."""

Level = Literal["high", "low"]

POOL = "pool "
"""Prefix of the section that holds an agent's pool."""

MAX_PARTS = 8
"""Maximum number of parts into which a small model may divide a task."""

OPENING: tuple[Kind, ...] = ("judge", "solve")
"""Kinds that the first step of an attempt may have. The state of this step is the whole task."""


class Ability(Output):
    """Whether an agent can solve a task alone."""

    reason: Annotated[str, MaxChars(200)] = Field(description="what decides it")
    alone: bool = Field(description="whether you can solve it well by yourself")


class Subtask(Output):
    """A part of a task."""

    text: Annotated[str, MaxChars(400)] = Field(description="the part, so that it can be solved without the whole")
    to: Annotated[str, MaxChars(80)] = Field(default="", description="the name of the colleague who solves it")
    needs: Annotated[list[int], MaxItems(8)] = Field(default=[], description="numbers of parts whose results it needs")


class Plan(Output):
    """A task in parts."""

    parts: Annotated[list[Subtask], MaxItems(MAX_PARTS)] = Field(
        description="two parts or more; fewer where it has no parts"
    )


class Critique(Output):
    """What an agent says of a part's solution."""

    feedback: Annotated[str, MaxChars(300)] = Field(description="what is wrong or missing and how to mend it")
    adequate: bool = Field(description="whether the solution is good as it is")

    @model_validator(mode="after")
    def _require_feedback(self) -> Self:
        """Reject a critique that calls a solution inadequate without feedback, so that the model is asked again."""
        if not self.adequate and not self.feedback.strip():
            raise ValueError("the solution is called inadequate without feedback: say what is wrong and how to mend it")
        return self


# The title stays, because the schema is part of prompts, and prompts must not change.
class PartSolution(Output, title="Answered"):
    """The solution of a part."""

    solution: Annotated[str, MaxChars(2000)] = Field(description="the solution, complete")


FORMS: Mapping[Kind, type[Output]] = {
    "judge": Ability, "decompose": Plan, "solve": PartSolution, "critique": Critique, "aggregate": PartSolution,
}  # fmt: skip
"""Form that the agent fills in for each kind of step, except for an answer to the whole task."""


@dataclass(frozen=True, slots=True)
class Experience:
    """Rules by which an experience is chosen for a step, and shown. `similarity="low"` chooses experiences with a low
    similarity: the retrieval score uses 1 - similarity. Likewise for `reward` (MAEL, table 4). Experience with a reward
    below `follow_from` is shown as an example to avoid."""

    strategy: Strategy = "step"
    alpha: float = 0.5
    similarity: Level = "high"
    reward: Level = "high"
    follow_from: float = 0.5

    def score(self, similarity: float, reward: float) -> float:
        """Return the retrieval score (equation 2)."""
        similarity_term = similarity if self.similarity == "high" else 1 - similarity
        reward_term = reward if self.reward == "high" else 1 - reward
        return self.alpha * similarity_term + (1 - self.alpha) * reward_term

    def heading(self, entry: Entry) -> str:
        """Return the heading of an experience: its reward, and whether to follow or avoid it. The heading belongs to an
        earlier turn, because a small model solves the past task in place of the present task if the two are in one
        turn."""
        reward = step_reward(entry)
        worth, follow = f"it was rewarded {reward:.2f} of 1", reward >= self.follow_from
        if entry.data["kind"] == "critique":
            # The reward of a request for changes is the gain, which is small if most of the solution was right before.
            accepts = entry.text == ACCEPTED
            worth = f"the solution {'was worth' if accepts else 'gained'} {reward:.2f} of 1"
            follow = follow if accepts else reward > 0
        return f"# From your experience ({worth})" + ("" if follow else AVOID)


@dataclass(frozen=True)
class ExperienceFilter:
    """Filter for the experience of one agent in steps of these kinds. If `trace` is not empty, only experience of that
    past trace matches. A handwritten entry without a reward does not match."""

    agent: str
    kinds: tuple[Kind, ...]
    trace: str = ""

    def __call__(self, entry: Entry) -> bool:
        data = entry.data
        if entry.section != POOL + self.agent or data.get("kind") not in self.kinds or "reward" not in data:
            return False
        return not self.trace or data.get("trace") == self.trace


def seat(name: str) -> str:
    """Return the name of the seat for an agent's own model. The prefix distinguishes the name from the names of the
    seats of roles."""
    return f"agent:{name}"


def by_network(
    seeded: Callable[[int], AgentTeam], experience: Experience, *, rounds: int, depth: int, warmth: float
) -> ActSeam:
    """Build an act in which a team attempts a task. `seeded` makes the team from the run's seed. The answer to the
    whole task is scored as in any other method. The trace's `data["moves"]` holds the moves that led to the answer, and
    the steps of the trace describe the moves."""

    async def act(task: Task, context: Context, run: Run) -> Attempt:
        team = seeded(run.seed)
        past_trace, searching = "", run.at("experience")
        if experience.strategy == "task":
            where = ExperienceFilter(team.entry, OPENING)
            if best := await _nearest(where, task.input, context, experience, searching, whole_reward):
                past_trace = str(best.entry.data.get("trace", ""))
        decider = Decider(team, task, context, experience, past_trace)
        working = replace(run, warmth=warmth).at("network")
        solved = await Network(team, decider.decide, rounds, depth).solve(task.text, working)
        moves = []
        for asked, output, to in ((m.question, m.answer, m.to) for m in solved.moves):
            output_data = {"action": output.text, "experience": output.experience, "output": output.form, "to": [*to]}
            moves.append({**asdict(asked), **output_data})
        trace = Trace(
            solved.text,
            steps=tuple(Step(f"{m.question.agent}, {m.question.kind}", m.answer.text) for m in solved.moves),
            error=solved.error or None, lost=solved.lost, refused=solved.refused,
            data={"moves": moves, "rounds": solved.rounds},
        )  # fmt: skip
        score = await run.score(task, trace)
        feedback = await learning_feedback(task, trace, score, run)
        shown = sorted((m.answer.similarity, m.answer.experience) for m in solved.moves if m.answer.experience)
        # If an entry was shown more than once, its highest similarity remains, because it comes last.
        highest = {id: round(similarity, 4) for similarity, id in shown}
        retrieved = tuple(sorted(highest.items(), key=lambda item: -item[1]))
        return Attempt(task, trace, score, feedback, run.place, retrieved=retrieved)

    return act


async def of_each_step(context: Context, task: Task, run: Run) -> View:
    """Raise UsageError, because a network of agents has no single view for a task."""
    raise UsageError(
        "method.unsuitable",
        "the agents of a network see different experience at each step, so a query has no single context: ask the run "
        "itself (Space.ask)",
    )


def step_reward(entry: Entry) -> float:
    """Return the reward of the step that an experience records."""
    return float(entry.data["reward"])


def whole_reward(entry: Entry) -> float:
    """Return the reward of the whole task's solution in the trace of an experience. If this reward is unknown, return
    the reward of the step that the experience records."""
    return float(entry.data.get("whole", entry.data["reward"]))


async def _nearest(
    where: ExperienceFilter, state: str, context: Context, how: Experience, run: Run,
    reward: Callable[[Entry], float] = step_reward,
) -> Match | None:  # fmt: skip
    """Return the match with the highest retrieval score, in which `reward` gives the reward of an entry. On ties, the
    older entry wins. Without a match, return None."""
    matches = await run.nearest(context, state, len(context), where)
    scored = [(how.score(f.similarity, reward(f.entry)), -f.entry.number, f) for f in matches]
    return max(scored, key=lambda one: one[:2])[2] if scored else None


@dataclass(frozen=True)
class Decider:
    """Decider of the steps of a team's agents: a model decides each step, with the experience that is retrieved for the
    step."""

    team: AgentTeam
    task: Task
    context: Context
    experience: Experience
    past_trace: str

    async def decide(self, question: Question, run: Run) -> StepOutput:
        """Ask the agent to decide a step. The prompt contains the best experience for the step, unless the experience
        makes the prompt too long for the agent's window."""
        match, searching = None, run.at("experience")
        if self.experience.strategy == "step" or self.past_trace:
            where = ExperienceFilter(question.agent, (question.kind,), self.past_trace)
            match = await _nearest(where, question.state, self.context, self.experience, searching)
        run = replace(run, actor=seat(question.agent))
        if match is None:
            return await self._without_experience(question, run)
        try:
            output = await noting_refusal(run, "experience", partial(self._decide, question, match.entry, run))
        except WindowError:
            run.count(Count.OVERLONG_EXPERIENCES)
            return await self._without_experience(question, run.at("without experience"))
        return replace(output, experience=match.entry.id, similarity=match.similarity)

    async def _without_experience(self, question: Question, run: Run) -> StepOutput:
        """Decide a step without experience. If texts of other agents make the prompt too long, the step fails. If the
        whole task is too long, WindowError is raised, so that the user can shorten the task."""
        if not question.task and question.kind != "aggregate":
            return await self._decide(question, None, run)
        try:
            return await noting_refusal(run, "step", partial(self._decide, question, None, run))
        except WindowError as error:
            run.count(Count.OVERLONG_STEPS)
            raise AgentError(
                "agent.failed", f"{question.agent} cannot {question.kind}: the prompt grew too long: {error}"
            ) from error

    async def _decide(self, question: Question, entry: Entry | None, run: Run) -> StepOutput:
        # The whole task is answered as in any other attempt.
        if not question.task and question.kind in ("solve", "aggregate"):
            return StepOutput(await self._answer(question, entry, run))
        prompt = self._prompt(question, entry, run)
        match question.kind:
            case "judge":
                able = await run.ask("agent", prompt, Ability)
                text = f"{'alone' if able.alone else 'not alone'}: {able.reason}"
                return StepOutput(text, able.alone, form=able.model_dump_json())
            case "decompose":
                plan = await run.ask("agent", prompt, Plan)
                most = MAX_PARTS if run.profile == "small" else None
                parts = [TaskPart(part.text, tuple(part.needs), part.to) for part in plan.parts[:most]]
                lines = [f"{n}. {part.text}{_assignment(part)}" for n, part in enumerate(parts, 1)]
                return StepOutput("\n".join(lines), parts, form=plan.model_dump_json())
            case "critique":
                critique = await run.ask("agent", prompt, Critique)
                feedback = None if critique.adequate else critique.feedback
                return StepOutput(feedback or ACCEPTED, feedback, form=critique.model_dump_json())
            case "solve" | "aggregate" if run.profile == "full":
                return StepOutput((await run.ask_text("agent", prompt)).strip())
            case "solve" | "aggregate":
                return StepOutput((await run.ask("agent", prompt, PartSolution)).solution)

    async def _answer(self, question: Question, entry: Entry | None, run: Run) -> str:
        role = self.team.member(question.agent).role
        # A whole task gets no request, as without a network: with the request "solve it", a small model wrote about
        # puzzles.
        now = () if question.kind == "solve" else (ASKED[question.kind].text(run.profile),)
        note = "\n\n".join([*([f"Your role: {role}"] if role else []), *now])
        view = View(note=note)
        if entry is not None:
            before, how = self.experience.heading(entry), EXPERIENCE.text(run.profile)
            view = View(
                (how,), (_turn(f"{before}\n{entry.key}\n\n{note}".strip(), entry.text),), note,
                tokens=count_tokens(how), instructing=True, fixed=1, entries=lambda: (entry,),
            )  # fmt: skip
        trace = await run.agent(replace(self.task, input=question.state), view, must_fit=True)
        if trace.error is not None:
            if trace.refused:
                raise RequestError("provider.refused", trace.error)
            raise (
                ProviderError("provider.failed", trace.error) if trace.lost else AgentError("agent.failed", trace.error)
            )
        return trace.answer

    def _prompt(self, question: Question, entry: Entry | None, run: Run) -> Prompt:
        role = self.team.member(question.agent).role
        system = TEAM.text(run.profile) + (f"\nYour role: {role}" if role else "")
        system += f"\n\n{EXPERIENCE.text(run.profile)}" if entry is not None else ""
        parts = [*run.agent_instructions]
        if question.kind == "decompose":
            others = (self.team.member(name) for name in question.colleagues)
            listed = "\n".join(f"- {other.name}{f': {other.role}' if other.role else ''}" for other in others)
            parts.append(f"# Colleagues\n{listed}")
        asked = f"# Now\n{ASKED[question.kind].text(run.profile)}"
        turns = ASKED[question.kind].examples if run.profile == "small" else ()
        if entry is not None:
            answer = entry.text
            if run.profile == "small" or question.kind not in ("solve", "aggregate"):
                answer = str(entry.data.get("output") or PartSolution(solution=entry.text).model_dump_json())
            turns += (_turn(f"{self.experience.heading(entry)}\n# Task\n{entry.key}\n\n{asked}", answer),)
        return Prompt(system, "\n\n".join([*parts, f"# Task\n{question.state}", asked]), turns=turns)


def _turn(user: str, assistant: str) -> Turn:
    """Format an experience as an earlier chat turn."""
    return Turn(visible_to_model(user), visible_to_model(assistant))


def _assignment(part: TaskPart) -> str:
    """Format the name of the agent that solves a part, and the numbers of the parts whose results this part needs."""
    notes = [f"for {part.to}"] if part.to else []
    notes += [f"needs {', '.join(map(str, part.needs))}"] if part.needs else []
    return f" ({'; '.join(notes)})" if notes else ""


# ---- pools of experience (MAEL, section 2.3; METHODS, section 6)

IDENTIFIED = re.compile(r"(seed|trace) [0-9a-f]{8}/")
"""Pattern of a trace name that starts with an identity. Identities are unique across runs. No place of a run matches
the pattern."""


async def pooled(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Update the experience pools (MAEL, section 2.3; METHODS, section 6): add each step of an attempt by a network of
    agents to the pool of its agent, count a use of each experience that was shown, and count the votes of the
    lessons."""
    votes: list[Vote] = []
    adds: list[Add] = []
    for lesson in lessons:
        origin: Any = {"sources": lesson.sources, "lessons": (lesson.id,)}
        if (shown := str(lesson.data.get("experience", ""))) in context:
            votes.append(Vote(shown, uses=1, **origin))
        for id, rating in lesson.votes.items():
            votes.append(Vote(id, int(rating == "helpful"), int(rating == "harmful"), **origin))
        if "reward" in lesson.data:
            names = ("kind", "reward", "whole", "trace", "output")
            data = {name: lesson.data[name] for name in names if lesson.data.get(name, "") != ""}
            section, key = POOL + lesson.data["agent"], lesson.data["state"]
            adds.append(Add(section, lesson.text, key, data, **origin))
    return Delta((*votes, *with_trace_ids(adds)))


def with_trace_ids(adds: Sequence[Add]) -> list[Add]:
    """Put an identity before each trace name that has no identity. The identity is a digest of the steps of the trace.

    A trace of an attempt is named by the place of the attempt. A person who writes experience by hand may use any word.
    Another run, or another file, may use the same name. The digest distinguishes two traces of one name, even after
    contexts are joined, and gives the same trace the same identity everywhere."""
    traces: dict[str, list[Add]] = defaultdict(list)
    for add in adds:
        if name := _unidentified(add):
            traces[name].append(add)
    steps = {name: [[x.section, x.text, x.key, dict(x.data)] for x in some] for name, some in traces.items()}
    ids = {name: f"trace {digest(some)[:8]}/{name}" for name, some in steps.items()}
    named = ((add, ids.get(_unidentified(add))) for add in adds)
    return [add if id is None else replace(add, data={**add.data, "trace": id}) for add, id in named]


def _unidentified(add: Add) -> str:
    """Return the trace name of an experience if the name has no identity; otherwise an empty text."""
    name = str(add.data.get("trace", "")) if add.section.startswith(POOL) else ""
    return "" if IDENTIFIED.match(name) else name


# ---- prompts

READINGS = "Rain in mm, January to March. North: 41, 18, 27. South: 12, 55, 30. Which had more in all, and by how much?"
NORTH = "Rain in mm at North, January to March: 41, 18, 27. How much is it in all?"
SOUTH = "Rain in mm at South, January to March: 12, 55, 30. How much is it in all?"
COMPARED = "Say which of the two stations below had more rain in all, North or South, and by how much."
NORTH_SUM, SOUTH_SUM = "41 + 18 + 27 = 86", "12 + 55 + 30 = 97"
DIFFERENCE = "South, by 97 - 86 = 11 mm"
LETTER = "Write a short letter that thanks Mia for the book and asks when she comes to visit."
THANKS = "Write one sentence that thanks Mia for the book."
ASKS = "Write one sentence that asks Mia when she comes to visit."
WHOLE = "Put the two sentences below together into a short letter to Mia."
ORDERS = (
    "Write a program that reads orders from a file, works out what each customer has to pay, discounts included, and "
    "prints a report sorted by that."
)


def _plan(*parts: str, to: tuple[str, str]) -> dict[str, Any]:
    """Return a plan for two colleagues, in which the third part needs the results of the first two parts."""
    return {
        "parts": [
            {"text": text, "to": to[n % 2], "needs": [1, 2] if n == 2 else []} for n, text in enumerate(parts)
        ]
    }  # fmt: skip


EXAMPLES: tuple[tuple[Kind, str, dict[str, Any]], ...] = (
    (
        "judge", f"# Task\n{ORDERS}",
        {"reason": "reading, reckoning and reporting are parts of their own", "alone": False},
    ),
    ("judge", f"# Task\n{NORTH}", {"reason": "one sum", "alone": True}),
    (
        "decompose", f"# Colleagues\n- Ada\n- Ben\n\n# Task\n{READINGS}",
        _plan(NORTH, SOUTH, COMPARED, to=("Ada", "Ben")),
    ),
    (
        "decompose", f"# Colleagues\n- Ben\n- Eve\n\n# Task\n{LETTER}",
        _plan(THANKS, ASKS, WHOLE, to=("Ben", "Eve")),
    ),
    ("solve", f"# Task\n{NORTH}", {"solution": NORTH_SUM}),
    (
        "solve", f"# Task\n{COMPARED}\n\n# Results it needs\n- {NORTH}: {NORTH_SUM}\n- {SOUTH}: {SOUTH_SUM}",
        {"solution": DIFFERENCE},
    ),
    (
        "critique", f"# Task\n{READINGS}\n\n# A part of it\n{NORTH}\n\n# Its solution\n41 + 18 = 59",
        {"feedback": "The reading of March is missing: add 27.", "adequate": False},
    ),
    (
        "critique", f"# Task\n{READINGS}\n\n# A part of it\n{NORTH}\n\n# Its solution\n{NORTH_SUM}",
        {"feedback": "", "adequate": True},
    ),
    (
        "aggregate", f"# Task\n{READINGS}\n\n# What came back\n## Part 1: {NORTH}\n{NORTH_SUM}\n\n"
        f"## Part 2: {SOUTH}\n{SOUTH_SUM}\n\n## Part 3: {COMPARED}\n{DIFFERENCE}", {"solution": "South, by 11 mm"},
    ),
)  # fmt: skip
"""Worked examples by kind. Without these examples, a small model plans parts without the facts that are needed to solve
the parts, and mistakes the question for a part. With a single example of a plan, the model copies that example for an
unfamiliar task."""


def _request(kind: Kind, full: str, small: str) -> Instructions:
    """Build the request for a kind of step, with its worked examples."""
    shown = ((state, answer) for example_kind, state, answer in EXAMPLES if example_kind == kind)
    turns = (Turn(f"{state}\n\n# Now\n{small}", json.dumps(answer, separators=(",", ":"))) for state, answer in shown)
    return Instructions(full, small, tuple(turns))


TEAM = Instructions(
    full="""\
You are one of a team of agents that solve tasks together. An agent that cannot solve a task well alone divides it \
into parts and hands them to colleagues, reviews each solution that comes back, returns it with feedback if it falls \
short, and combines the parts into one solution. You are asked for one step of this work: do this step alone, and do \
it completely. Nothing is shortened on its way to your colleagues, so write what they need, over several lines and \
with code if it serves.""",
    small="""\
You work in a team that solves tasks by dividing them, solving the parts, criticising each other's solutions and \
putting them together. Do what is asked of you now, and no more.""",
)

EXPERIENCE = Instructions(
    full="""\
The last exchange before the present task is from your experience: a step of the same kind on a past task, with the \
reward that it earned, from 0 to 1. If it was rewarded well, work in the same way as far as it fits the present task. \
If it is marked as one to avoid, find out what it lacked, and work in another way. Facts of the past task do not hold \
for the present one.""",
    small="""\
The exchange before the present task is an example from an earlier task, with its reward from 0 to 1. Work as in a \
good example, and not as in one to avoid. Its facts are not those of your task.""",
)
"""Explanation of experience, for every prompt that shows an experience."""

AVOID = ": an example to avoid"
"""Suffix of the heading of an experience with a low reward."""

ASKED: dict[Kind, Instructions] = {
    "judge": _request(
        "judge",
        full="""\
Decide whether you can solve this task well by yourself, in one answer. You can where one careful answer does \
everything that is asked. You cannot where the task has parts that need different work, or more work than one answer \
holds, or where parts are better made and checked one by one: then it will be divided. Name what decides it first.""",
        small="Say whether you can solve the task well by yourself, in one go. If it has parts of different kinds, or "
        "is too long for one answer, say no: then it will be divided.",
    ),
    "decompose": _request(
        "decompose",
        full="""\
Divide the task into parts for your colleagues, by its modules or by the stages of the work. Together the parts must \
do everything that is asked; each must be worth a solution of its own. A colleague sees neither the task nor the other \
parts. So write into each part all that it takes to solve it: the requirements, what is given, the names, formats and \
interfaces that it shares with other parts, and what its result must look like, in up to 2,000 characters. If a part \
builds on the results of others, give their numbers in `needs`, and these results will be shown with it; parts that \
need nothing are solved at the same time. Name in `to` the colleague who solves the part: the one whose role fits it. \
Solve nothing yourself.""",
        small="Divide the task into parts for your colleagues: as few as make each part simple, each complete in "
        "itself. Say which parts need the results of others, and which colleague solves each. Do not solve anything.",
    ),
    "solve": _request(
        "solve",
        full="""\
Solve the task. Write the complete solution and nothing beside it, in the form that the task asks for; if it asks for \
none, in the form that is most useful to a colleague who has to build on it. Use the results of other parts if some \
are given. If a solution of yours is given with what was said of it, mend every point that is right, and write the \
whole solution again, not only what has changed.""",
        small="Solve it.",
    ),
    "critique": _request(
        "critique",
        full="""\
Review the solution of this part: whether it is right, whether it does all that the part asks, and whether it serves \
the whole task. Check it in detail; recompute what is computed, and read code as it would run. If it can be used as it \
is, call it adequate: do not ask for changes of taste. Otherwise name each fault, where it is and how to mend it, in \
up to 2,000 characters, with the corrected text or code where that is clearer, so that your colleague can mend all of \
it at once.""",
        small="Say whether the solution of this part is adequate. If not, say what is wrong and how to mend it.",
    ),
    "aggregate": _request(
        "aggregate",
        full="""\
Combine what came back into one solution of the whole task, in the form that the task asks for. Connect what has to \
work together, settle contradictions, mend mistakes that you notice, and supply what is missing or was not solved. \
Whoever reads it sees nothing else: write the complete solution, with no mention of the parts.""",
        small="Put what came back together into one answer to the whole task. Mend what does not fit.",
    ),
}
"""Request for each kind of step. In a prompt, the request follows the state that the step acts on."""
