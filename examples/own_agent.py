"""A Python function as the agent, trained by ACE: any function (input, context) -> answer, async or not.

`answer` builds its own prompt and calls its own client. practicum passes the playbook as text; the reflector and the
curator use the same model. On the command line the same function is `--agent own_agent:answer`.

    python examples/own_agent.py [--model openai:gpt-4.1-mini]
"""

from functools import cache
from pathlib import Path

from model import Endpoint, chosen, endpoint
from openai import AsyncOpenAI

import practicum

TASKS = Path(__file__).with_name("tasks.jsonl")
PROMPT = "You send repairs to a bench: K2, K5, K7 or K9. Answer with the bench only."


@cache
def served() -> Endpoint:
    """Return the address of the agent's model, which is loaded at the first attempt."""
    return endpoint()


async def answer(input: str, context: str) -> dict[str, object]:
    """Attempt one task. A function may return a text, or a mapping that also has the entries used and the steps."""
    at = served()
    async with AsyncOpenAI(base_url=at.base_url, api_key=at.api_key) as client:
        reply = await client.chat.completions.create(
            model=at.name,
            messages=[{"role": "system", "content": f"{PROMPT}\n\n{context}"}, {"role": "user", "content": input}],
            temperature=0,
            max_tokens=16,
        )
    text = (reply.choices[0].message.content or "").strip()
    return {"answer": text, "steps": [{"kind": "prompt", "text": f"the playbook had {len(context)} characters"}]}


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(
        tasks[:8], test=tasks[8:], method="ace", model=model, parts=practicum.Parts(agent=answer)
    )
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
