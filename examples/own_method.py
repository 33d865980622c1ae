"""A method of your own: after each failure a model writes one rule, and the rule is kept.

    python examples/own_method.py [--model openai:gpt-4.1-mini]

docs/extend/method.md says what each seam receives and returns.
"""

from pathlib import Path

from model import chosen
from pydantic import BaseModel

import practicum
from practicum import Add, Count, Delta, Lesson, Method, Prompt
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.sample import shuffled_epochs
from practicum.methods.blocks.show import answer, full_view


class Rule(BaseModel):
    rule: str


async def reflect(attempts, context, run):
    lessons = []
    for attempt in (one for one in attempts if one.feedback.success is False):
        prompt = Prompt("Write one rule that prevents this failure.", f"{attempt.task.input}\n{attempt.feedback.text}")
        place = run.at(attempt.task.id, about=attempt.sources)
        answer = await place.try_ask("reflector", prompt, Rule, Count.LOST_REFLECTIONS)
        if answer is not None:
            lessons.append(Lesson(f"{attempt.place}/rule", answer.rule, sources=attempt.sources))
    return lessons


async def update(lessons, context, run):
    return Delta(tuple(Add("rules", one.text, sources=one.sources, lessons=(one.id,)) for one in lessons))


act = answer(full_view)
rules = Method(
    name="rules", show=full_view, sample=shuffled_epochs(epochs=1, batch=4), act=act, attempt=once(act),
    reflect=reflect, update=update, accept=always, roles=("reflector",),
)  # fmt: skip

if __name__ == "__main__":
    tasks = practicum.load_tasks(Path(__file__).with_name("tasks.jsonl"))
    result = practicum.run_sync(practicum.learn(tasks[:8], test=tasks[8:], method=rules, model=chosen()))
    print(practicum.export(result.context, "markdown"))
    print(f"score {result.scores['test']:.0%}")
