"""Attempts as reflectors read them: one alone, a failed one beside one that succeeded, with the run of a twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from practicum.blocks.reading import playbook_pages
from practicum.blocks.sections import described
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.types import Instructions, Lesson, Prompt, Rating, Rollout, Round, Step, Trace
from practicum.core.views import behind, entry_line, truncate
from practicum.engine.run import Run

BRIEF = 2_000
"""Characters kept of an attempt that a prompt for a small model shows beside much else."""

SEEN = 300
"""Characters kept of an observation where a solved task serves as an example."""

SHORTEST = 400
"""Characters that an attempt is not cut below, however short the one beside it is."""


def contrast(rollout: Rollout) -> tuple[Rollout, Rollout | None]:
    """The attempt to reflect on, and one that succeeded under the same context (RCL, section 3.1). Only a group with
    both outcomes has the second one. A group without a failure is reflected on by its first attempt."""
    failed = next((r for r in rollout.group if r.feedback.success is False and not r.trace.lost), None)
    passed = next((r for r in rollout.group if r.feedback.success is True), None)
    return (rollout, None) if failed is None else (failed, passed)


def evidence(rollout: Rollout) -> str:
    """One attempt as text: the task, the steps, the answer, the feedback."""
    return "\n".join([f"Task: {rollout.task.input}", *_work(rollout.trace), f"Feedback: {rollout.feedback.text}"])


def _work(trace: Trace) -> list[str]:
    """What an agent did and answered, a part a line."""
    return [
        *(step.line for step in trace.steps),
        *([f"Reasoning: {trace.reasoning}"] if trace.reasoning else []),
        f"Answer: {trace.answer}",
    ]


def solved_as(trace: Trace) -> dict[str, Any]:
    """The data of an entry that shows how a task was solved: the answer and, if the agent made calls, its `steps`
    [kind, text], without calls that failed, and with observations in short."""
    steps, begun = list[Step](), 0
    for step in trace.steps:
        steps.append(step)
        if step.kind == "observation":
            if step.text.startswith("error: "):
                del steps[begun:]
            begun = len(steps)
    data: dict[str, Any] = {"answer": trace.answer}
    if begun:
        short = (truncate(step.text, SEEN) if step.kind == "observation" else step.text for step in steps)
        data["steps"] = [[step.kind, text] for step, text in zip(steps, short, strict=True)]
    return data


def brief(rollout: Rollout, run: Run) -> str:
    """The same; for a small model, cut in the middle if it is long."""
    return truncate(evidence(rollout), BRIEF) if run.profile == "small" else evidence(rollout)


def said(lesson: Lesson) -> str:
    """Everything that a reflection says beside its insights, a finding a line."""
    found = [behind(f"{name}:", str(lesson.data[key])) for key, name in FINDINGS.items() if lesson.data.get(key)]
    used = [f"[{id}] {verdict}" for id, verdict in judged(lesson).items()]
    return "\n".join([*found, *([f"Entries used: {', '.join(used)}"] if used else [])])


def judged(lesson: Lesson) -> Mapping[str, Rating]:
    """A reflection's verdicts on entries. Copies of a lesson keep them, but have no votes, which would count again."""
    verdicts: Mapping[str, Rating] = lesson.data.get("verdicts", lesson.votes)
    return verdicts


FINDINGS = {
    "proposal": "A curator proposes", "feedback": "Feedback on the attempt", "reasoning": "Analysis",
    "evidence": "Evidence",
    "attribution": "Attribution", "kind": "Kind of task", "diagnosis": "Diagnosis", "cause": "Root cause",
    "correction": "Correct approach", "gap": "Gap in the playbook",
}  # fmt: skip
"""What a reflection may say, by key of `Lesson.data`: its name in prompts."""


async def case_prompt(
    told: Instructions, rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run, shown: bool = True
) -> Prompt:
    """A reflector's prompt about one task. With `shown`, it reads the playbook: a small model only the entries that the
    agent relied on."""
    return await cases_prompt(told, case(rollout, context, earlier, run, shown), [rollout], context, run, shown)


async def cases_prompt(
    told: Instructions, parts: Sequence[str], rollouts: Sequence[Rollout], context: Context, run: Run,
    shown: bool = True,
) -> Prompt:  # fmt: skip
    """A reflector's prompt of these parts, which are about these attempts; the playbook comes first."""
    if run.profile == "small":
        return told.prompt(run.profile, parts)
    sections = f"# The sections of the playbook\n{described(run)}"
    if not shown:
        return told.prompt(run.profile, parts, heading=sections)
    used = [entry.id for r in rollouts for entry in relied_on(r, context)]
    pages = await playbook_pages(context, used, [r.task.input for r in rollouts], "reflector", run)
    return told.prompt(run.profile, parts, pages, f"{sections}\n\n# The playbook")


def case(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run, shown: bool = True) -> list[str]:
    """The parts of a reflector's prompt about one task; what is the same for all tasks comes first. `rollout` may have
    siblings and a twin."""
    small = run.profile == "small"
    failed, passed = contrast(rollout)
    parts = [*run.agent_instructions]
    if shown and (used := relied_on(rollout, context)):
        if small:
            parts.append("# Rules the agent relied on\n" + "\n".join(map(entry_line, used)))
        else:
            parts.append("# Entries that the agent says it used\n" + " ".join(f"[{entry.id}]" for entry in used))
    if earlier:
        # After a round without another try, the reflector improves what it wrote.
        tried = earlier[-1].trace is not None
        heading = "Your earlier insights on this task, which did not help" if tried else "Your reflection so far"
        written = "\n\n".join(_round(round, small) for round in earlier)
        parts.append(f"# {heading}\n{written}")
    if passed is None:
        parts.append(f"# The attempt\n{evidence(failed)}")
    else:
        wrong, right = evidence(failed), evidence(passed)
        # A small model takes the longer attempt for the better one, so both are cut at the same length.
        most = max(min(len(wrong), len(right)), SHORTEST) if small else max(len(wrong), len(right))
        parts.append(f"# The attempt\n{truncate(wrong, most)}")
        parts.append(f"# Another attempt at it under the same rules, which succeeded\n{truncate(right, most)}")
    if rollout.twin is not None and rollout.twin.error is None:
        # Its outcome is not shown: the notes that it was asked for change what the agent does (RCL, section 3.2).
        work = [] if small else _work(rollout.twin)
        notes = "\n".join([*_notes(rollout.twin, small), *work])
        parts.append(f"# The agent's notes, from another run of the same task\n{notes}")
    return parts


def _round(round: Round, small: bool) -> str:
    texts = [behind("-", x.text or "(nothing)") for x in round.lesson.each]
    return "\n".join(texts if small else [said(round.lesson), *texts])


def relied_on(rollout: Rollout, context: Context) -> list[Entry]:
    """Entries that the attempt relied on, then those that its twin cited or doubted. Hidden entries, whose ids an agent
    may have guessed, are left out."""
    failed, _ = contrast(rollout)
    twin = () if rollout.twin is None else (*rollout.twin.used, *_doubts(rollout.twin))
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
    """Entries in doubt, and why. An agent that returns a trace of its own may keep anything under this name."""
    said = twin.data.get("doubts")
    return said if isinstance(said, Mapping) else {}
