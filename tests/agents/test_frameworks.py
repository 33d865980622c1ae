"""Agents of other frameworks: their input, their answer and steps, and their failures.

The function, the program, the endpoint and pydantic-ai are tested everywhere; the others if they are installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from attempts import RULES, TASK, Place, act
from helpers import asynchronous, make_tasks
from needs import needs
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from refusals import refused

import practicum
from practicum.agents import frameworks
from practicum.agents.external import FunctionAgent
from practicum.core.types import Step, Task
from practicum.core.views import View, render_annotated, render_full
from practicum.testing import ServerOptions, serve

Reply = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


def adapted(respond: Reply, **how: Any) -> FunctionAgent:
    how = {"name": "router", "instructions": "Route it.", **how}
    return FunctionAgent(frameworks.pydantic_ai(Agent(FunctionModel(respond), **how)))


def text(answer: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(answer)])


class Routed(BaseModel):
    answer: int
    used: list[str]
    doubts: list[dict[str, str]] = []
    steps: int = 3


class Home(BaseModel):
    town: str


def test_an_output_type_may_have_more_fields_than_the_answer() -> None:
    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (tool,) = info.output_tools
        value = {"answer": 4, "used": ["e0", "e7"], "doubts": [{"id": "e1", "why": "unclear"}], "town": "Bern"}
        fields = tool.parameters_json_schema["properties"]
        return ModelResponse(parts=[ToolCallPart(tool.name, {name: value[name] for name in fields if name in value})])

    trace = act(adapted(respond, output_type=Routed), view=render_annotated(RULES))
    assert (trace.answer, trace.used, trace.unknown) == ("4", ("e0",), 1)
    assert trace.data["doubts"] == {"e1": "unclear"}
    assert json.loads(act(adapted(respond, output_type=Home)).answer) == {"town": "Bern"}


def test_a_provider_that_fails_loses_the_attempt_and_one_journaled_effect_is_an_attempt(tmp_path: Any) -> None:
    calls: list[str] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = str(cast(Any, messages[0].parts[-1]).content)
        calls.append(asked)
        if "Message 2" in asked:
            raise ModelHTTPError(503, "m")
        return text(asked.split()[-1])

    with refused("provider.failed"):
        act(adapted(respond), Task("t2", "Message 2"))
    calls.clear()
    parts, how = practicum.Parts(agent=adapted(respond).fn), {"method": "episodes", "settings": {"batch": 4}}
    work = practicum.learn(make_tasks(4), test=make_tasks(1, 4), out=tmp_path / "run", parts=parts, **how)
    result = practicum.run_sync(work)
    assert result.errors["lost_attempts"] == 1
    assert (result.usage.calls, result.cut_short) == (0, True)
    resumed = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert (len(resumed.context), resumed.scores["test"]) == (3, 1.0)
    assert len(calls) == 4 + 1 + 1  # the lost attempt is repeated


@asynchronous
async def test_an_endpoint_that_fails_loses_the_attempt_and_an_invalid_name_is_refused() -> None:
    async with serve(ServerOptions(responder=lambda body: "word1", behaviours=[("404", 1)])) as server:
        with refused("provider.failed"):
            await FunctionAgent(frameworks.endpoint(f"{server.url}#mine"))(TASK, View(), Place())
    for name in ("http://localhost:1/v1", "localhost:1/v1#a"):
        with refused("model.invalid_name"):
            frameworks.endpoint(name)


@pytest.mark.slow
def test_a_langgraph_graph_gets_the_context_in_its_first_system_message() -> None:
    needs("langgraph", "all-tests")
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph

    def think(state: Any) -> dict[str, Any]:
        call = {"name": "look", "args": {"where": "here"}, "id": "c1"}
        return {"messages": [AIMessage("By [e1].", tool_calls=[call]), ToolMessage("seen", tool_call_id="c1")]}

    def reply(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("\n".join(f"{m.type}: {m.text}" for m in state["messages"][:2]))]}

    graph = StateGraph(MessagesState).add_sequence([think, reply]).add_edge(START, "think").compile(name="router")
    agent = FunctionAgent(frameworks.langchain(graph))
    trace = act(agent, view=render_full(RULES))
    assert trace.answer.startswith("system: ")
    assert "[e0] (rules)" in trace.answer
    assert trace.answer.endswith(f"human: {TASK.input}")
    assert {*trace.used} == {"e0", "e1"}
    look = Step("action", 'look {"where": "here"}')
    assert trace.steps == (Step("thought", "By [e1]."), look, Step("observation", "seen"))
    assert act(agent, view=View()).answer == f"human: {TASK.input}\nai: By [e1]."


@pytest.mark.slow
def test_an_openai_agent_gets_the_context_after_its_own_instructions() -> None:
    needs("agents", "all-tests")
    from agents import Agent as OpenAIAgent
    from agents import Model, ModelResponse, RunConfig, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
            out: Any = ResponseFunctionToolCall(
                arguments='{"where": "[e1]"}', call_id="c1", name="look", type="function_call"
            )
            if len(input) > 1:
                text = ResponseOutputText(annotations=[], text=str(system_instructions), type="output_text")
                how: dict[str, Any] = {"role": "assistant", "status": "completed", "type": "message"}
                out = ResponseOutputMessage(id="m", content=[text], **how)
            return ModelResponse(output=[out], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    @function_tool
    def look(where: str) -> str:
        """Look somewhere."""
        return "seen"

    router = OpenAIAgent(name="router", instructions="Route it.", model=Scripted(), tools=[look])
    agent = FunctionAgent(frameworks.openai_agents(router, run_config=RunConfig(tracing_disabled=True)))
    trace = act(agent, view=render_full(RULES))
    assert trace.answer.index("Route it.") < trace.answer.index("[e0] (rules) Say the")
    assert trace.steps == (Step("action", 'look {"where": "[e1]"}'), Step("observation", "seen"))
    assert "e1" in trace.used
    assert act(agent, view=View()).answer == "Route it."
    assert router.instructions == "Route it."
