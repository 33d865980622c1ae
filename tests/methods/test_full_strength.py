"""What capable models write reaches the playbook word for word, as long as it is, through every method with a reflector
and by every kind of server; and what one role says in full, the next one reads in full (ACE, section 2.2 and figure 3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from scripts import number, right

import practicum
from practicum.core.playbook import export, load
from practicum.models.scripted import Call, ScriptedClient
from practicum.testing import ServerOptions, fill, serve

STEPS = """\
Share a bill among people who were there for different nights:
1. Count person-nights, not people: someone who stays three nights counts three times.
2. Divide the bill by the person-nights.
3. Multiply by each person's nights, and round at the very end, so that the shares add up.

Check: the sum of all shares is the bill, to the cent."""

CODE = """\
`list_payments(page_index, page_size)` gives one page (20 entries at most), newest first. To see all:

```python
def all_payments(api):
    page, found = 0, []
    while batch := api.list_payments(page_index=page, page_size=20):
        found += batch
        page += 1
    return found
```

The amounts are strings such as "12.50": convert them with Decimal, never with float."""

WRITTEN = [{"section": "strategies", "text": STEPS}, {"section": "code", "text": CODE}]
FINDINGS = {
    "reasoning": "It called list_payments once and took the first page for everything.\nThe second page had 4 entries.",
    "diagnosis": "It shared the bill by people.", "cause": "It never asked how many pages there are.",
    "correction": "Read all pages, then share by nights.",
}  # fmt: skip


def insights_read(call: Call) -> list[int]:
    return [int(n) for n in re.findall(r"^Insight (\d+)", call.prompt.user, re.MULTILINE)]


def by_the_papers(call: Call) -> str:
    """Every role of every method: writes entries of the kind that the papers show."""
    if call.role == "agent" and call.schema is None:
        return right(call) if number(call) % 2 else "wrong"
    assert call.schema is not None
    value = fill(call.schema, len(call.text))
    match call.schema["title"]:
        case "Reflection":
            value |= {**FINDINGS, "tags": [], "insights": WRITTEN}
        case "SelfReflection":
            value["reflection"] = f"{STEPS}\n\n{CODE}"
        case "Attribution":
            value["attribution"] = "actionable_gap"
        case "RootCause":
            value["tags"] = []
        case "CoverageGap":
            value["insights"] = WRITTEN
        case "Changes" | "Mutations":
            value["changes"] = [{"op": "ADD", "insights": [n], "reason": "new"} for n in insights_read(call)]
        case "Summary":
            value["points"] = [STEPS, CODE]
        case "Memories":
            value["items"] = [{"title": x["section"], "description": "", "content": x["text"]} for x in WRITTEN]
        case "Operations":
            value["operations"] = [{"op": "ADD", "id": "", "text": x["text"]} for x in WRITTEN]
        case "State":
            value["assessment"] = []
        case _ if "answer" in value:
            value["answer"] = "wrong"
    return json.dumps(value)


def texts(context: practicum.Context) -> str:
    return "\n\n\n".join(entry.text for entry in context)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ace", {"rounds": 0}), ("ace", {"rounds": 0, "curator": "append"}), ("ace", {"rounds": 1}),
        ("ace", {"rounds": 0, "refine": "critique"}), ("ace", {"batch": 4, "reflection": "per_trace", "state": True}),
        ("combee", {"rounds": 0, "batch": 6}), ("combee", {"rounds": 0, "batch": 6, "exact": True}),
        ("combee", {"rounds": 0, "batch": 6, "asynchronous": True}),
        ("naive", {"rounds": 0}), ("top_k", {"rounds": 0}), ("summarized", {"rounds": 0}),
        ("rcl", {}), ("rcl", {"heads": False}), ("reasoning_bank", {}), ("unified", {"scaling": "none"}),
        ("expel", {}), ("reflexion", {}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.slow
def test_entries_as_the_papers_show_them_are_kept_word_for_word(
    tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    parts = practicum.Parts(clients={"agent": ScriptedClient(by_the_papers)})
    work = practicum.learn(make_tasks(6), out=tmp_path / "run", method=method, settings=settings, parts=parts)
    result = practicum.run_sync(work)
    found = texts(result.context)
    assert STEPS in found
    assert CODE in found
    # The playbook on paper is the playbook.
    (tmp_path / "playbook.md").write_text(export(result.context, "markdown"))
    again = texts(load(tmp_path / "playbook.md"))
    assert STEPS in again
    assert CODE in again


def strict(answer: str) -> str:
    return answer


def loose(answer: str) -> str:
    return f"Here is what I found.\n\n```json\n{json.dumps(json.loads(answer), indent=2)}\n```\nI hope that it helps."


@pytest.mark.parametrize("profile", ["full", "small"])
@pytest.mark.parametrize(
    ("structure", "written"), [("native", strict), ("native", loose), ("prompted", loose), ("tool", strict)],
    ids=["strict", "schema ignored", "prompted", "tool calls"],
)  # fmt: skip
@pytest.mark.slow
def test_every_kind_of_server_carries_them(
    tmp_path: Path, structure: str, written: Callable[[str], str], profile: str
) -> None:
    """A small form has one insight and no section; a server that enforces nothing may still send all of this."""

    def respond(body: dict[str, Any]) -> str | None:
        prompt = str(body["messages"][-1]["content"])
        told = "\n".join(str(message["content"]) for message in body["messages"])
        if "You maintain the playbook" in told:
            return written(json.dumps(_curated(prompt)))
        if "# The attempt" in prompt:
            short = {"kind": "bills", "correction": CODE, "insight": STEPS, "diagnosis": STEPS, "tags": []}
            return written(json.dumps({**FINDINGS, **short, "insights": WRITTEN}))
        return "wrong"

    async def work() -> practicum.Result:
        async with serve(ServerOptions(responder=respond)) as server:
            settings = {"rounds": 0, "curator": "edits", "rules_shown": True}
            return await practicum.learn(
                make_tasks(1), out=tmp_path / "run", model=f"{server.url}#sim", structure=structure, profile=profile,
                settings=settings,
            )  # fmt: skip

    result = practicum.run_sync(work())
    assert "repaired_outputs" not in result.errors
    found = [entry.text for entry in result.context]
    assert found == ([STEPS, CODE] if profile == "full" else [STEPS])


def _curated(prompt: str) -> dict[str, Any]:
    """Adds everything, in the form of either profile."""
    numbers = [int(n) for n in re.findall(r"^(?:Insight|Lesson) (\d+)", prompt, re.MULTILINE)]
    return {
        "changes": [{"op": "ADD", "insights": [n]} for n in numbers],
        "decisions": [{"op": "ADD", "lesson": n} for n in numbers],
    }
