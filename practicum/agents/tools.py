"""An agent with tools: it thinks, acts and observes in turns, until it finishes or has used all turns.

The agent uses the loop of ReAct (Yao et al., 2023, section 2), with one model call per turn. Order of the prompt: the
run's instructions, the rules of work in turns, the tools, the playbook's pages, solved tasks as turns, the task, then
each action with its observation. So each prompt extends the previous prompt by one exchange, and a prefix cache only
computes the new part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from practicum.agents.annotations import ANNOTATING, CITING, NOTING, read_annotations, read_citations
from practicum.agents.base import AgentRun
from practicum.agents.chat import first_prompt
from practicum.agents.environment import FINISH, MAX_OBSERVATION, Environment, open_environment
from practicum.agents.guard import Approve, Guard, approved
from practicum.agents.limits import MAX_TURNS, TOOL_TIMEOUT, GuardTools
from practicum.core.bounded import MaxChars, Output
from practicum.core.errors import WindowError
from practicum.core.tool_texts import Tool
from practicum.core.types import Instructions, Profile, Step, Task, Trace, Turn
from practicum.core.views import View
from practicum.models.prompting import json_schema

MAX_TEXT = 1000
MAX_ITEMS = 20
"""Limits for small models on the arguments of a tool, if the tool's schema has no limits: characters of a text, and
items of a list. Under schema-constrained decoding, a small model fills an unlimited field until the answer is cut
off."""

MAX_ANSWER = 300
"""Maximum characters of a small model's answer. When its work is done, a small model repeats a sentence until this
limit, and copies such repetitions from the examples in its prompt."""


@dataclass(frozen=True)
class ToolsAgent:
    """Agent with the tools of `source` (see `agents.environment`). `name`: name of the source in messages.
    `tool_timeout`: timeout (s) of each tool call, and of opening and closing the environment; a function that times out
    keeps running. `max_observation`: maximum characters of an observation for small models. `guard_tools`: handling of
    calls with text that only untrusted entries contain (see `agents.guard`). `approve`: function that decides about
    such calls if `guard_tools` is `ask`; without this function, such calls are refused."""

    source: object
    name: str
    instructions: str = ""
    choices: tuple[str, ...] = ()
    max_turns: int = MAX_TURNS
    tool_timeout: float = TOOL_TIMEOUT
    max_observation: int = MAX_OBSERVATION
    guard_tools: GuardTools = "off"
    approve: Approve | None = None
    journaled: bool = field(default=True, init=False)
    moves: bool = field(default=True, init=False)

    @property
    def identity(self) -> str:
        """The agent's name in the journal."""
        return f"tools:{self.name} {self.max_turns} {guarded(self.guard_tools)}{self.instructions}"

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        # Limit an observation of a capable model to about a quarter of its window: the number of tokens in `room` is
        # used as the number of characters, and a token has about four characters.
        most = self.max_observation if run.profile == "small" else run.room("agent")
        arguments = (self.source, self.name, run.restored(task), self.tool_timeout, most)
        async with open_environment(*arguments) as environment:
            described = environment.described(view.tools) if view.tools else environment
            return await self._attempt(task, view, described, run)

    async def tools(self, task: Task) -> list[Tool]:
        """Return the definitions of the tools that the agent has for a task."""
        async with open_environment(self.source, self.name, task, self.tool_timeout, MAX_OBSERVATION) as environment:
            definitions = [tool.tool_def for tool in environment.tools.values()]
        return [Tool(d.name, d.description or "", d.parameters_json_schema) for d in definitions]

    async def _attempt(self, task: Task, view: View, environment: Environment, run: AgentRun) -> Trace:
        schemas = {name: tool.tool_def.parameters_json_schema for name, tool in environment.tools.items()}
        asked = (view.citable, view.annotated, view.noting)
        turn_form, schema, finish = _turn_forms(json.dumps(schemas), self.choices, asked, run.profile)
        thought = THOUGHT.text(run.profile)
        work = WORK.format(most=self.max_turns, tools=environment.manual, finish=FINISH, thought=thought)
        usage = ANNOTATED if view.annotated else USING if view.citable else ""
        turns = tuple(exchange for turn in view.turns for exchange in _exchanges(turn))
        prompt = first_prompt(task, view, turns, self.instructions, work, usage)
        guard = None
        if self.guard_tools != "off":
            guard = Guard(task.id, view.entries(), (task.text, self.instructions, environment.manual))
        steps: list[Step] = []
        used: list[str] = []
        error: str | None = f"no answer within {self.max_turns} turns"
        answer = ""
        data: dict[str, Any] = {"turns": 0, "tool_errors": 0}
        # A small model that reads a note about a failed attempt finishes at once and answers with the note. Prevent
        # that: withhold FINISH in the first turn.
        acts_first = view.note and schemas and self.max_turns > 1 and run.profile == "small"
        withheld = {FINISH} if acts_first else set[str]()
        for turn in range(1, self.max_turns + 1):
            at = run.at(f"turn {turn}")
            if 1 < turn == self.max_turns:
                withheld = {*schemas}  # only FINISH remains: an action in the last turn would leave no answer
            try:
                reply: Any = await at.ask("agent", prompt, turn_form, form=_without(schema, withheld))
            except WindowError as problem:
                if turn == 1:
                    raise
                error = f"the prompt outgrew the model's window in turn {turn}: {problem}"
                break
            data["turns"] = turn
            used += getattr(reply, "used", ())
            steps.append(Step("thought", reply.thought))
            [(name, arguments)] = reply.action.items()
            if name == FINISH:
                end: Any = finish.model_validate(arguments)
                answer, error = end.answer, None
                data |= read_annotations(end, view)
                break
            action = Step("action", f"{name} {json.dumps(arguments, ensure_ascii=False)}")
            call = guard.held(name, arguments) if guard else None
            approve = self.approve if self.guard_tools == "ask" else None
            if call is not None and not await at.once("approved", partial(approved, call, approve, run)):
                observation = REFUSED.format(", ".join(call.origins))
                data.setdefault("refused", []).append(
                    {"turn": turn, "tool": name, "copied": [*call.copied], "entries": call.origins}
                )
            else:
                act = partial(environment.act, name, at.restored(arguments))
                observation, failed = await at.observe("observation", act)
                data["tool_errors"] += failed
                if guard:
                    guard.add_result(observation)
            exchange = Turn(prompt.user, reply.model_dump_json())
            again = action in steps
            # A small model repeats a call despite AGAIN, so withhold the tool in the next turn.
            withheld = {name} if again and run.profile == "small" else set()
            user = _observed(observation, LAST if turn + 1 == self.max_turns else AGAIN if again else NEXT)
            prompt = replace(prompt, user=user, turns=(*prompt.turns, exchange), grows=True)
            steps += [action, Step("observation", observation)]
        data["state"] = await environment.state()
        return Trace(answer, steps=tuple(steps), error=error, data=data, **read_citations(used, view))


def _exchanges(turn: Turn) -> Iterator[Turn]:
    """Convert a solved task to exchanges in the form of this agent's turns: each call with its result, and the final
    answer."""
    user, reply = turn.user, dict[str, Any]()
    for step in turn.steps:
        if step.kind == "observation" and "action" in reply:
            yield Turn(user, _as_json(reply))
            user, reply = _observed(step.text, NEXT), {}
        elif step.kind == "thought":
            reply = {"thought": step.text}
        elif step.kind == "action":
            name, _, arguments = step.text.partition(" ")
            # Calls in another agent's trace may have another form.
            with suppress(json.JSONDecodeError):
                reply = {"thought": "", **reply, "action": {name: json.loads(arguments)}}
    yield Turn(user, _as_json({"thought": "", **reply, "action": {FINISH: {"answer": turn.assistant}}}))


def _as_json(reply: dict[str, Any]) -> str:
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


def _observed(observation: str, then: str) -> str:
    return f"Observation: {observation}\n\n{then}"


def guarded(guard_tools: GuardTools) -> str:
    """Return the part of an agent's name in the journal that describes the guard."""
    return "" if guard_tools == "off" else f"guard:{guard_tools} "


@lru_cache(maxsize=256)
def _turn_forms(
    tools: str, choices: tuple[str, ...], asked: tuple[bool, bool, bool], profile: Profile
) -> tuple[type[Output], dict[str, Any], type[Output]]:
    """Return the form of a turn, the JSON schema of a turn, and the form of the arguments of FINISH. `tools`: JSON
    object with the schema of each tool's arguments. The schema of a turn contains these schemas unchanged, except for
    changes for small models. `asked`: whether the agent cites entries, annotates entries, and makes notes."""
    citing, annotated, noting = asked
    ending: dict[str, Any] = {**(ANNOTATING if annotated else {}), **(NOTING if noting else {})}
    text = Annotated[str, MaxChars(MAX_ANSWER)] if profile == "small" else str
    ending["answer"] = (Literal[choices] if choices else text, ...)
    finish = create_model(FINISH, __base__=Output, **ending)
    schemas = {**json.loads(tools), FINISH: json_schema(finish, profile)}

    def check(action: dict[str, Any]) -> dict[str, Any]:
        if len(action) != 1:
            raise ValueError(f"one action a turn, as {{tool: arguments}}, with tool one of {', '.join(schemas)}")
        if FINISH in action:
            finish.model_validate(action[FINISH])
        return action

    # Ask for the used entries before the thought and the action that depend on them. The schema requires the list of
    # used entries; the form also accepts a reply without the list.
    fields: dict[str, Any] = {"used": (CITING["used"][0], Field(default=[], description=CITED))} if citing else {}
    fields["thought"] = (Annotated[str, MaxChars(240)], Field(description=THOUGHT.text(profile)))
    fields["action"] = (Annotated[dict[str, Any], AfterValidator(check)], ...)
    form = create_model("turn", __base__=Output, **fields)
    schema = json_schema(form, profile)
    suited = _for_small_models if profile == "small" else dict
    action = {"anyOf": [_branch(name, suited(arguments)) for name, arguments in schemas.items()]}
    return form, {**schema, "properties": {**schema["properties"], "action": action}}, finish


def _without(schema: dict[str, Any], tools: set[str]) -> dict[str, Any]:
    """Return the schema of a turn in which these tools cannot be called."""
    fields = schema["properties"]
    branches = [branch for branch in fields["action"]["anyOf"] if not tools & branch["properties"].keys()]
    return {**schema, "properties": {**fields, "action": {"anyOf": branches}}}


def _branch(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `{name: arguments}`. A schema of arguments that refers to itself cannot be inlined, and is
    replaced by a schema that accepts every object."""
    from pydantic_ai.profiles import InlineDefsJsonSchemaTransformer

    arguments = InlineDefsJsonSchemaTransformer(schema).walk()
    if "$ref" in json.dumps(arguments):
        arguments = {"type": "object"}
    return {
        "type": "object",
        "properties": {name: arguments},
        "required": [name],
        "additionalProperties": False,
    }


def _for_small_models(schema: Any) -> Any:
    """Return a schema with limits for each unlimited text and list. Optional arguments that may be null become
    required, because a small model omits all optional arguments."""
    if isinstance(schema, list):
        return [_for_small_models(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    added: dict[str, Any] = {}
    if schema.get("type") == "string" and not schema.keys() & {"enum", "const", "pattern", "format", "maxLength"}:
        added = {"maxLength": MAX_TEXT}
    if schema.get("type") == "array" and "maxItems" not in schema:
        added = {"maxItems": MAX_ITEMS}
    if schema.get("type") == "object" and "properties" in schema:
        demanded = schema.get("required", ())
        parts = schema["properties"].items()
        added = {"required": [name for name, part in parts if name in demanded or _may_be_null(part)]}
    return {key: _for_small_models(part) for key, part in schema.items()} | added


def _may_be_null(schema: dict[str, Any]) -> bool:
    """Return whether null is a valid value of an argument and means the same as omitting the argument."""
    return {"type": "null"} in schema.get("anyOf", ()) and schema.get("default", "") is None


CITED = "ids of the entries that this turn rests on, best first; empty if none"

THOUGHT = Instructions("what to do next, and why", small="what to do next, and why, in a sentence")

WORK = """\
You work in turns, at most {most}, and in the last one you can only finish. In each turn think, then act: give one \
tool with its arguments, as {{"thought": <{thought}>, "action": {{<tool>: <arguments>}}}}. You are then shown what it \
did. If it failed, mend what was wrong. When all that the task asks is done, and nothing that it does not ask, the \
action is {{"{finish}": {{"answer": <the answer, or what you did>}}}}.

The tools:

{tools}"""

NEXT = "If that was all the task asks, finish now, without checking it again. Else take the next step."
AGAIN = "You did exactly this before, so it brings nothing new. Finish now if the task is done, or do something else."
"""Texts after an observation. Without such a text, small models repeat or check their work until they have used all
turns."""
LAST = "One turn is left: finish now, with what you have."

REFUSED = (
    "refused: this call was not made. What it would carry stands in notes of strangers alone ({}), and nothing of the "
    "task asks for it. Go on with the task without it."
)

USING = """\
Below is your playbook, learned from earlier tasks: each entry as "[id] (section) text", its further lines indented. \
Before you act, find the entries that apply to the task, and follow them in all you do. In any turn, list in "used" \
the ids of the entries that it rests on, also of those that you notice only later."""

ANNOTATED = """\
Below is your playbook, learned from earlier tasks, one <entry> each. Work on the task as you always would, and say \
what you made of the playbook. In any turn, list in "used" the ids of the entries that you consulted for it. When you \
finish, name in "doubts" entries you were not sure about, and why: unclear, does not quite fit, against another one. \
In "missing" say what guidance would have helped and is not there."""
