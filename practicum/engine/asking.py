"""Structured output of models: parse the output, and ask again with the validation error if the output does not fit the
schema.

Parsing needs no journal and no budget, so an attempt on another machine parses outputs on the machine of the attempt
(`practicum.plugins.ray`).
"""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from practicum.core.bounded import Output, read_short, short_form
from practicum.core.errors import OutputError
from practicum.core.thoughts import SILENCES
from practicum.core.types import Profile, Prompt
from practicum.models.client import JSON, Reply
from practicum.models.objects import read_object
from practicum.models.prompting import describe_validation_error, json_schema, repair_prompt

M = TypeVar("M", bound=BaseModel)

REPAIRS = 2
"""Maximum number of times that a model is asked again because its output does not fit the schema."""


class Replies(Protocol):
    """Source of a model's replies: a `Run`, or an attempt on another machine that asks through a `Run`."""

    @property
    def profile(self) -> Profile: ...

    async def reply(
        self, role: str, prompt: Prompt, form: JSON, *, again: int = 0, temperature: float | None = None,
        output_tokens: int = 0,
    ) -> Reply: ...  # fmt: skip

    async def mended(self, role: str) -> None: ...

    async def give_up(self, role: str, problem: str, advice: str) -> OutputError: ...


async def ask_for(
    run: Replies,
    role: str,
    prompt: Prompt,
    schema: type[M],
    form: JSON | None = None,
    *,
    temperature: float | None = None,
    output_tokens: int = 0,
) -> M:
    """Ask a model for an object of this schema; ask again, up to twice, if the output does not fit the schema. Raises
    OutputError if no output fits the schema."""
    requested_form = json_schema(schema, run.profile) if form is None else form
    small = run.profile == "small" and issubclass(schema, Output)
    asked: type[BaseModel] = short_form(schema) if small else schema
    for again in range(REPAIRS + 1):
        reply = await run.reply(
            role, prompt, requested_form, again=again, temperature=temperature, output_tokens=output_tokens
        )  # fmt: skip
        try:
            value, mended = read_object(asked, reply.text, reply.cut)
        except ValidationError as error:
            problem = describe_validation_error(error, reply.cut)
            prompt = repair_prompt(prompt, reply.text, problem)
        else:
            if mended:
                await run.mended(role)
            return cast(M, value if asked is schema else read_short(cast(type[Output], schema), value))
    if reply.silence is not None:
        raise await run.give_up(role, f"the answer {SILENCES[reply.silence]}", "")
    advice = "raise `max_output_tokens`" if reply.cut else "try `structure=tool` or `structure=prompted`"
    raise await run.give_up(role, problem, f"; {advice}, or take another model")
