"""An agent of your own, trained by ACE: any function (input, context) -> answer, async or not.

`answer` builds its own prompt and calls its own client. practicum passes it the playbook as text; the reflector and the
curator use `model`. On the command line the same function is `--agent own_agent:answer`.

    python examples/own_agent.py                        # gpt-4.1-mini, needs OPENAI_API_KEY
    OPENAI_BASE_URL=http://localhost:8000/v1 python examples/own_agent.py http://localhost:8000/v1#my-model
"""

import os
import sys
from pathlib import Path

from openai import AsyncOpenAI

import practicum

TASKS = Path(__file__).with_name("tasks.jsonl")
NAME = os.environ.get("AGENT_MODEL", "gpt-4.1-mini")


async def answer(input: str, context: str) -> dict[str, object]:
    """One attempt. It may return a text, or a mapping that also holds the entries used and the steps taken."""
    prompt = f"You send repairs to a bench: K2, K5, K7 or K9. Answer with the bench only.\n\n{context}"
    async with AsyncOpenAI() as client:
        reply = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "system", "content": prompt}, {"role": "user", "content": input}],
            temperature=0,
        )
    text = (reply.choices[0].message.content or "").strip()
    return {"answer": text, "steps": [{"kind": "prompt", "text": f"{len(context)} characters of playbook were shown"}]}


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(
        tasks[:8], test=tasks[8:], method="ace", model=model, parts=practicum.Parts(agent=answer)
    )
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
