"""An agent of your own, trained by ACE: any function (input, context) -> answer, async or not.

`answer` below builds its own prompt and calls its own client. practicum hands it the playbook as text; the reflector
and the curator are asked through `model`. With the command line the same function is `--agent own_agent:answer`.

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
    """One attempt. A plain text would do; a mapping may also say which entries were used and what steps were taken."""
    prompt = f"You send repairs to a bench: K2, K5, K7 or K9. Answer with the bench only.\n\n{context}"
    async with AsyncOpenAI() as client:
        reply = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "system", "content": prompt}, {"role": "user", "content": input}],
            temperature=0,
        )
    said = (reply.choices[0].message.content or "").strip()
    return {"answer": said, "steps": [{"kind": "prompt", "text": f"{len(context)} characters of playbook were shown"}]}


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(
        tasks[:8], test=tasks[8:], method="ace", model=model, parts=practicum.Parts(agent=answer)
    )
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
