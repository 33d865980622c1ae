"""A plug-in with a method, a scorer and a command. `pip install examples/plugin` registers all three:

practicum learn examples/tasks.jsonl --method keep_failures --scorer same_words --model NAME --out runs/plugin
practicum count-entries runs/plugin
"""

import practicum
from practicum import Add, Delta, Lesson, Method
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.sample import shuffled_epochs
from practicum.methods.blocks.show import answer, full_view


class Settings(practicum.MethodSettings):
    """Settings of the method: only the settings that every method has."""


async def reflect(attempts, context, run):
    failed = (r for r in attempts if r.feedback.success is False)
    return [Lesson(r.place, f"{r.task.input} -> {r.feedback.text}", sources=r.sources) for r in failed]


async def update(lessons, context, run):
    return Delta(tuple(Add("failures", x.text, sources=x.sources, lessons=(x.id,)) for x in lessons))


def method(settings):
    """Keep the feedback on each failure, without asking a model."""
    act = answer(full_view)
    return Method(
        name="keep_failures", show=full_view, sample=shuffled_epochs(epochs=1, batch=4), act=act,
        attempt=once(act), reflect=reflect, update=update, accept=always,
    )  # fmt: skip


def same_words(task, answer):
    """Whether an answer has the words of its target, in any order."""
    return sorted(answer.lower().split()) == sorted(task.target.lower().split())


def count_entries(run: str):
    """Print the number of entries that a run has learned."""
    print(len(practicum.open(run).context))
