"""What a capable curator reads of reflections, and what becomes of its changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import client
from runs import indoors
from scripts import learned, scripted, wrong

import practicum
from practicum.blocks.update.curator import Curator, rewrite
from practicum.core.context import Context, initial_context, seed_context
from practicum.core.edits import Add, Delete, Delta, Resolution
from practicum.core.types import Instructions, Lesson
from practicum.core.views import indented
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient

TOLD = Instructions("Curate.")
STEPS = "When a report is due:\n1. fetch the rows page by page\n2. stop at the first empty page"
CODE = (
    "Sum amounts as integers:\n\ndef total(rows):\n    # cents, never floats\n    return sum(r['cents'] for r in rows)"
)
INSIGHTS = [{"section": "strategies", "text": STEPS}, {"section": "code", "text": CODE}]


def reflection(id: str, *insights: tuple[str, str], votes: Any = None, **said: str) -> list[Lesson]:
    """The lessons of one reflection: its insights, each with its section."""
    data = {**said, "verdicts": votes or {}}
    first, *more = insights or (("", ""),)
    made = Lesson(id, first[1], votes=votes or {}, sources=(f"task:{id}",), data=data, section=first[0])
    others = [replace(made, id=f"{id}.{n}", text=x[1], section=x[0], votes={}, of=id) for n, x in enumerate(more, 2)]
    return [made, *others]


def changing(*changes: dict[str, Any]) -> ScriptedClient:
    return client(lambda call: json.dumps({"changes": changes}))


def curated(
    model: ScriptedClient, lessons: Sequence[Lesson], context: Context | None = None, **how: Any
) -> tuple[Delta, Context, Run]:
    run, context = indoors(model, profile="full"), context or Context()
    delta = asyncio.run(Curator(TOLD, **how)(lessons, context, run))
    return delta, context.apply(delta).context, run


def entries(context: Context) -> list[tuple[str, str]]:
    return [(entry.section, entry.text) for entry in context]


# ---- what it reads


@pytest.mark.parametrize("method", ["ace", "rcl", "combee", "top_k"])
def test_insights_of_several_lines_become_entries_of_their_sections_word_for_word(tmp_path: Path, method: str) -> None:
    run = learned(
        tmp_path, scripted(wrong, lambda call: {"insights": INSIGHTS}), 1, {"rounds": 0, "batch": 1}, method,
    )  # fmt: skip
    kept = [{"section": e.section, "text": e.text} for e in run.result.context if not e.hidden]
    assert kept == INSIGHTS
    markdown = practicum.export(run.result.context, "markdown")
    for line in (*STEPS.splitlines(), *CODE.splitlines()):
        assert re.search(rf"^ *(- )?{re.escape(line)}$", markdown, re.MULTILINE), line


@pytest.mark.parametrize("merges", [True, False], ids=["curator", "mutator"])
def test_everything_that_a_reflection_says_is_read_with_the_record_of_the_entries(merges: bool) -> None:
    said = {
        "reasoning": "First it looked.\nThen it guessed.", "diagnosis": "a guess", "cause": "no page was read",
        "correction": "read\nall pages", "attribution": "actionable_gap", "evidence": "no rule is about pages",
        "gap": "nothing says when to stop", "feedback": "The answer is wrong.",
    }  # fmt: skip
    context = initial_context([Add("strategies", "Guess.", helpful=2, harmful=1), Add("checks", "Look twice.")])
    model = changing({"op": "COVERED", "insights": [1, 2], "ids": ["e1"]})
    lessons = reflection("r", ("strategies", STEPS), ("code", CODE), votes={"e0": "harmful"}, **said)
    curated(model, lessons, context, merges=merges)
    (call,) = model.calls
    assert call.prompt.head.startswith("Curate.\n\n# The sections of the playbook\n- strategies: how to go about")
    assert call.prompt.pages == ("[e0] (strategies) Guess.\n[e1] (checks) Look twice.",)
    assert call.prompt.user == (
        "# What entries did so far\n- [e0] helped 2, harmed 2\n\n"
        "# Reflection 1\n"
        "Feedback on the attempt: The answer is wrong.\n"
        "Analysis:\n  First it looked.\n  Then it guessed.\n"
        "Evidence: no rule is about pages\n"
        "Attribution: actionable_gap\n"
        "Diagnosis: a guess\n"
        "Root cause: no page was read\n"
        "Correct approach:\n  read\n  all pages\n"
        "Gap in the playbook: nothing says when to stop\n"
        "Entries used: [e0] harmful\n"
        f"Insight 1 (strategies):\n{indented(STEPS)}\n"
        f"Insight 2 (code):\n{indented(CODE)}"
    )


def test_the_form_bounds_nothing() -> None:
    model = changing({"op": "ADD", "insights": [1]})
    curated(model, reflection("r", ("code", CODE)))
    (call,) = model.calls
    assert call.schema is not None
    assert not {"pattern", "maxLength", "maxItems"} & set(re.findall(r'"(\w+)":', json.dumps(call.schema)))
    assert call.prompt.turns == ()


def test_copies_of_a_lesson_still_say_which_entries_were_used() -> None:
    """Combee's copies have no votes, which would count again."""
    model = changing({"op": "ADD", "insights": [1]})
    lessons = reflection("r", ("checks", "Look twice."), votes={"e0": "harmful"})
    copies = [replace(lesson, votes={}) for lesson in lessons]
    _, after, _ = curated(model, copies, seed_context([("strategies", "Guess.")]))
    assert "Entries used: [e0] harmful\n" in model.calls[0].prompt.user
    assert [entry.harmful for entry in after] == [0, 0]


def test_a_reflection_without_insights_is_read_beside_others_and_alone_needs_no_call() -> None:
    silent = reflection("r0", diagnosis="it read the playbook too fast", votes={"e0": "helpful"})
    model = changing({"op": "ADD", "insights": [1]})
    rule = seed_context([("strategies", "Guess.")])
    _, after, _ = curated(model, silent, rule)
    assert model.calls == []
    assert [(entry.text, entry.helpful) for entry in after] == [("Guess.", 1)]
    _, after, _ = curated(model, [*silent, *reflection("r1", ("checks", "Look twice."))], rule)
    (call,) = model.calls
    assert "# Reflection 1\nDiagnosis: it read the playbook too fast\n" in call.prompt.user
    assert call.prompt.user.endswith("# Reflection 2\nInsight 1 (checks): Look twice.")
    assert entries(after)[1:] == [("checks", "Look twice.")]


def test_a_playbook_above_the_window_is_read_in_part_the_entries_in_question_first() -> None:
    filler = [f"If number {n} is asked for, look into drawer {n} of the old cabinet." * 4 for n in range(200)]
    near = "If pages are fetched, stop at the first empty page."
    context = seed_context([*(("strategies", text) for text in filler), ("strategies", near)])
    model = client(lambda call: json.dumps({"changes": [{"op": "ADD", "insights": [1]}]}), window=8192)
    lessons = reflection("r", ("strategies", f"{near} Always."), votes={"e77": "harmful"})
    _, after, run = curated(model, lessons, context)
    (call,) = model.calls
    shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
    assert call.prompt.pages[0] == "(of 201 entries, those used or nearest to this)"
    assert {"e77", "e200"} < set(shown)
    assert len(shown) < 100
    assert run.counts["shortened_playbooks"] == 1
    assert "shortened_prompts" not in run.counts
    assert len(after) == 202


# ---- what becomes of its changes


def test_three_reflections_that_are_read_in_full_become_one_entry() -> None:
    lessons = [
        x for n in range(3)
        for x in reflection(f"r{n}", ("pitfalls", f"The list has pages.\nPage {n} was overlooked."), cause=f"cause {n}")
    ]  # fmt: skip

    def merging(call: Call) -> str:
        found = re.findall(
            r"^Root cause: (cause \d)\nInsight \d \(pitfalls\):\n  (.*)\n  (.*)$", call.prompt.user, re.MULTILINE
        )
        text = "\n".join(["Lists have pages:", *(f"{one}\n{two} ({cause})" for cause, one, two in found)])
        return json.dumps({"changes": [{"op": "ADD", "insights": [1, 2, 3], "section": "Strategy", "text": text}]})

    delta, after, _ = curated(client(merging), lessons)
    text = "\n".join(f"The list has pages.\nPage {n} was overlooked. (cause {n})" for n in range(3))
    assert entries(after) == [("strategies", f"Lists have pages:\n{text}")]
    (edit,) = delta.edits
    assert (edit.lessons, edit.sources) == (("r0", "r1", "r2"), ("task:r0", "task:r1", "task:r2"))


def test_an_addition_without_a_text_is_an_entry_for_each_insight() -> None:
    lessons = reflection("r", ("strategies", STEPS), ("code", CODE))
    _, after, _ = curated(changing({"op": "ADD", "insights": [2, 1, 2]}), lessons)
    assert entries(after) == [("code", CODE), ("strategies", STEPS)]
    _, moved, run = curated(changing({"op": "ADD", "insights": [1], "section": "no such section"}), lessons)
    assert entries(moved) == [("strategies", STEPS)]
    assert run.counts["unknown_sections"] == 1


WRONG = {"op": "DELETE", "insights": [1], "ids": ["e0"], "reason": "the interface has no pages any more"}
RULE = seed_context([("strategies", "If page 7 is empty, stop.")])


def test_an_entry_without_votes_is_deleted_where_a_reason_is_given() -> None:
    lessons = reflection("r", ("pitfalls", "There are no pages any more."))
    delta, after, run = curated(changing(WRONG), lessons, RULE)
    assert entries(after) == []
    assert delta == Delta(
        (Delete("e0", ("task:r",), ("r",), str(WRONG["reason"])),),
        (Resolution("r", reason=f"DELETE: {WRONG['reason']}"),),
    )
    assert not any(run.counts.values())


@pytest.mark.parametrize(
    ("change", "text", "count"),
    [
        (WRONG, None, "held_back_helpful_entry"),
        (
            {"op": "UPDATE", "insights": [1], "ids": ["e0"], "text": "Stop at an empty page."},
            "Stop at an empty page.", "held_back_lost_detail",
        ),
    ],
    ids=["delete", "a lost number"],
)  # fmt: skip
def test_guards_hold_back_what_is_done_without_them(change: dict[str, Any], text: str | None, count: str) -> None:
    lessons = reflection("r", ("pitfalls", "Pages may be empty."))
    _, after, run = curated(changing(change), lessons, RULE)
    assert [entry.text for entry in after] == ([text] if text else [])
    assert count not in run.counts
    _, guarded, run = curated(changing(change), lessons, RULE, guards=True)
    assert guarded.get("e0") == RULE.get("e0")
    assert run.counts[count] == 1


def test_a_mutator_has_no_merge_in_its_form() -> None:
    lessons = reflection("r", ("checks", "Look twice."))
    for merges in (True, False):
        model = changing({"op": "ADD", "insights": [1]})
        curated(model, lessons, merges=merges)
        (call,) = model.calls
        assert ('"MERGE"' in json.dumps(call.schema)) is merges


# ---- the playbook written anew


def test_a_rewriting_curator_reads_everything_and_keeps_lines_and_sections() -> None:
    written = [{"section": "code", "text": CODE}, {"section": "my own", "text": "Look twice."}]
    model = client(lambda call: json.dumps({"entries": written}))
    run = indoors(model, profile="full")
    lessons = reflection("r", ("strategies", STEPS), cause="no page was read", votes={"e0": "harmful"})
    delta = asyncio.run(rewrite(Instructions("Write."))(lessons, RULE, run))
    assert entries(RULE.apply(delta).context) == [("code", CODE), ("strategies", "Look twice.")]
    (call,) = model.calls
    assert (
        f"Root cause: no page was read\nEntries used: [e0] harmful\nInsight 1 (strategies):\n{indented(STEPS)}"
        in call.text
    )
    assert call.prompt.pages == ("[e0] (strategies) If page 7 is empty, stop.",)


def test_reflections_longer_than_the_window_of_a_rewriting_curator_are_cut_and_the_playbook_is_not() -> None:
    model = client(lambda call: json.dumps({"entries": [{"section": "code", "text": CODE}]}), window=8192)
    run = indoors(model, profile="full")
    lessons = [x for n in range(9) for x in reflection(f"r{n}", ("checks", f"Look {n}."), reasoning="and so on " * 700)]
    delta = asyncio.run(rewrite(Instructions("Write."))(lessons, RULE, run))
    (call,) = model.calls
    assert call.prompt.pages == ("[e0] (strategies) If page 7 is empty, stop.",)
    assert all(f"Insight {n + 1} (checks): Look {n}." in call.prompt.user for n in range(9))
    assert run.counts["shortened_prompts"] == 1
    assert len(RULE.apply(delta).context) == 1
