"""An agent with tools: it thinks, acts and observes in turns, until it finishes or has no turn left.

The loop is that of ReAct (Yao et al., 2023, section 2), one model call a turn. Prompt order: the run's instructions,
how to work, the tools, the playbook's pages, earlier turns, the task, then each action with its observation. So each
prompt is the one before plus one exchange, and a prefix cache computes only that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, create_model

from practicum.agents.annotations import ANNOTATING, CITING, NOTING, read_annotations, read_citations
from practicum.agents.base import AgentRun
from practicum.agents.chat import first_prompt
from practicum.agents.environment import FINISH, MAX_OBSERVATION, Environment, open_environment
from practicum.core.bounded import MaxChars, Output
from practicum.core.errors import WindowError
from practicum.core.types import Prompt, Step, Task, Trace, Turn
from practicum.core.views import View

MAX_TURNS = 12
TOOL_TIMEOUT = 20.0

MAX_TEXT = 1000
MAX_ITEMS = 20
"""Bounds on a tool's arguments, if its own schema has none: the characters of a text, the items of a list. A small
model that is held to a schema fills an unbounded field until it is cut off."""


@dataclass(frozen=True)
class ToolsAgent:
    """Acts with the tools of `source` (see `agents.environment`), which `name` stands for in messages. `tool_timeout`
    is in seconds, for each call of a tool and for opening and closing the environment; a function that hangs is left
    running. `max_observation` is in characters."""

    source: object
    name: str
    instructions: str = ""
    choices: tuple[str, ...] = ()
    max_turns: int = MAX_TURNS
    tool_timeout: float = TOOL_TIMEOUT
    max_observation: int = MAX_OBSERVATION
    journaled: bool = field(default=True, init=False)

    @property
    def identity(self) -> str:
        """The agent's name in the journal."""
        return f"tools:{self.name} {self.max_turns} {self.instructions}"

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        how = (self.source, self.name, task, self.tool_timeout, self.max_observation)
        async with open_environment(*how) as environment:
            return await self._attempt(task, view, environment, run)

    async def _attempt(self, task: Task, view: View, environment: Environment, run: AgentRun) -> Trace:
        schemas = {name: tool.tool_def.parameters_json_schema for name, tool in environment.tools.items()}
        first, later, finish = _turn_forms(json.dumps(schemas), self.choices, view.annotated, view.noting)
        work = WORK.format(most=self.max_turns, tools=environment.manual, finish=FINISH)
        # Earlier turns are shown in the form of this agent's last turn.
        ends = [{"thought": "", "action": {FINISH: {"answer": turn.assistant}}} for turn in view.turns]
        answers = [json.dumps(end, ensure_ascii=False, separators=(",", ":")) for end in ends]
        turns = tuple(Turn(turn.user, answer) for turn, answer in zip(view.turns, answers, strict=True))
        prompt = first_prompt(task, view, turns, self.instructions, work, USING if view.citable else "")
        steps: list[Step] = []
        used: Sequence[str] = ()
        error: str | None = f"no answer within {self.max_turns} turns"
        answer = ""
        data: dict[str, Any] = {"turns": 0, "tool_errors": 0}
        for turn in range(1, self.max_turns + 1):
            at = run.at(f"turn {turn}")
            try:
                reply: Any = await at.ask("agent", prompt, first if view.citable and turn == 1 else later)
            except WindowError as problem:
                if turn == 1:
                    raise
                error = f"the prompt outgrew the model's window in turn {turn}: {problem}"
                break
            data["turns"] = turn
            used = used or getattr(reply, "used", ())
            steps.append(Step("thought", reply.thought))
            [(name, arguments)] = reply.action.items()
            if name == FINISH:
                end: Any = finish.model_validate(arguments)
                answer, error = end.answer, None
                data |= read_annotations(end, view)
                break
            action = Step("action", f"{name} {json.dumps(arguments, ensure_ascii=False)}")
            observation, failed = await at.observe("observation", partial(environment.act, name, arguments))
            data["tool_errors"] += failed
            exchange = Turn(prompt.user, reply.model_dump_json())
            user = f"Observation: {observation}\n\n{AGAIN if action in steps else NEXT}"
            prompt = Prompt(prompt.system, user, prompt.pages, (*prompt.turns, exchange))
            steps += [action, Step("observation", observation)]
        data["state"] = await environment.state()
        return Trace(answer, steps=tuple(steps), error=error, data=data, **read_citations(used, view))


@lru_cache(maxsize=256)
def _turn_forms(tools: str, choices: tuple[str, ...], annotated: bool, noting: bool) -> tuple[type[Output], ...]:
    """The forms of the first turn, of the later turns, and of the end. In the first turn the agent names the entries it
    uses before it uses them. `tools` is a JSON object: the schemas of their arguments by name."""
    ending: dict[str, Any] = {**(ANNOTATING if annotated else {}), **(NOTING if noting else {})}
    ending["answer"] = (Literal[choices] if choices else Annotated[str, MaxChars(MAX_TEXT)], ...)
    finish = create_model(FINISH, __base__=Output, **ending)
    schemas = {**json.loads(tools), FINISH: finish.model_json_schema()}

    def check(action: dict[str, Any]) -> dict[str, Any]:
        if len(action) != 1:
            raise ValueError(f"one action a turn, as {{tool: arguments}}, with tool one of {', '.join(schemas)}")
        if FINISH in action:
            finish.model_validate(action[FINISH])
        return action

    shape = WithJsonSchema({"anyOf": [_branch(name, schema) for name, schema in schemas.items()]})
    fields: dict[str, Any] = {
        "thought": (Annotated[str, MaxChars(240)], Field(description="what to do next, and why, in a sentence")),
        "action": (Annotated[dict[str, Any], AfterValidator(check), shape], ...),
    }
    first = create_model("turn", __base__=Output, **CITING, **fields)
    return first, create_model("turn", __base__=Output, **fields), finish


def _branch(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `{name: arguments}`. A schema that refers to itself cannot be inlined: any object fits then."""
    from pydantic_ai.profiles import InlineDefsJsonSchemaTransformer

    arguments = InlineDefsJsonSchemaTransformer(schema).walk()
    if "$ref" in json.dumps(arguments):
        arguments = {"type": "object"}
    return {
        "type": "object",
        "properties": {name: _bounded(arguments)},
        "required": [name],
        "additionalProperties": False,
    }


def _bounded(schema: Any) -> Any:
    """The schema with a bound on each text and list that has none."""
    if isinstance(schema, list):
        return [_bounded(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    bounds: dict[str, Any] = {}
    if schema.get("type") == "string" and not schema.keys() & {"enum", "const", "pattern", "format", "maxLength"}:
        bounds = {"maxLength": MAX_TEXT}
    if schema.get("type") == "array" and "maxItems" not in schema:
        bounds = {"maxItems": MAX_ITEMS}
    return {key: _bounded(part) for key, part in schema.items()} | bounds


WORK = """\
You work in turns, at most {most}. In each turn think in one sentence, then act: give one tool with its arguments, as \
{{"thought": <a sentence>, "action": {{<tool>: <arguments>}}}}. You are then shown what it did. If it failed, mend \
what was wrong. When all that the task asks is done, and nothing that it does not ask, the action is \
{{"{finish}": {{"answer": <the answer, or what you did>}}}}.

The tools:

{tools}"""

NEXT = "If that was all the task asks, finish now, without checking it again. Else take the next step."
AGAIN = "You did exactly this before, so it brings nothing new. Finish now if the task is done, or do something else."
"""Shown after each observation: small models else repeat or check what they did until no turn is left."""

USING = """\
Below is your playbook, learned from earlier tasks: one entry a line, "[id] (section) text". In your first turn find \
the entries that apply to the task and list their ids in "used" (none if none applies). Follow them in all you do."""
