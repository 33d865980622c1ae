"""ACE as one plain script: generator, reflector, curator, and a playbook that grows by small edits.

It uses the openai client and json, and practicum only to find the model. It is meant for reading: it does what `ace.py`
does through the library, without what a real run needs (resume, budgets, retries, parallel attempts, provenance,
de-duplication, pruning).

    python examples/ace_plain.py [--model openai:gpt-4.1-mini]
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

from model import endpoint
from openai import OpenAI

AT = endpoint()
BENCHES = ["K2", "K5", "K7", "K9"]
ROUNDS, EPOCHS = 1, 1

Playbook = dict[str, dict[str, Any]]
"""Rules by id: text, and how often each was helpful and harmful."""

GENERATOR = f"""You send repairs to a bench of the workshop. Benches: {", ".join(BENCHES)}.
Find the rules of the playbook that apply, list their ids in "used", and follow them.
# Playbook
"""
REFLECTOR = """You review one attempt of an agent that keeps a playbook of short rules. Say what went right or wrong,
write one rule for other tasks of this kind as "insight" (empty if there is nothing new), and tag each rule it used."""
CURATOR = """You maintain a playbook of short rules. Given new lessons, answer with a few edits: ADD what is new,
UPDATE a rule that should take a lesson in, DELETE a rule that a lesson proves wrong. Never repeat what is there.
# Playbook
"""

TEXT = {"type": "string", "maxLength": 400}
ID = {"type": "string", "maxLength": 8}


def shape(**properties: Any) -> dict[str, Any]:
    """A JSON schema of an object with all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def some(items: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema of a short list."""
    return {"type": "array", "items": items, "maxItems": 5}


ANSWER = shape(used=some(ID), answer={"enum": BENCHES})
TAG = shape(id=ID, verdict={"enum": ["helpful", "harmful", "neutral"]})
REFLECTION = shape(diagnosis=TEXT, insight=TEXT, tags=some(TAG))
EDITS = shape(edits=some(shape(op={"enum": ["ADD", "UPDATE", "DELETE"]}, id=ID, text=TEXT, reason=TEXT)))


def ask(client: OpenAI, system: str, user: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """One model call, which returns an object of this schema."""
    reply = client.chat.completions.create(
        model=AT.name,
        temperature=0,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
        response_format={"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}},
    )
    return dict(json.loads(reply.choices[0].message.content or "{}"))


def shown(playbook: Playbook) -> str:
    """The playbook as the models see it: without counters, so that it changes only if a rule does."""
    return "\n".join(f"[{id}] {rule['text']}" for id, rule in playbook.items()) or "(no rules yet)"


def attempt(client: OpenAI, task: dict[str, Any], playbook: Playbook, hint: str = "") -> dict[str, Any]:
    """Return the answer of the generator, and the rules that it used."""
    user = f"{task['input']}\n\n{hint}" if hint else task["input"]
    return ask(client, GENERATOR + shown(playbook), user, "answer", ANSWER)


def learn_from(client: OpenAI, task: dict[str, Any], playbook: Playbook) -> list[str]:
    """Attempt, reflect, and on a failure try again with the reflection. Returns the insights of all rounds."""
    tried = attempt(client, task, playbook)
    insights: list[str] = []
    for _ in range(ROUNDS):
        right = tried["answer"] == task["target"]
        verdict = "The answer is right." if right else f"The answer is wrong. The right answer is: {task['target']}"
        used = "\n".join(f"[{id}] {playbook[id]['text']}" for id in tried["used"] if id in playbook) or "none"
        case = f"Task: {task['input']}\nAnswer: {tried['answer']}\n{verdict}\n# Rules it used\n{used}"
        reflection = ask(client, REFLECTOR, case, "reflection", REFLECTION)
        for tag in reflection["tags"]:
            if tag["id"] in playbook and tag["verdict"] != "neutral":
                playbook[tag["id"]][tag["verdict"]] += 1
        if reflection["insight"].strip():
            insights.append(reflection["insight"].strip())
        if right or not insights:
            break
        tried = attempt(client, task, playbook, hint=insights[-1])
        if tried["answer"] == task["target"]:
            break
    return insights


def curate(client: OpenAI, insights: list[str], playbook: Playbook, born: int) -> int:
    """The curator writes edits; plain code applies them. Returns the number of rules ever made: ids are not reused."""
    lessons = "\n".join(f"- {insight}" for insight in insights)
    for edit in ask(client, CURATOR + shown(playbook), f"# New lessons\n{lessons}", "edits", EDITS)["edits"]:
        id, text = edit["id"].strip("[] "), edit["text"].strip()
        if edit["op"] == "ADD" and text:
            born += 1
            playbook[f"e{born}"] = {"text": text, "helpful": 0, "harmful": 0}
        elif edit["op"] == "UPDATE" and id in playbook and text:
            playbook[id]["text"] = text
        elif edit["op"] == "DELETE" and id in playbook:
            del playbook[id]
        else:
            print(f"refused: {edit}", file=sys.stderr)
    return born


def score(client: OpenAI, tasks: list[dict[str, Any]], playbook: Playbook) -> float:
    """The share of tasks with the right answer."""
    right = [attempt(client, task, playbook)["answer"] == task["target"] for task in tasks]
    return right.count(True) / len(tasks)


def main() -> None:
    client = OpenAI(base_url=AT.base_url, api_key=AT.api_key)
    lines = Path(__file__).with_name("tasks.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = [json.loads(line) for line in lines]
    train, test = tasks[:8], tasks[8:]
    playbook: Playbook = {}
    before, born = score(client, test, playbook), 0
    for epoch in range(EPOCHS):
        for task in random.Random(epoch).sample(train, len(train)):
            if insights := learn_from(client, task, playbook):
                born = curate(client, insights, playbook, born)
    for id, rule in playbook.items():
        print(f"- [{id}] {rule['text']} (+{rule['helpful']}/-{rule['harmful']})")
    print(f"before {before:.0%}, after {score(client, test, playbook):.0%} on {len(test)} tasks")


if __name__ == "__main__":
    main()
