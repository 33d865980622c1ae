"""Page of an attempt. If a network of agents made the attempt, the page shows the network and the rewards
of the agents' steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum.agents.team import AgentTeam
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.errors import PracticumError
from practicum.core.types import Attempt
from practicum.session.ask import Answered
from practicum.session.config import Config
from practicum.view.kit import render
from practicum.view.network import VERBS, MoveData, Picture, picture
from practicum.view.read import AttemptLine, AttemptStory, EntryShown, Story, in_order


@dataclass(frozen=True)
class NetworkStep:
    """Step of an agent in a network.

    `move`: the data of the step in the trace. `depth`: the number of divisions that led from the whole task to the
    agent's part of the task, at most 3 (0: the whole task). `experience`: the entry that the agent saw; None: the agent
    saw no entry. `reward`:
    the reward of the step; None: nothing was learned from the step."""

    move: MoveData
    depth: int
    experience: Entry | None
    reward: float | None


@dataclass(frozen=True)
class NetworkView:
    """Picture and steps of a network that worked on one task. `rounds`: the number of rounds of critique; None: this
    number is not recorded."""

    picture: Picture
    steps: Sequence[NetworkStep]
    rounds: int | None


def network_of(team: AgentTeam, attempt: AttemptStory, context: Context) -> NetworkView:
    """Return the view of a network with the steps of an attempt. `context`: the context that the attempt saw."""
    moves: Sequence[MoveData] = attempt.trace.data.get("moves", ())
    # A lesson of a network is the experience of one step. The id of the lesson ends with the index of the step.
    rewards = {
        lesson.id.rpartition("/")[2]: float(lesson.findings["reward"])
        for lesson in attempt.lessons
        if lesson.findings.get("trace") == attempt.line.place and "reward" in lesson.findings
    }
    steps = [
        NetworkStep(
            move,
            min(str(move["task"]).count(".") + 1, 3) if move["task"] else 0,
            context.get(str(move["experience"])),
            rewards.get(str(number)),
        )
        for number, move in enumerate(moves)
    ]
    return NetworkView(picture(team, moves), steps, attempt.trace.data.get("rounds"))


def team_of_run(config: Config) -> AgentTeam | None:
    """Return the network of agents of a run; None if the run has no network, or does not store the content of its
    topology file."""
    from pydantic import ValidationError

    from practicum.agents.team import SHAPES
    from practicum.methods.mael import Settings, team_of

    topology = config.settings.get("topology", "complete")
    # A run normally stores the content of its topology file. If the run only stores a path, do not read the file.
    if config.method != "mael" or (isinstance(topology, str) and topology not in SHAPES):
        return None
    try:
        return team_of(Settings.model_validate(config.settings), config.seed)
    except (PracticumError, ValidationError):
        return None


def attempt_values(story: Story, attempt: AttemptStory) -> dict[str, Any]:
    """Return the template values of the page of an attempt of a run."""
    team, network = team_of_run(story.config), None
    if team is not None and attempt.trace.data.get("moves"):
        version = attempt.version
        context = None if version is None else story.part("the versions", lambda: story.context(version))
        network = network_of(team, attempt, context or Context())
    return {"attempt": attempt, "network": network, "verbs": VERBS}


def answer_page(answered: Answered, team: AgentTeam | None, folder: Path) -> str:
    """Render a self-contained page of an answer.

    `team`: the network of agents that answered; None: no network. If the run in `folder` learned from the query, the
    page shows the attempt that the run stored."""
    frame = {"verbs": VERBS, "root": None, "here": "", "before": None, "after": None, "whole": False}
    with ExitStack() as stack:
        if answered.learned is None:
            attempt = _attempt(answered)
        else:
            attempt = stack.enter_context(Story.open(folder)).attempt(answered.attempt.place)
        network = None if team is None else network_of(team, attempt, answered.context)
        return render("attempt.html", attempt=attempt, network=network, **frame)


def _attempt(answered: Answered) -> AttemptStory:
    """Return the data of an attempt that is not stored in a run."""
    attempt, context = answered.attempt, answered.context
    members = in_order(attempt)
    lines = [_line(attempt, one, number, len(members)) for number, one in enumerate(members, 1)]
    shown = {match.entry.id: match.entry for match in answered.retrieved} | {entry.id: entry for entry in answered.used}
    return AttemptStory(
        line=lines[members.index(attempt)], task=attempt.task, version=context.version, calls=(),
        retrieved=tuple(_shown(shown, id, similarity) for id, similarity in attempt.retrieved),
        trace=attempt.trace, used=tuple(_shown(shown, id) for id in attempt.trace.used), score=attempt.score,
        feedback=attempt.feedback, judging=(), rounds=(), group=tuple(lines) if len(lines) > 1 else (),
        choice=attempt.choice, twin=attempt.twin, reused="", recorded=False, lessons=(), reflecting=(), updating=(),
        usage=answered.usage, seconds=answered.seconds,
    )  # fmt: skip


def _line(attempt: Attempt, one: Attempt, number: int, tries: int) -> AttemptLine:
    score = one.score
    return AttemptLine(
        id=f"attempt {number}" if tries > 1 else "answer", split="", step=None, version=None, task=one.task.id,
        input=one.task.text, answer=one.trace.answer, error=one.trace.error, lost=one.trace.lost,
        score=None if score is None else score.value, correct=None if score is None else score.correct,
        success=one.feedback.success, feedback=one.feedback.text, number=number, tries=tries,
        chosen=bool(attempt.choice) and one is attempt, reused=one.of, place=one.place,
    )  # fmt: skip


def _shown(entries: Mapping[str, Entry], id: str, similarity: float | None = None) -> EntryShown:
    entry = entries.get(id)
    return EntryShown(id, entry.section if entry else "", entry.text if entry else "", similarity)
