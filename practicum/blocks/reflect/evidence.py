"""Attempts as reflectors read them: one alone, a failed one beside one that succeeded, with the notes of a twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.types import Rollout, Round, Trace
from practicum.core.views import entry_line, truncate
from practicum.engine.run import Run

BRIEF = 2_000
"""Characters kept of an attempt that a prompt shows beside much else."""

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
    parts = [f"Task: {rollout.task.input}"]
    parts += [f"{step.kind.capitalize()}: {step.text}" for step in rollout.trace.steps]
    if rollout.trace.reasoning:
        parts.append(f"Reasoning: {rollout.trace.reasoning}")
    parts += [f"Answer: {rollout.trace.answer}", f"Feedback: {rollout.feedback.text}"]
    return "\n".join(parts)


def brief(rollout: Rollout) -> str:
    """The same, cut in the middle if it is long."""
    return truncate(evidence(rollout), BRIEF)


def case(rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run, rules_shown: bool = True) -> list[str]:
    """The parts of a reflector's prompt about one task; what is the same for all tasks comes first. `rollout` may have
    siblings and a twin. With `rules_shown`, the entries that the agent relied on are shown."""
    failed, passed = contrast(rollout)
    parts = [*run.agent_instructions]
    if rules_shown and (used := relied_on(rollout, context)):
        parts.append("# Rules the agent relied on\n" + "\n".join(map(entry_line, used)))
    if earlier:
        said = "\n".join(f"- {round.lesson.text or '(nothing)'}" for round in earlier)
        parts.append(f"# Your earlier insights on this task, which did not help\n{said}")
    if passed is None:
        parts.append(f"# The attempt\n{evidence(failed)}")
    else:
        # Both are cut at the same length, so that neither looks better because it is longer.
        wrong, right = evidence(failed), evidence(passed)
        most = max(min(len(wrong), len(right)), SHORTEST)
        parts.append(f"# The attempt\n{truncate(wrong, most)}")
        parts.append(f"# Another attempt at it under the same rules, which succeeded\n{truncate(right, most)}")
    if rollout.twin is not None and rollout.twin.error is None:
        parts.append(f"# The agent's notes, from another run of the same task\n{_notes(rollout.twin)}")
    return parts


def relied_on(rollout: Rollout, context: Context) -> list[Entry]:
    """Entries that the attempt relied on, then those that its twin cited or doubted. Hidden entries, whose ids an agent
    may have guessed, are left out."""
    failed, _ = contrast(rollout)
    twin = () if rollout.twin is None else (*rollout.twin.used, *_doubts(rollout.twin))
    ids = dict.fromkeys((*failed.trace.used, *twin))
    return [entry for id in ids if (entry := context.get(id)) is not None and not entry.hidden]


def _notes(twin: Trace) -> str:
    lines = [f"consulted: {' '.join(f'[{id}]' for id in twin.used) or 'no rule'}"]
    lines += [f"doubted [{id}]: {why}" for id, why in _doubts(twin).items()]
    if missing := twin.data.get("missing"):
        lines.append(f"missing: {missing}")
    if twin.reasoning:
        lines.append(f"thought: {twin.reasoning}")
    return "\n".join(lines)


def _doubts(twin: Trace) -> Mapping[str, str]:
    """Entries in doubt, and why. An agent that returns a trace of its own may keep anything under this name."""
    said = twin.data.get("doubts")
    return said if isinstance(said, Mapping) else {}
