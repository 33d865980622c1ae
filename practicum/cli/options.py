"""Options that several commands have, each said once.

A command gives the type and the default: `seed: opt.Seed[int] = 0` where nothing was said before,
`seed: opt.Seed[int | None] = None` where a run has said it.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from typer import Option

T = TypeVar("T")

# ---- the agent and its models

Role = Annotated[T, Option(help="A model for one role, as role=MODEL (agent, reflector, curator, judge).")]
Agent = Annotated[T, Option(help="chat, tools:module:name, appworld:URL, command:PROGRAM or module:function.")]
MaxTurns = Annotated[T, Option(min=1, help="tools, appworld: most turns of an attempt, one model call each.")]
ToolTimeout = Annotated[T, Option(help="tools, appworld: seconds a tool may take.")]
Instructions = Annotated[T, Option(help="What the agent is told beside the task: a text, or @FILE.")]
Choices = Annotated[T, Option(help="The possible answers, as a,b,c; or auto, to take them from the targets.")]
Reasoning = Annotated[T, Option("--reasoning", help="The agent writes a line of thought before its answer.")]
ReasoningOrNot = Annotated[T, Option("--reasoning/--no-reasoning", help="A line of thought before the answer.")]
Temperature = Annotated[T, Option(min=0.0, help="Of every role.")]
MaxOutputTokens = Annotated[T, Option(min=1, help="Most tokens a call may write.")]
Timeout = Annotated[T, Option(help="Seconds a call may take.")]
Retries = Annotated[T, Option(min=0, help="Times a call the provider failed is tried again.")]
Structure = Annotated[T, Option(help="How JSON is asked for: native, tool or prompted.")]
Window = Annotated[T, Option(help="Tokens a model reads (else local: 8192, in benches 16384; others: as known).")]
Embedder = Annotated[T, Option(help="wordllama, or one of pydantic-ai, such as openai:text-embedding-3-small.")]
Concurrency = Annotated[T, Option(min=1, help="Calls in flight at one endpoint.")]

# ---- tasks and scores

Fields = Annotated[T, Option(help="Names in the file, as input=context,target=label.")]
Scorer = Annotated[T, Option(help="exact, numeric, tests ... (docs/tasks.md names them), or module:function.")]
NoLabels = Annotated[T, Option("--no-labels", help="Learning sees neither targets nor scores.")]
Judge = Annotated[T, Option("--judge", help="With --no-labels: a judge's verdict is the feedback.")]

# ---- the method

Set = Annotated[T, Option("--set", help="A setting of the method, as name=value.")]
Scaling = Annotated[T, Option(help="reasoning_bank, unified: attempts at each task: parallel, sequential, none.")]
K = Annotated[T, Option(min=1, help="scaling: attempts, or passes after the first one.")]
Preset = Annotated[T, Option(help="reasoning_bank, unified: for tasks that are routine, standard or critical.")]
ValidateEvery = Annotated[T, Option(min=1, help="Steps between validations.")]
Seed = Annotated[T, Option(help="Of every random choice.")]

# ---- limits and output

MaxCalls = Annotated[T, Option(min=1, help="Stop before more answered model calls than this.")]
MaxTokens = Annotated[T, Option(min=1, help="Stop before more tokens than this.")]
MaxUsd = Annotated[T, Option(help="Stop before it costs more than this.")]
Json = Annotated[T, Option("--json", help="Print one JSON object on standard output.")]
