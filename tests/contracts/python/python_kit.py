"""A small world in which everything that practicum promises at its Python face can be seen.

Message n has the right answer `word<n>`, and the agent answers right exactly if its prompt has that word. So a score
says what the agent was shown, and nothing but learning raises it. `model` plays all roles, each by a rule; a rule
returns the fields it cares for, and `fitted` gives them the form that the call asks for.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import practicum
from practicum import ScriptedClient, Task

Rule = Callable[[Any], Any]
"""Takes a call (`role`, `prompt`, `schema`, `options`, `text`); returns a text, fields by name, or an exception."""


def message(n: int, **meta: Any) -> Task:
    """Message n."""
    return Task(f"t{n}", f"Message {n}: which word?", f"word{n}", meta)


def messages(*numbers: int) -> list[Task]:
    return [message(n) for n in numbers]


def again(*numbers: int) -> list[Task]:
    """The same messages in other words: tasks that are not those learned from."""
    return [Task(f"again{n}", f"Message {n}, once more: which word?", word(n)) for n in numbers]


LEARNED = messages(0, 1, 2)
TEST = messages(0, 1, 9)
"""Two messages that can be learned, and one that cannot."""


def number(call: Any) -> int:
    """The message that a call is about: the last one that its text names."""
    return int(re.findall(r"[Mm]essage (\d+)", call.prompt.user)[-1])


def word(n: int) -> str:
    return f"word{n}"


def lesson(n: int) -> str:
    """What there is to learn from message n."""
    return f"If it is message {n}, answer word{n}."


def asks(call: Any, field: str) -> bool:
    """Whether a call asks for a form that has this field."""
    return call.schema is not None and field in json.dumps(call.schema)


def word_alone(n: int) -> str:
    """Another word for each number, with nothing in it that code guards: no digit and no name."""
    return "".join("bdfghklmnp"[int(digit)] + "aeiou"[int(digit) % 5] for digit in str(n))


def insights_offered(call: Any) -> list[tuple[int, str]]:
    """The insights that a curator is to decide about, by their numbers."""
    found = re.findall(r"^Insight (\d+)(?: \([^)]*\))?: (.*)$", call.prompt.user, re.MULTILINE)
    return [(int(n), text) for n, text in found]


# ---- the rules of the roles


def agent(call: Any) -> Any:
    """Right if the prompt has the word; cites the entry that has it."""
    known, n = call.text, number(call)
    cited = re.findall(rf"^\[(e\d+)\][^\n]*\b{word(n)}\b", call.prompt.head, re.MULTILINE)
    return {"answer": word(n) if re.search(rf"\b{word(n)}\b", known) else "unsure", "used": cited, **ALONE}


def knowing(call: Any) -> Any:
    """An agent that is always right."""
    return {"answer": word(number(call)), **ALONE}


def ignorant(call: Any) -> Any:
    """An agent that is always wrong."""
    return {"answer": "unsure", **ALONE}


def citing(*ids: str, answer: str = "unsure") -> Rule:
    """An agent that cites these entries whatever it is asked."""
    return lambda call: {"answer": answer, "used": list(ids), **ALONE}


def remembering(mark: str) -> Rule:
    """An agent that is right where its prompt has the mark."""
    return lambda call: (knowing if mark in call.text else ignorant)(call)


def varying(call: Any) -> Any:
    """An agent that is right in the further attempts at a task, which have a temperature."""
    return (knowing if call.options.temperature else agent)(call)


OTHER = "*"
"""The name of what a rule says in every text, and list of texts, that it does not name."""

ALONE = {"alone": True, "reason": "it is short", "adequate": True}
"""What an agent of a network says in between."""


def reflector(call: Any) -> Any:
    """Learns the right answer where the feedback tells it."""
    told = re.findall(r"\bword(\d+)\b", call.prompt.user)
    return reflecting(*[lesson(int(n)) for n in told[-1:]], instruction=lessons_in(call.text))


def reflecting(*insights: str, tags: Mapping[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """What a reflector says that has these insights, in every form in which it may be asked."""
    return {
        "insights": [{"section": "", "text": text} for text in insights], "insight": "".join(insights[:1]),
        "items": [{"title": "A message", "description": "It asks for a word.", "content": text} for text in insights],
        "bullets": [*insights], "feedback": [*insights], "attribution": "actionable_gap", "best": 1,
        "tags": [{"id": id, "verdict": verdict} for id, verdict in (tags or {}).items()],
        OTHER: " ".join(insights) or "It was read.", **fields,
    }  # fmt: skip


def lessons_in(text: str) -> str:
    """All that a text tells of right answers, as one text."""
    return " ".join(lesson(int(n)) for n in sorted(set(re.findall(r"\bword(\d+)\b", text)))) or "Answer with a word."


def curator(call: Any) -> Any:
    """Makes an entry of each insight, word for word."""
    offered = [int(n) for n in re.findall(r"^Insight (\d+)", call.prompt.user, re.MULTILINE)]
    found = re.findall(r"If it is message \d+, answer word\d+\.", call.prompt.user)
    return {"changes": [add(n) for n in offered], "points": [*dict.fromkeys(found)], OTHER: lessons_in(call.text)}


def judge(call: Any) -> Any:
    return {"right": "unsure" not in call.prompt.user, "reason": "So it is.", "points": 8}


def nothing(call: Any) -> Any:
    return {}


def add(*insights: int, text: str = "", section: str = "") -> dict[str, Any]:
    """A decision of the curator: an entry that rests on these insights."""
    return {"op": "ADD", "insights": [*insights], "ids": [], "section": section, "text": text, "reason": "It is new."}


def change(
    op: str, *ids: str, insights: Sequence[int] = (1,), text: str = "", reason: str = "So it is."
) -> dict[str, Any]:
    """A decision of the curator about entries that there are."""
    return {"op": op, "insights": [*insights], "ids": [*ids], "section": "", "text": text, "reason": reason}


def deciding(*decisions: Mapping[str, Any]) -> Rule:
    """A curator that decides the same whatever it reads."""
    return lambda call: {"changes": [*decisions]}


RULES: dict[str, Rule] = {
    "agent": agent, "reflector": reflector, "curator": curator, "state": nothing, "judge": judge,
}  # fmt: skip


def model(**rules: Rule) -> ScriptedClient:
    """A model that plays every role; `rules` replace those of some roles. It keeps its `calls`."""
    roles = {**RULES, **rules}

    def respond(call: Any) -> str | Exception:
        said = roles[call.role](call)
        return said if isinstance(said, str | Exception) else fitted(said, call)

    return ScriptedClient(respond)


def fitted(said: Mapping[str, Any], call: Any) -> str:
    """The fields in the form that a call asks for: JSON with every field of the schema, or labelled lines of text."""
    if call.schema is not None:
        return json.dumps(_filled(call.schema, call.schema.get("$defs", {}), said))
    labels = re.findall(r"^(\w+): <", call.prompt.system, re.MULTILINE)
    lines = [f"{label}: {_text(said.get(label.lower()))}" for label in labels]
    return "\n".join(lines) or str(said["answer"])


def _filled(schema: Mapping[str, Any], known: Mapping[str, Any], said: Any = None) -> Any:
    """A value of a schema: what was said where it was, else the plainest value there is."""
    if "$ref" in schema:
        return _filled(known[schema["$ref"].rpartition("/")[2]], known, said)
    if "properties" in schema:
        given = said if isinstance(said, Mapping) else {}
        fields = schema["properties"]
        return {name: _filled(inner, known, given.get(name, _other(inner, given))) for name, inner in fields.items()}
    if said is not None and schema.get("type") == "array":
        return [_filled(schema.get("items", {}), known, each) for each in said]
    if said is not None:
        return said
    if "enum" in schema:
        return schema["enum"][0]
    plain = {"string": "", "array": [], "boolean": True, "integer": 1, "number": 1, "null": None}
    return plain[schema.get("type", "null")]


def _other(schema: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """What is said in a field that no rule names: a text, or a list of it."""
    if schema.get("type") == "array":
        text = _other(schema.get("items", {}), given)
        return None if text is None else [text]
    return given.get(OTHER) if schema.get("type") == "string" and "enum" not in schema else None


def _text(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, list) else str(value or "none")


def down(call: Any = None) -> practicum.ProviderError:
    """The failure of a provider that does not answer; also the rule of a role that nobody answers."""
    return practicum.ProviderError("provider.failed", "nobody answers")


# ---- a run


@contextmanager
def refused(*codes: str) -> Iterator[Any]:
    """A block that ends with an error of this code, or of one of these, in one line."""
    with pytest.raises(practicum.PracticumError) as raised:
        yield raised
    assert raised.value.code in codes, raised.value
    assert len(str(raised.value).splitlines()) == 1


@dataclass
class Seen(practicum.Watch):
    """A run and all that was seen of it."""

    folder: Path
    model: ScriptedClient
    result: Any = None
    steps: list[Any] = field(default_factory=list)
    scores: list[Any] = field(default_factory=list)
    budget: Any = None

    def began(self, run: Any) -> None:
        self.budget = run.budget

    def stepped(self, report: Any, progress: Any) -> None:
        self.steps.append(report)

    @property
    def roles(self) -> dict[str, int]:
        """How many calls each role got."""
        return dict(Counter(call.role for call in self.model.calls))

    def calls(self, role: str) -> list[Any]:
        return [call for call in self.model.calls if call.role == role]

    @property
    def texts(self) -> list[str]:
        return [entry.text for entry in self.result.context if not entry.hidden]

    @property
    def sections(self) -> dict[str, int]:
        """How many entries each section has, hidden ones too."""
        return dict(Counter(entry.section for entry in self.result.context))

    def entry(self, text: str) -> Any:
        """The one entry that has this text."""
        (found,) = [entry for entry in self.result.context if text in entry.text]
        return found

    @property
    def exported(self) -> str:
        """The final context without loss: what two runs are compared by."""
        return practicum.export(self.result.context, "json")


def learned(
    folder: Path, tasks: Iterable[Task] = LEARNED, played: ScriptedClient | None = None, method: Any = "ace",
    settings: Mapping[str, Any] | None = None, parts: Mapping[str, Any] | None = None, **how: Any,
) -> Seen:  # fmt: skip
    """One run in `folder`/run."""
    seen = Seen(folder / "run", played or model())
    work = practicum.learn(
        tasks, method=method, settings=settings or {}, out=seen.folder, watch=seen,
        parts=practicum.Parts(clients={"agent": seen.model}, **(parts or {})), **how,
    )  # fmt: skip
    seen.result = practicum.run_sync(work)
    return seen


def resumed(
    folder: Path, played: ScriptedClient | None = None, parts: Mapping[str, Any] | None = None, **how: Any
) -> Seen:
    """The run in a folder, continued."""
    seen = Seen(folder, played or model())
    made = practicum.Parts(clients={"agent": seen.model}, **(parts or {}))
    seen.result = practicum.run_sync(practicum.resume(folder, parts=made, watch=seen, **how))
    return seen


def playbook(folder: Path, *entries: str | Mapping[str, Any]) -> practicum.Context:
    """A playbook that somebody wrote: the entries e0, e1, … in the section `rules`, as texts or as fields."""
    values = [{"section": "rules", **({"text": entry} if isinstance(entry, str) else entry)} for entry in entries]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "playbook.json"
    path.write_text(json.dumps({"entries": values}), encoding="utf-8")
    return practicum.load(path)


async def reported(
    space: Any, shown: Any, *, answer: str = "unsure", score: Any = None, target: str | None = None,
    comment: str | None = None, user: str | None = None,
) -> None:  # fmt: skip
    """Report an outcome: what was answered, its score, the right answer, and words on what was wrong."""
    await space.report(shown, answer=answer, score=score, target=target, comment=comment, user=user)


def chats(folder: Path, *numbers: int, answer: str = "unsure") -> Path:
    """Conversations of somebody else's agent about these messages, as a file."""
    lines = [
        {"messages": [{"role": "user", "content": message(n).input}, {"role": "assistant", "content": answer}]}
        for n in numbers
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def opened(seen: Seen, played: ScriptedClient | None = None, **how: Any) -> Any:
    """The run of `seen`, open for use in a program."""
    return practicum.open(seen.folder, parts=practicum.Parts(clients={"agent": played or model()}), **how)
