"""A LangGraph agent, trained by ACE: the playbook is its first system message.

    python examples/frameworks/with_langgraph.py [--model openai:gpt-4.1-mini]

It needs `pip install langchain langchain-openai`.
"""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

import practicum
from practicum.agents import frameworks

sys.path.append(str(Path(__file__).parents[1]))
from model import chosen, endpoint

at = endpoint()
chat = ChatOpenAI(model=at.name, base_url=at.base_url, api_key=at.api_key, temperature=0, max_tokens=16)
graph = create_agent(chat, system_prompt="You send repairs to a bench: K2, K5, K7 or K9. Answer with it only.")
agent = frameworks.langchain(graph)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
