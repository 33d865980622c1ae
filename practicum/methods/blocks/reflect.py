"""Reflection: attempts in the form that reflectors read, lessons from single attempts with votes on the used entries,
and the contrast between several attempts at one task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from statistics import pvariance
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter
from pydantic.json_schema import SkipJsonSchema

from practicum.core.bounded import EntryId, LongText, MaxChars, MaxItems, Output, clean, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Entry
from practicum.core.types import Attempt, Instructions, Lesson, Prompt, Rating, Round, Step, Trace, Turn
from practicum.core.views import behind, entry_line, truncate
from practicum.engine.loop import ReflectSeam
from practicum.engine.run import Run
from practicum.methods.blocks.show import described, playbook_pages, section_of
from practicum.methods.blocks.telling import telling
from practicum.methods.worked_examples import CALENDAR, CLOSED, COAT, HINGE, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.models.client import JSON
from practicum.models.prompting import json_schema
from practicum.tasks.scoring.rules import normalise

# ---- evidence: one attempt, or a failed and a successful attempt, and the attempt of a twin

BRIEF = 2_000
"""Maximum characters of an attempt in a small model's prompt if the prompt contains much else."""

SEEN = 300
"""Maximum characters of an observation in a solved task that serves as an example."""

SHORTEST = 400
"""Minimum number of characters to which an attempt is cut when it is compared with a shorter attempt."""


def contrast(attempt: Attempt) -> tuple[Attempt, Attempt | None]:
    """Return the attempt of the group to reflect on: the first failure or, without a failure, `attempt` itself. If the
    group has a failure and a success, also return the first success under the same context, else None (RCL, section
    3.1)."""
    failed = next((r for r in attempt.group if r.feedback.success is False and not r.trace.lost), None)
    passed = next((r for r in attempt.group if r.feedback.success is True), None)
    return (attempt, None) if failed is None else (failed, passed)


def evidence(attempt: Attempt) -> str:
    """Format one attempt as text: the task, the steps, the answer, the feedback."""
    return "\n".join([f"Task: {attempt.task.text}", *_work(attempt.trace), f"Feedback: {attempt.feedback.text}"])


def _work(trace: Trace) -> list[str]:
    """Return the steps, the reasoning and the answer of an agent, a part per line."""
    return [
        *(step.line for step in trace.steps),
        *([f"Reasoning: {trace.reasoning}"] if trace.reasoning else []),
        f"Answer: {trace.answer}",
    ]


def solved_as(trace: Trace) -> dict[str, Any]:
    """Return the data of an entry that shows how a task was solved: the `answer` and, if the agent made calls, the
    `steps` as a list of [kind, text], without failed calls, and with shortened observations."""
    steps, call_start = list[Step](), 0
    for step in trace.steps:
        steps.append(step)
        if step.kind == "observation":
            if step.text.startswith("error: "):
                del steps[call_start:]
            call_start = len(steps)
    data: dict[str, Any] = {"answer": trace.answer}
    if call_start:
        short = (truncate(step.text, SEEN) if step.kind == "observation" else step.text for step in steps)
        data["steps"] = [[step.kind, text] for step, text in zip(steps, short, strict=True)]
    return data


def brief(attempt: Attempt, run: Run) -> str:
    """Format one attempt as text. For a small model, a long text is cut in the middle."""
    return truncate(evidence(attempt), BRIEF) if run.profile == "small" else evidence(attempt)


def findings_text(lesson: Lesson) -> str:
    """Format all findings of a reflection other than its insights, a finding per line."""
    findings = [behind(f"{name}:", str(lesson.data[key])) for key, name in FINDINGS.items() if lesson.data.get(key)]
    used = [f"[{id}] {verdict}" for id, verdict in entry_verdicts(lesson).items()]
    return "\n".join([*findings, *([f"Entries used: {', '.join(used)}"] if used else [])])


def entry_verdicts(lesson: Lesson) -> Mapping[str, Rating]:
    """Return a reflection's verdicts on entries. The verdicts are also stored apart from the votes: a copy of a lesson
    has no votes, because its votes would count twice, but keeps the verdicts."""
    verdicts: Mapping[str, Rating] = lesson.data.get("verdicts", lesson.votes)
    return verdicts


FINDINGS = {
    "proposal": "A curator proposes", "feedback": "Feedback on the attempt", "reasoning": "Analysis",
    "evidence": "Evidence",
    "attribution": "Attribution", "kind": "Kind of task", "diagnosis": "Diagnosis", "cause": "Root cause",
    "correction": "Correct approach", "gap": "Gap in the playbook",
}  # fmt: skip
"""Names of the findings of a reflection in prompts, by key in `Lesson.data`."""


async def case_prompt(
    instructions: Instructions,
    attempt: Attempt,
    context: Context,
    earlier: Sequence[Round],
    run: Run,
    shown: bool = True,
) -> Prompt:
    """Build a reflector's prompt about one task. With `shown`, the prompt contains the playbook; a small model reads
    only the entries that the agent relied on."""
    return await cases_prompt(instructions, case(attempt, context, earlier, run, shown), [attempt], context, run, shown)


async def cases_prompt(
    instructions: Instructions, parts: Sequence[str], attempts: Sequence[Attempt], context: Context, run: Run,
    shown: bool = True,
) -> Prompt:  # fmt: skip
    """Build a reflector's prompt from parts about these attempts. With `shown`, a capable model reads the playbook
    before these parts."""
    if run.profile == "small":
        return instructions.prompt(run.profile, parts)
    sections = f"# The sections of the playbook\n{described(run)}"
    if not shown:
        return instructions.prompt(run.profile, parts, heading=sections)
    used = [entry.id for r in attempts for entry in relied_on(r, context)]
    pages = await playbook_pages(context, used, [r.task.input for r in attempts], "reflector", run)
    return instructions.prompt(run.profile, parts, pages, f"{sections}\n\n# The playbook")


def case(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run, shown: bool = True) -> list[str]:
    """Return the parts of a reflector's prompt about one task, beginning with the parts that are the same for all
    tasks. `attempt` may have siblings and a twin."""
    small = run.profile == "small"
    failed, passed = contrast(attempt)
    parts = [*run.agent_instructions]
    if shown and (used := relied_on(attempt, context)):
        if small:
            parts.append("# Rules the agent relied on\n" + "\n".join(map(entry_line, used)))
        else:
            parts.append("# Entries that the agent says it used\n" + " ".join(f"[{entry.id}]" for entry in used))
    if earlier:
        # After a round without another try, the reflector improves its last reflection.
        tried = earlier[-1].trace is not None
        heading = "Your earlier insights on this task, which did not help" if tried else "Your reflection so far"
        written = "\n\n".join(_round(round, small) for round in earlier)
        parts.append(f"# {heading}\n{written}")
    if passed is None:
        parts.append(f"# The attempt\n{evidence(failed)}")
    else:
        failed_text, passed_text = evidence(failed), evidence(passed)
        # A small model takes the longer attempt for the better one, so both attempts are cut to the same length.
        most = (
            max(min(len(failed_text), len(passed_text)), SHORTEST) if small else max(len(failed_text), len(passed_text))
        )
        parts.append(f"# The attempt\n{truncate(failed_text, most)}")
        parts.append(f"# Another attempt at it under the same rules, which succeeded\n{truncate(passed_text, most)}")
    if attempt.twin is not None and attempt.twin.error is None:
        # The outcome of the twin is not shown, because the requested notes change the agent's behavior (RCL, section
        # 3.2).
        work = [] if small else _work(attempt.twin)
        notes = "\n".join([*_notes(attempt.twin, small), *work])
        parts.append(f"# The agent's notes, from another run of the same task\n{notes}")
    return parts


def _round(round: Round, small: bool) -> str:
    texts = [behind("-", x.text or "(nothing)") for x in round.lesson.each]
    return "\n".join(texts if small else [findings_text(round.lesson), *texts])


def relied_on(attempt: Attempt, context: Context) -> list[Entry]:
    """Return the entries that the attempt relied on, then the entries that its twin cited or doubted. Hidden entries,
    whose ids an agent may have guessed, are left out."""
    failed, _ = contrast(attempt)
    twin = () if attempt.twin is None else (*attempt.twin.used, *_doubts(attempt.twin))
    ids = dict.fromkeys((*failed.trace.used, *twin))
    return [entry for id in ids if (entry := context.get(id)) is not None and not entry.hidden]


def _notes(twin: Trace, small: bool) -> list[str]:
    lines = [f"consulted: {' '.join(f'[{id}]' for id in twin.used) or 'no rule'}"]
    lines += [f"doubted [{id}]: {why}" for id, why in _doubts(twin).items()]
    if missing := twin.data.get("missing"):
        lines.append(f"missing: {missing}")
    if small and twin.reasoning:
        lines.append(f"thought: {twin.reasoning}")
    return lines


def _doubts(twin: Trace) -> Mapping[str, str]:
    """Return the entries that the twin doubted, with its reasons. Empty if `doubts` is not a mapping, because a user's
    agent may store any value under this name."""
    doubts = twin.data.get("doubts")
    return doubts if isinstance(doubts, Mapping) else {}


# ---- lessons from single attempts

Reflector = Callable[[Attempt, Context, Sequence[Round], Run], Awaitable[Lesson | None]]
LearnFrom = Literal["all", "failures"]


class Tag(Output):
    """A verdict on one entry the agent relied on."""

    id: EntryId
    verdict: Rating


class Insight(Output):
    """One thing worth keeping for later tasks."""

    section: str = Field(description="the section of the playbook that it belongs to")
    text: LongText = Field(description="what to keep, as long as it needs to be, at most 2,000 characters")


def of_one_insight(values: dict[str, Any]) -> dict[str, Any]:
    """Convert a small model's single insight to a list of one insight, which has no section."""
    return {**values, "insights": [Insight(section="", text=values["insight"])]}


RULE = (Annotated[str, rule_schema(160, empty=False)], Field(description="the rule to keep for tasks of this kind"))
KIND = (Annotated[str, MaxChars(80)], Field(description="what kind of task this is, by its subject"))


class Reflection(Output):
    """What a reflector writes about one attempt."""

    kind: SkipJsonSchema[str] = ""
    reasoning: LongText = Field(description="the analysis of the attempt, step by step")
    diagnosis: LongText = Field(description="what went right or wrong")
    cause: LongText = Field(description="the root cause of that")
    correction: LongText = Field(description="the correct approach, concretely")
    tags: list[Tag] = Field(description="a verdict on each entry that the agent used")
    insights: list[Insight] = Field(description="what is worth keeping; none if the playbook says it already")

    # The kind of task comes first. A small model that begins with the failure keeps writing about it, and its rule then
    # repeats the rule that the agent relied on.
    SHORT: ClassVar = {"kind": KIND, "correction": 60, "insight": RULE, "diagnosis": 100, "tags": 3}
    from_short = staticmethod(of_one_insight)


@cache
def teaching_or_not() -> JSON:
    """Return the schema of a small model's reflection on an attempt that did not fail, in which the insight may be
    empty."""
    schema = deepcopy(json_schema(Reflection, "small"))
    optional = Annotated[str, rule_schema(160, empty=True)]
    schema["properties"]["insight"] |= TypeAdapter(optional).json_schema()
    return schema


def by_model(instructions: Instructions, rules_shown: bool = True) -> Reflector:
    """Build a reflector that asks a model about one attempt (ACE, section 3.1).

    Without `rules_shown`, the model does not read the playbook, and only the outcome votes on the used entries. If the
    call fails or its output cannot be parsed, the reflector returns None, and counts the failure.
    """

    async def reflect(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        failed, _ = contrast(attempt)
        prompt = await case_prompt(instructions, attempt, context, earlier, run, rules_shown)
        form = teaching_or_not() if run.profile == "small" and failed.feedback.success is not False else None
        reflection = await run.try_ask("reflector", prompt, Reflection, Count.LOST_REFLECTIONS, form=form)
        if reflection is None:
            return None
        votes = verdicts(reflection.tags, attempt, context, run) if rules_shown else judged_by_outcome(failed)
        return await telling(reflected_lesson(reflection, attempt, votes, run, run.place), attempt, run)

    return reflect


def reflected_lesson(
    reflection: Output, attempt: Attempt, votes: Mapping[str, Rating], run: Run, id: str, keep: bool = True
) -> Lesson:
    """Build the lesson of a reflection. `reflection` may have any form. The first insight becomes the text of the
    lesson, all other insights become `further` lessons, and the findings become `data`. Without `keep`, the insights
    are dropped."""
    failed, _ = contrast(attempt)
    insights = [x for x in getattr(reflection, "insights", ()) if clean(x.text)] if keep else []
    data = {name: value for name, value in reflection if name in FINDINGS and value}
    if run.profile == "full":
        data |= {"feedback": failed.feedback.text, "verdicts": dict(votes)}
    lesson = Lesson(id, "", evidence(failed), votes, attempt.sources, data=data)
    with_text = [replace(lesson, text=clean(x.text), section=section_of(x.section, run)) for x in insights]
    if not with_text:
        return lesson
    others = enumerate(with_text[1:], 2)
    return replace(
        with_text[0], further=tuple(replace(x, id=f"{id}.{n}", detail="", votes={}, of=id) for n, x in others)
    )


def verdicts(tags: Sequence[Tag], attempt: Attempt, context: Context, run: Run) -> dict[str, Rating]:
    """Convert the reflector's tags to votes on the entries that the attempt relied on. An entry that was used and not
    tagged gets a neutral vote. Tags of other entries are dropped and counted. A reused attempt gives no votes, because
    the original attempt has voted."""
    if attempt.of:
        return {}
    shown = {entry.id for entry in relied_on(attempt, context)}
    tagged = {tag.id: tag.verdict for tag in tags if tag.id in shown}
    run.count(Count.UNKNOWN_TAGS, len(tags) - len(tagged))
    return {**dict.fromkeys(contrast(attempt)[0].trace.used, "neutral"), **tagged}


def judged_by_outcome(attempt: Attempt) -> dict[str, Rating]:
    """Rate the used entries by the outcome: helpful in a success, harmful in a failure, else neutral. A reused attempt
    does not vote again."""
    ratings: dict[bool | None, Rating] = {True: "helpful", False: "harmful", None: "neutral"}
    return {} if attempt.of else dict.fromkeys(attempt.trace.used, ratings[attempt.feedback.success])


async def without_reflector(attempt: Attempt, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
    """Return the raw attempt as the lesson, which the curator has to interpret (the ablation without a reflector)."""
    return Lesson(run.place, brief(attempt, run), evidence(attempt), judged_by_outcome(attempt), attempt.sources)


def per_trace(reflector: Reflector, learn_from: LearnFrom = "all", only_confirmed: bool = False) -> ReflectSeam:
    """Build a reflect seam that reflects on each attempt by itself, concurrently. An attempt that was already reflected
    on, in its rounds, is not reflected on again: the lessons of the rounds are used.

    With `learn_from="failures"`, a success only votes on the entries that it used, and the reflector is not called.
    With `only_confirmed`, an insight of a round is kept only if the next try succeeded with it. Nothing is learned from
    a lost attempt."""

    async def one(attempt: Attempt, context: Context, run: Run) -> list[Lesson]:
        if attempt.rounds:
            lessons = [lesson for round in attempt.rounds for lesson in round.lesson.each]
            return [x if x.confirmed or not only_confirmed else replace(x, text="") for x in lessons]
        if learn_from == "failures" and contrast(attempt)[0].feedback.success is True:
            return [tagged(attempt, run.place)]
        lesson = await reflector(attempt, context, (), replace(run, about=attempt.sources))
        return [] if lesson is None else [*lesson.each]

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in attempts if not r.trace.lost]
        jobs = [(f"{i}.{r.task.id}", partial(one, r, context)) for i, r in enumerate(usable)]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


def alongside(**reflects: ReflectSeam) -> ReflectSeam:
    """Build a reflect seam that returns the lessons of several seams, in this order. Each seam runs at a place with the
    name of its argument."""

    async def wrapped(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        results = await run.gather([(name, partial(reflect, attempts, context)) for name, reflect in reflects.items()])
        return [lesson for lessons in results for lesson in lessons]

    return wrapped


def chosen(reflect: ReflectSeam, most: int) -> ReflectSeam:
    """Build a reflect seam that applies `reflect` to up to `most` failed tasks (RCL, section 3.1). The other tasks get
    lessons that only vote on the used entries (`tagged`). Tasks with a failed and a successful run are chosen first,
    then tasks whose runs differ most in score, then tasks in the order of the batch."""

    async def wrapped(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        usable = [r for r in attempts if not r.trace.lost]
        failing = [r for r in usable if any(x.feedback.success is False for x in r.group if not x.trace.lost)]
        picked = sorted(failing, key=lambda r: _spread(r, run.labels), reverse=True)[:most]
        places = {r.place for r in picked}
        rest = [tagged(r, r.place) for r in usable if r.place not in places]
        return [*await reflect(picked, context, run), *rest]

    return wrapped


def _spread(attempt: Attempt, labels: bool) -> tuple[bool, float]:
    """Return whether a run of the group succeeded, and the variance of the scores, or of the outcomes if learning may
    not see scores."""
    outcomes = [(r.score, r.feedback.success is True) for r in attempt.group if not r.trace.lost]
    # `pvariance` is exact: rounding errors would give equal scores a variance.
    spread = pvariance(score.value if score is not None and labels else float(success) for score, success in outcomes)
    return any(success for _, success in outcomes), spread


async def as_experience(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Return a lesson for each task: its input, its answer, and the calls that led to the answer, without a reflection.
    Answer and calls are taken from the first successful try or, if no try succeeded, from the attempt itself. If all
    tries failed and the right answer is known, the lesson has the right answer and no calls. `good` is True if the
    answer in the lesson is right; a lesson with another answer is stored, but not shown to agents. The lesson votes on
    the examples that the attempt was shown (see `judged_examples`)."""
    lessons = []
    for attempt in attempts:
        if attempt.trace.lost:
            continue
        solved, target = attempt.solved, attempt.feedback.target if run.targets_are_answers else None
        corrected = attempt.feedback.success is False and solved is None and target is not None
        solution = {"answer": target} if corrected else solved_as(solved or attempt.trace)
        data = {**solution, "good": solved is not None or corrected, "corrected": corrected}
        votes = judged_examples(attempt, context)
        lessons.append(Lesson(attempt.place, attempt.task.input, votes=votes, sources=attempt.sources, data=data))
    return lessons


def judged_examples(attempt: Attempt, context: Context) -> dict[str, Rating]:
    """Rate the retrieved examples whose answer the attempt gave, too: helpful in a success, harmful in a failure. Other
    examples did not lead to the answer. Examples with steps are not rated, because their answers are alike. A reused
    attempt does not vote again."""
    success = attempt.feedback.success
    if attempt.of or success is None or attempt.trace.steps:
        return {}
    answer = normalise(attempt.trace.answer)
    rating: Rating = "helpful" if success else "harmful"
    shown = (context.get(id) for id, _ in attempt.retrieved)
    followed = (e for e in shown if e is not None and "answer" in e.data and "steps" not in e.data)
    return {e.id: rating for e in followed if normalise(str(e.data["answer"])) == answer}


def is_experience(lesson: Lesson) -> bool:
    """Return whether `as_experience` made this lesson."""
    return "corrected" in lesson.data


def tagged(attempt: Attempt, place: str) -> Lesson:
    """Build the lesson of an attempt that was not reflected on. A success counts the used entries as helpful. A failure
    only counts the use of the entries, because the failure may have other causes (METHODS, section 3)."""
    votes = judged_by_outcome(attempt)
    if attempt.feedback.success is False:
        votes = dict.fromkeys(votes, "neutral")
    return Lesson(place, "", evidence(attempt), votes, attempt.sources)


# ---- self-contrast: several attempts at one task side by side (ReasoningBank; METHODS, section 4)
#
# A feature that the successful attempts share is likely to be a way to solve the task. A difference between successful
# and failed attempts is likely to be the reason for the success. Differences without an effect on the outcome must not
# be learned.

Finding = Annotated[str, MaxChars(160)]


class Contrast(Output):
    """What several attempts at a task show side by side."""

    holds: Annotated[list[Finding], MaxItems(3)] = Field(description="what the attempts that went well have in common")
    separates: Annotated[list[Finding], MaxItems(3)] = Field(description="what separates those from the others")
    spurious: Annotated[list[Finding], MaxItems(3)] = Field(description="what made no difference to the outcome")
    why: Annotated[str, MaxChars(120)] = Field(description="which attempt is best and why")
    best: int = Field(ge=1, le=64, description="number of the best attempt")

    @property
    def findings(self) -> dict[str, Any]:
        """Findings by kind, as JSON values."""
        return self.model_dump(include={"holds", "separates", "spurious"})


async def contrasted(tries: Sequence[Attempt], run: Run) -> Contrast | None:
    """Contrast all attempts at a task, except lost attempts, in one call. Returns None without a call if fewer than two
    attempts gave an answer, and None if the call failed. Failed calls are counted."""
    if sum(r.trace.error is None for r in tries) < 2:
        return None
    outcomes = {True: "went well", False: "failed", None: "outcome unknown"}
    answered = [(n, r) for n, r in enumerate(tries, 1) if not r.trace.lost]
    parts = [f"# Attempt {n}: {outcomes[r.feedback.success]}\n{evidence(r)}" for n, r in answered]
    prompt = SELF_CONTRAST.prompt(run.profile, [*run.agent_instructions, *parts])
    return await run.try_ask("reflector", prompt, Contrast, Count.LOST_CONTRASTS)


def in_words(findings: Mapping[str, Sequence[str]]) -> str:
    """Format findings as text for a model; empty without findings."""
    names = {
        "holds": "Common to attempts that went well:",
        "separates": "What separates them from those that failed:",
        "spurious": "Made no difference:",
    }
    return "\n".join(
        "\n".join([name, *(behind("-", clean(text)) for text in findings[key])])
        for key, name in names.items()
        if findings.get(key)
    )


CONTRASTED = (
    Turn(
        f"""\
{SHOP}

# Attempt 1: failed
{COAT}
Reasoning: 25% of 80 is 20.
Answer: 20
Feedback: The answer is wrong. The right answer is: 60

# Attempt 2: went well
{COAT}
Reasoning: 25% of 80 is 20, and 80 - 20 = 60.
Answer: 60
Feedback: The answer is right.

# Attempt 3: went well
{COAT}
Reasoning: Three quarters are left, and 0.75 x 80 = 60.
Answer: 60
Feedback: The answer is right.""",
        """\
{"holds":["They say what is left of the full price, not what is taken off."],\
"separates":["To subtract the discount from the full price is right; to stop at the discount is not."],\
"spurious":["Whether the discount is subtracted or the rest is multiplied."],\
"why":"right, and each step can be followed","best":2}""",
    ),
    Turn(
        f"""\
{CALENDAR}

# Attempt 1: failed
{MEETING}

# Attempt 2: went well
Task: Put the dentist into my calendar, on 9 May at half past two.
Action: add_event {{"title": "dentist", "start": "2026-05-09T14:30"}}
Observation: added
Answer: The dentist is in your calendar.
Feedback: The answer is right.""",
        """\
{"holds":[],"separates":["To write the start as add_event wants it is right; to answer after an error is not."],\
"spurious":["What the answer says of the event."],"why":"its event is in the calendar","best":2}""",
    ),
    Turn(
        f"""\
{WORKSHOP}

# Attempt 1: failed
Task: a hinge for a garden gate right by the sea
Answer: oak
Feedback: The answer is wrong. The right answer is: bronze

# Attempt 2: failed
{HINGE}""",
        '{"holds":[],"separates":[],"spurious":[],"why":"both are wrong","best":1}',
    ),
    Turn(
        f"""\
{NOTICES}

# Attempt 1: failed
{CLOSED}

# Attempt 2: went well
Task: Tell visitors that the pool is closed on Sunday for cleaning.
Answer: Closed on Sunday for cleaning.
Feedback: The answer is right.""",
        """\
{"holds":[],"separates":["To write the fact alone keeps to the limit; polite phrases use up the words."],\
"spurious":["Whether visitors are addressed."],"why":"it has few words and says all","best":2}""",
    ),
)

SELF_CONTRAST = Instructions(
    full="""\
You compare several attempts of one agent at the same task, each with its outcome. What a single attempt seems to \
teach may be chance; side by side, attempts show what their outcome rests on.

Go through the attempts step by step: what each of them did, where they part, and what followed from it.

holds: ways of working that the attempts that went well have in common and that carried them to the result.
separates: what decided between success and failure: what those that went well did and those that failed did not, or \
the other way round, and why it mattered. None if all attempts have the same outcome.
spurious: what differs between attempts, or stands out in one of them, without any effect on the outcome, so that \
nobody learns it.
why, best: which attempt is best, by its outcome first and by how soundly it was reached second.

Say each finding in full, with the steps, calls, formulas or code that it is about, in up to 2,000 characters, and so \
that it can be understood by a reader who does not see this task. Leave a list empty where there is nothing to say. \
Claim nothing that the attempts do not show.""",
    small="""\
You compare several attempts of one agent at the same task, each with its outcome.

holds: ways of working that the attempts that went well share.
separates: what those that went well did and those that failed did not, or the other way round.
spurious: what differs between attempts, or stands out in one, without any effect on the outcome.
why, best: which attempt is best, by its outcome first and by how soundly it was reached second.

Each point is one short general sentence that makes sense without this task. Leave a list empty where there is nothing \
to say. Never guess what you cannot see in the attempts.""",
    examples=CONTRASTED,
)
