"""The plain agent: one model call, with the context in its prompt.

The model answers in plain text, because JSON lowers the share of right answers. If the model also reports other parts,
each part begins with a label, and the answer comes last.

Order of the prompt: the run's instructions, the choices, how to use the playbook, the form of the answer, the
playbook's pages, solved tasks as turns, the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from practicum.agents.annotations import (
    PARTS,
    parts_grammar,
    parts_report,
    read_annotations,
    read_citations,
    read_parts,
)
from practicum.agents.base import AgentRun
from practicum.core.types import Instructions, Profile, Prompt, Task, Trace, Turn
from practicum.core.views import View
from practicum.tasks.scoring.rules import named_choices


@dataclass(frozen=True)
class ChatAgent:
    """Agent that answers with one model call. `choices`: the possible answers; an answer that names exactly one choice
    is replaced by this choice. `reasoning`: whether to ask for reasoning before the answer."""

    instructions: str = ""
    choices: tuple[str, ...] = ()
    reasoning: bool = False
    journaled: bool = field(default=False, init=False)
    moves: bool = field(default=False, init=False)
    max_turns: int = field(default=1, init=False)
    identity: str = field(default="chat", init=False)

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        asked = {"Used": view.citable, "Doubts": view.annotated, "Missing": view.annotated}
        asked |= {"Reasoning": self.reasoning, "Note": view.noting}
        labels = [label for label, requested in asked.items() if requested]
        turns, form = view.turns, ""
        if labels:
            labels.append("Answer")
            turns = tuple(Turn(turn.user, f"Answer: {turn.assistant}") for turn in turns)
            about = {**PARTS, "Reasoning": REASONING.text(run.profile)}
            form = FORM + "\n".join(f"{label}: <{about[label]}>" for label in labels)
        choosing = choosing_among(self.choices, view, run.profile)
        usage = ANNOTATED if view.annotated else USING if view.citable else ""
        prompt = first_prompt(task, view, turns, self.instructions, choosing, usage, form)
        # A capable model's reasoning and doubts may have several lines.
        grammar = "" if labels and run.profile == "full" else parts_grammar(labels, self.choices)
        text = await run.ask_text("agent", prompt, grammar)
        parts = read_parts(text, labels) if labels else {"Answer": text.strip()}
        report: Any = parts_report(parts)
        chosen = named_choices(self.choices, parts["Answer"])
        return Trace(
            answer=chosen[0] if len(chosen) == 1 else parts["Answer"],
            reasoning=parts.get("Reasoning", ""),
            data=read_annotations(report, view),
            **read_citations(report.used, view),
        )


def choosing_among(choices: Sequence[str], view: View, profile: Profile) -> str:
    """Return the instruction to choose among the choices. Without choices, the text is empty. It is also empty for a
    small model that sees solved tasks: the model would prefer choices from the list to the answers of these tasks."""
    return CHOOSING.format("; ".join(choices)) if choices and not (view.turns and profile == "small") else ""


def first_prompt(task: Task, view: View, turns: tuple[Turn, ...], *system: str) -> Prompt:
    """Return the prompt of an attempt's first call. `system`: parts of the instructions; empty parts are skipped. The
    earlier turns of the task's conversation come after `turns`."""
    user = f"{task.input}\n\n{view.note}" if view.note else task.input
    head = "\n\n".join(filter(None, (*system, task.system)))
    return Prompt(head, user, view.pages, (*turns, *task.history), fixed=view.fixed)


CHOOSING = "The answer is one of these, in the same words and nothing else: {}"

FORM = "Write these parts, in this order, each on a new line that begins with its label:\n\n"

REASONING = Instructions("your reasoning, in full", small="a short line of thought")

USING = """\
Below is your playbook, learned from earlier tasks: each entry as "[id] (section) text", its further lines indented. \
Before you answer, find the entries that apply to the task, and follow them."""

ANNOTATED = """\
Below is your playbook, learned from earlier tasks, one <entry> each. Work on the task as you always would, and say \
what you made of the playbook. First name the entries you consulted. Then name those you were not sure about, and why: \
unclear, does not quite fit, against another one. Say what guidance would have helped and is not there. Then answer."""
