r"""Answers that are nearly JSON: their lessons are stored with the intended text, and mended answers are counted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import practicum
from practicum.models.backslashes import AMBIGUOUS, COMMANDS, WITH_BRACE
from practicum.models.objects import read_object
from practicum.models.scripted import Call, ScriptedClient, in_parts

REST = '"reasoning": "", "diagnosis": "", "cause": "", "correction": "", "tags": []'


class Form(BaseModel):
    text: str
    more: Any = None


class Reflection(BaseModel):
    insights: list[dict[str, str]]
    reasoning: str
    tags: list[str]


@pytest.mark.parametrize(
    ("written", "text", "mended"),
    [
        (r"w \times h; x \neq y, \frac{a}{b}, \beta, \rho", r"w \times h; x \neq y, \frac{a}{b}, \beta, \rho", True),
        (r"\(x\) is \alpha, \underline{not} \Gamma", r"\(x\) is \alpha, \underline{not} \Gamma", True),
        (r"step\nnext\n\tfor x in y:\n\t\treturn x", "step\nnext\n\tfor x in y:\n\t\treturn x", False),
        (r"first:\ni = 3\nu = 4\r\nrest\tan", "first:\ni = 3\nu = 4\nrest\tan", False),
        (r"$a \ne b$ and $x \to \nu$", r"$a \ne b$ and $x \to \nu$", True),
        (r"\lambda \to \nu\nthen stop", "\\lambda \\to \\nu\nthen stop", True),
        (r"\\alpha is known, and\ni = 3", "\\alpha is known, and\ni = 3", False),
        (r"use \text{max}, and\text too", "use \\text{max}, and\text too", True),
        (r"match \bword\b and \d+", r"match \bword\b and \d+", True),
        (r"\begin{matrix} a \\ b \end{matrix} \pi", r"\begin{matrix} a \\ b \end{matrix} \pi", True),
        (r"caf\u00e9, \"quoted\" a\/b c\\d", 'café, "quoted" a/b c\\d', False),
    ],
)  # fmt: skip
def test_a_backslash_before_a_latex_command_is_read_as_one(written: str, text: str, mended: bool) -> None:
    read, was_mended = read_object(Form, f'{{"text": "{written}"}}')
    assert (read.text.replace("\r\n", "\n"), was_mended) == (text, mended)


LESSON = "don't \\times\nstop"
WHOLE = {**json.loads(f"{{{REST}}}"), "insights": [{"section": "rules", "text": LESSON}]}

BROKEN = {
    "single quotes": REST.replace('"', "'").join(
        ("{", r""", 'insights': [{'section': 'rules', 'text': 'don\'t \times\nstop'}]}""")
    ),
    "a Python value": f"Here it is: {{x}} {WHOLE!r}\nThat's all.",
    "trailing commas in a fence": f"```json\n{json.dumps(WHOLE).replace('[]', '[],')}\n```\nI hope that's right.",
    "comments": json.dumps(WHOLE).replace("[]", "[] // none\n"),
    "names without quotes": json.dumps(WHOLE).replace('"insights"', "insights"),
    "an escaped apostrophe": json.dumps(WHOLE).replace("'", "\\'"),
    "in the name of its schema": json.dumps({"Reflection": WHOLE}),
    "as a call of a tool": json.dumps({"name": "final_result", "arguments": json.dumps(WHOLE)}),
    "encoded twice in a fence": f"```json\n{json.dumps(json.dumps(WHOLE))}\n```",
    "a field that is encoded twice": json.dumps({**WHOLE, "insights": json.dumps(WHOLE["insights"])}),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_an_object_that_is_nearly_json_is_read(answer: str) -> None:
    read, mended = read_object(Reflection, answer)
    assert ([insight["text"] for insight in read.insights], mended) == ([LESSON], True)


CODE = ('```json\n{"a": [1, 2,], "b": {"c": null}}\n```\nThen stop.', 'a: b, c: d\n- "x": y,\n- {z}')
"""Texts that look like JSON with mistakes."""


@pytest.mark.parametrize("old_and_new", [('"}', '",}'), ("]}", "],}"), ("}]", "},]"), ("]}", "]"), ("[]", "[] // no")])
@pytest.mark.parametrize("text", CODE)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_mistake_between_strings_changes_no_string(
    old_and_new: tuple[str, str], text: str, indent: int | None
) -> None:
    old, new = old_and_new
    whole = {"tags": [], "reasoning": "", "insights": [{"section": "code", "text": text}]}
    written = json.dumps(whole, indent=indent)
    broken = re.sub(r"\s*".join(map(re.escape, old)) + r"(?!.*\")", f"{new}\n", written, flags=re.DOTALL)
    broken = broken if old != "[]" else written.replace("[],", "[], // no\n", 1)
    read, mended = read_object(Reflection, f"```json\n{broken}\n```")
    assert ([insight["text"] for insight in read.insights], mended) == ([text], True)


def test_a_run_stores_the_intended_text_and_counts_mended_answers(tmp_path: Path) -> None:
    answers = [json.dumps(WHOLE).replace("stop", "x"), BROKEN["comments"], BROKEN["single quotes"]]
    answers[1] = answers[1].replace("stop", "go")

    def respond(call: Call) -> str:
        return in_parts(call.prompt, {"used": [], "answer": "wrong"}) if call.role == "agent" else answers.pop()

    parts = practicum.Parts(clients={"agent": ScriptedClient(respond)})
    settings = {"rounds": 0, "curator": "append", "batch": 1, "dedupe": "never"}
    work = practicum.learn(make_tasks(3), out=tmp_path / "run", parts=parts, settings=settings, profile="full")
    result = practicum.run_sync(work)
    assert {entry.text for entry in result.context} == {LESSON.replace("stop", word) for word in ("stop", "go", "x")}
    assert result.errors["mended_json"] == 2
    assert result.errors.keys().isdisjoint({"repaired_outputs", "unparsed_outputs"})


CONTROLS = dict(zip("bfnrt", "\b\f\n\r\t", strict=True))
TAILS = COMMANDS | AMBIGUOUS | WITH_BRACE
VALUES = st.recursive(
    st.text() | st.text("\\\b\f\n\r\t\"'$abcdefnrtuxi{} ", max_size=30) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def _has_command(value: object) -> bool:
    """Whether a control character is followed by the rest of a command."""
    if isinstance(value, str):
        return any(CONTROLS[word[0]] + word[1:] in value for word in TAILS)
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return any(map(_has_command, parts))


@given(VALUES, st.booleans())
def test_the_output_of_a_serializer_is_read_unchanged(value: Any, ascii_only: bool) -> None:
    if _has_command(value):
        return
    written = json.dumps({"text": "x", "more": value}, ensure_ascii=ascii_only)
    read, mended = read_object(Form, written)
    assert (read.more, mended) == (value, False)


@given(st.lists(st.sampled_from(sorted(COMMANDS)), min_size=1), st.sampled_from([" ", "{x} ", "^2 + ", "_i = "]))
def test_every_command_that_was_written_with_one_backslash_keeps_it(words: list[str], between: str) -> None:
    text = between.join(f"\\{word}" for word in words) + " end"
    read, _ = read_object(Form, f'{{"text": "{text}"}}')
    assert read.text == text
