"""Self-contrast: what several attempts at one task show side by side that none shows alone (ReasoningBank; METHODS,
section 4).

What the successful attempts share is likely to be a way to do it. What separates them from the failed ones is likely to
be the reason. What made no difference must not be learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.examples import CALENDAR, CLOSED, COAT, HINGE, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.core.bounded import MaxChars, MaxItems, Output, clean
from practicum.core.counts import Count
from practicum.core.types import Instructions, Rollout, Turn
from practicum.core.views import behind
from practicum.engine.run import Run

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
        """The three lists as JSON values."""
        return self.model_dump(include={"holds", "separates", "spurious"})


async def contrasted(tries: Sequence[Rollout], run: Run) -> Contrast | None:
    """Contrast all attempts at a task, except lost ones, in one call. Returns None, without a call, if fewer than two
    gave an answer, and None if the call failed, which is counted."""
    if sum(r.trace.error is None for r in tries) < 2:
        return None
    outcomes = {True: "went well", False: "failed", None: "outcome unknown"}
    made = [(n, r) for n, r in enumerate(tries, 1) if not r.trace.lost]
    parts = [f"# Attempt {n}: {outcomes[r.feedback.success]}\n{evidence(r)}" for n, r in made]
    prompt = SELF_CONTRAST.prompt(run.profile, [*run.agent_instructions, *parts])
    return await run.try_ask("reflector", prompt, Contrast, Count.LOST_CONTRASTS)


def in_words(findings: Mapping[str, Sequence[str]]) -> str:
    """Findings as text for a model; empty if there are none."""
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
