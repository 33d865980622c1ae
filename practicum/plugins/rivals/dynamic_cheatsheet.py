"""Dynamic Cheatsheet: one sheet of strategies, written anew as a whole for or after each task (Suzgun et al., 2025).

It has two forms: cumulative, and retrieval and synthesis, where the sheet is rewritten before each task from attempts
at similar tasks. docs/methods/dynamic_cheatsheet.md says what differs from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, full_view
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.examples import (
    CALENDAR,
    CLOSED,
    COAT,
    HINGE,
    MEETING,
    NOTICES,
    SHOP,
    WORKSHOP,
)
from practicum.blocks.sample.orders import batches
from practicum.core.types import Instructions, Turn
from practicum.engine.loop import Method
from practicum.methods.settings import Batched, RetrievalSettings
from practicum.plugins.rivals.cheatsheet import (
    Sheet,
    attempts_as_lessons,
    keep_attempts_and_sheet,
    rewrite_cheatsheet,
    synthesizing,
)


class Settings(Batched, RetrievalSettings):
    form: Literal["cumulative", "synthesis"] = "cumulative"
    """cumulative: rewrite the sheet after each step; synthesis: rewrite it before each task, from similar attempts."""
    k: int = Field(default=3, ge=1)
    """synthesis: the number of attempts that a sheet is written from."""

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> Mapping[str, str]:
        return {} if values.get("form") == "synthesis" else {"k": "needs form=synthesis"}


def method(s: Settings) -> Method:
    """Attempt with the sheet, then rewrite it; or rewrite it for the task, then attempt."""
    whole = s.form == "cumulative"
    act = answer(full_view) if whole else synthesizing(PREPARER, s.k)
    return Method(
        name="dynamic_cheatsheet",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(act),
        reflect=attempts_as_lessons,
        update=rewrite_cheatsheet(WRITER) if whole else keep_attempts_and_sheet,
        accept=always,
        roles=("curator",),
        act_roles=() if whole else ("curator",),
        act_calls=1 if whole else 2,
        costs="one call a step",
    )


CONTENTS = """\
The cheatsheet holds what will help with later tasks:
- strategies and ways to plan that worked, with the steps, and when to use them
- solutions, formulas and pieces of code that can be used again, written out in full
- facts about the field, the data and the tools that the agent would otherwise have to find out again
- mistakes that were made, how to notice them, and what to do instead

Judge for yourself what in an attempt is right, and how sure that is; check answers before you keep them. Keep with \
each point a count of how often it was of use, and raise it when it was of use again. Prefer what can be used for \
many tasks to what is about one. Leave out nothing that is still of use, and correct what has turned out wrong.

What is not in your new version is lost, so write the whole cheatsheet anew, with everything that is to be carried \
over at full length, in sections, and what matters most first."""

PRICE = "- What is left to pay: the price less the discount; 25% of 80 is 20, so 60 is left."
DATE = "- add_event: write the start as 2026-05-09T14:30; after an error correct it and call again."

WRITTEN = (
    Turn(
        f"{SHOP}\n\n# The cheatsheet so far\n(empty)\n\n# Attempt 1\n{COAT}\n"
        "Reasoning: 25% of 80 is 20, and 80 - 20 = 60.\nAnswer: 60\nFeedback: The answer is right.",
        Sheet(sheet=PRICE).model_dump_json(),
    ),
    Turn(
        f"{CALENDAR}\n\n# The cheatsheet so far\n- Say in one sentence what was done.\n\n# Attempt 1\n{MEETING}",
        Sheet(sheet=f"{DATE}\n- Say in one sentence what was done, once a call has succeeded.").model_dump_json(),
    ),
)
"""A first sheet, and the continuation of another one."""

PREPARED = (
    Turn(
        f"{NOTICES}\n\n# The cheatsheet so far\n- Name the day.\n\n# Attempt at a task like it\n{CLOSED}\n\n"
        "# The next task\nTell visitors that the pool opens at six from Monday on.",
        Sheet(sheet="- At most 12 words: no greeting, no reason, and count them.\n- Name the day.").model_dump_json(),
    ),
    Turn(
        f"{WORKSHOP}\n\n# The cheatsheet so far\n(empty)\n\n# Attempt at a task like it\n{HINGE}\n\n"
        "# The next task\na cleat for a sailing boat",
        Sheet(sheet="- In salt air and salt water: bronze. Steel rusts there.").model_dump_json(),
    ),
)
"""Sheets for the next task."""

SMALL = """\
You keep the cheatsheet of an agent: what helps it with the tasks to come. From the attempts you are shown keep \
strategies that work, solutions and facts that can be used again, and mistakes to avoid. Judge for yourself what in \
an attempt is right. Write the whole cheatsheet anew: what is not in your new version is lost, so carry over all that \
is still of use, make it shorter where you can, and put what matters most first."""

WRITER = Instructions(
    full=f"""\
You keep the cheatsheet of an agent, which reads it before each task. You see the cheatsheet so far and the newest \
attempts that were made with it. Bring it up to date.

{CONTENTS}""",
    small=SMALL,
    examples=WRITTEN,
)

PREPARER = Instructions(
    full=f"""\
You keep the cheatsheet of an agent, which reads it before each task. You see the cheatsheet so far, earlier attempts \
at tasks like the next one, and the next task. Bring the cheatsheet up to date from these attempts, and so that it \
helps with the next task as well as it can. Do not solve that task. The tasks after it will be prepared for from this \
cheatsheet too.

{CONTENTS}""",
    small=SMALL,
    examples=PREPARED,
)
