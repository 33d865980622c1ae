"""A playbook of one's own: its sections and code blocks are kept, shown to the models, and added to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers import client, make_tasks

import practicum
from practicum.core.playbook import export, load
from practicum.models.scripted import Call
from practicum.session.records import read_run
from practicum.store.database import Store

OWN = """\
# Playbook

## Interfaces

- [e0]
  The list of items comes in pages:

  ```python
  # each page
  while page := items(n):
      n += 1
  ```

## Tone

- [e1] Be brief.
"""

LEARNED = "Sort before you cut:\n\n1. Take all pages.\n2. Then:\n\n   ```python\n   best = sorted(all)[:3]\n   ```"

SAID: dict[str, Any] = {
    "reasoning": "It cut first.", "diagnosis": "It cut before it sorted.", "cause": "No entry says it.",
    "correction": "Sort, then cut.", "tags": [],
    "insights": [{"section": "interface", "text": LEARNED}, {"section": "weather", "text": "Ask what to sort by."}],
}  # fmt: skip


def respond(call: Call) -> str:
    if call.role == "reflector":
        return json.dumps(SAID)
    if call.role == "curator":
        return json.dumps({"changes": [{"op": "ADD", "insights": [1]}, {"op": "ADD", "insights": [2]}]})
    return "no idea" if call.schema is None else json.dumps({"used": [], "answer": "no idea"})


def learned(tmp_path: Path, **config: Any) -> tuple[practicum.Result, list[Call]]:
    (tmp_path / "own.md").write_text(OWN, encoding="utf-8")
    model = client(respond)
    run = practicum.learn(
        make_tasks(1), out=tmp_path / "run", method="ace", seed_context=load(tmp_path / "own.md"), profile="full",
        settings={"rounds": 0}, parts=practicum.Parts(clients={"agent": model}), **config,
    )  # fmt: skip
    return practicum.run_sync(run), model.calls


def test_what_is_learned_goes_to_the_sections_of_the_playbook_that_it_starts_from(tmp_path: Path) -> None:
    result, calls = learned(tmp_path)
    lines = "\n".join(f"  {line}" if line else "" for line in LEARNED.split("\n"))
    more = f"- [e2]\n{lines}\n- [e3] Ask what to sort by.\n"
    assert export(result.context, "markdown") == OWN.replace("\n## Tone", f"{more}\n## Tone")
    assert result.errors["unknown_sections"] == 1
    asked = {call.role: call.text for call in calls}
    for role in ("reflector", "curator"):
        assert "- Interfaces\n- Tone\n- strategies: how to go about" in asked[role]
    assert "[e0] (Interfaces)\n  The list of items comes in pages:\n\n  ```python\n  # each page\n" in asked["agent"]


def test_sections_that_are_given_take_the_place_of_all_others_and_are_stored(tmp_path: Path) -> None:
    result, calls = learned(tmp_path, sections=["ways", "interfaces: what is called how"])
    assert [entry.section for entry in result.context] == ["Interfaces", "Tone", "interfaces", "ways"]
    assert "- ways\n- interfaces: what is called how\n\n" in next(c.text for c in calls if c.role == "curator")
    with Store.read(tmp_path / "run") as store:
        assert read_run(store)[0].sections == {"ways": "", "interfaces": "what is called how"}
