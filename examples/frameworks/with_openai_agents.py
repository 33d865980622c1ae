"""An agent of the OpenAI Agents SDK, trained by ACE: the playbook is added to its instructions.

It needs `pip install openai-agents`.

    python examples/frameworks/with_openai_agents.py  # needs OPENAI_API_KEY
    cd examples/frameworks && practicum learn ../tasks.jsonl --agent with_openai_agents:agent --model openai:gpt-4.1
"""

import os
import sys
from pathlib import Path

from agents import Agent, ModelSettings, set_default_openai_api, set_tracing_disabled

import practicum
from practicum.agents import frameworks

set_default_openai_api("chat_completions")
set_tracing_disabled(True)


bench = Agent(
    name="bench",
    instructions="You send repairs to a bench: K2, K5, K7 or K9. Answer with it only.",
    model=os.environ.get("AGENT_MODEL", "gpt-4.1-mini"),
    model_settings=ModelSettings(temperature=0, max_tokens=64),
)
agent = frameworks.openai_agents(bench)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
