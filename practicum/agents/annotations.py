"""Reports of an agent in addition to its answer.

An agent reports the entries that it used. If the view is `annotated`, the agent also reports the entries that it
doubted and the guidance that was missing. If the view is `noting`, the agent also reports a note for a later attempt.
This module defines and reads both forms of such reports: fields of a JSON answer, and labelled parts of a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import Field

from practicum.core.bounded import EntryId, MaxChars, MaxItems, Output
from practicum.core.views import View


class Doubt(Output):
    """An entry the agent was not sure about."""

    id: EntryId
    why: Annotated[str, MaxChars(120)]


MOST_CITED = 3
"""Maximum number of entries that an answer cites."""

_Cited = Annotated[list[EntryId], MaxItems(MOST_CITED)]

CITING: dict[str, Any] = {"used": (_Cited, Field(description="ids of the entries that apply, best first"))}
"""Additional fields of an answer if the entries of the view can be cited."""

ANNOTATING: dict[str, Any] = {
    "doubts": (Annotated[list[Doubt], MaxItems(3)], Field(description="entries you were not sure about")),
    "missing": (Annotated[str, MaxChars(160)], Field(description="guidance that was missing; empty if none")),
}
"""Additional fields of an answer if the view is `annotated`."""

NOTING: dict[str, Any] = {
    "note": (Annotated[str, MaxChars(200)], Field(description="what you checked and found, to go on from")),
}
"""Additional fields of an answer if the view is `noting`."""


PARTS = {
    "Used": "the ids of the entries that apply, best first, or none",
    "Doubts": "the id of each entry you were not sure about, with the reason, or none",
    "Missing": "guidance that was missing, or none",
    "Note": "what you checked and found, to go on from",
    "Answer": "the answer",
}
"""Label of a part of an answer → description of the part, for the prompt."""


def read_parts(text: str, labels: Iterable[str]) -> dict[str, str]:
    """Split a text into parts by labels at the beginning of a line. "Answer" is the last part and extends to the end of
    the text. If the label "Answer" is missing, the last labelled part is only one line, and the text after this line is
    the answer. If all labels are missing, the whole text is the answer."""
    parts: dict[str, str] = {}
    pattern = re.compile(rf"^[ \t*_#>-]*({'|'.join(labels)})[*_]*:[*_]*", re.IGNORECASE | re.MULTILINE)
    starts = list(_first_of_each(pattern, text))
    ends = [line for _, line, _ in starts[1:]] + [len(text)]
    for (label, _, begin), end in zip(starts, ends, strict=False):
        parts[label] = text[begin:end].strip()
    if starts and "Answer" not in parts:
        label = starts[-1][0]
        parts[label], _, rest = parts[label].partition("\n")
        parts["Answer"] = rest.strip()
    return {**parts, "Answer": parts.get("Answer") or text.strip()}


def parts_grammar(labels: Sequence[str], choices: Sequence[str]) -> str:
    """Return a grammar for llama.cpp that accepts these parts, each on one line, with up to `MOST_CITED` ids in "Used"
    and one of the choices as the answer. Without choices the answer is any text; without labels the text is the answer;
    without both, the grammar is empty. A small model without a grammar may list ids up to its limit of tokens, and
    never answer."""
    if not labels and not choices:
        return ""
    bodies = {"Used": "ids", "Answer": "answer"}
    parts = [f'"{label}: " {bodies.get(label, "line")}' for label in labels] or ["answer"]
    rules = {
        "root": ' "\\n" '.join(parts),
        "ids": f'"none" | id (", " id){{0,{MOST_CITED - 1}}}',
        "id": '"[e" [0-9]{1,6} "]"',
        "line": "[^\\n]+",
        "answer": " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices) or ".+",
    }
    return "\n".join(f"{name} ::= {rule}" for name, rule in rules.items())


def _first_of_each(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the first occurrence of each label: the label, the start of the line with the label, and the start of the
    text after the label."""
    seen: set[str] = set()
    for match in pattern.finditer(text):
        label = match[1].capitalize()
        if label not in seen:
            yield label, match.start(), match.end()
        seen.add(label)
        if label == "Answer":
            return


def parts_report(parts: Mapping[str, str]) -> Any:
    """Convert the labelled parts of a text to an object with the same fields as a JSON answer."""
    _, *doubts = re.split(r"\b(e[0-9]+)\b", parts.get("Doubts", ""))
    named = zip(doubts[::2], doubts[1::2], strict=True)
    missing = parts.get("Missing", "")
    return SimpleNamespace(
        used=re.findall(r"\be[0-9]+\b", parts.get("Used", "")),
        doubts=[Doubt(id=id, why=why.strip(" \t\n[](){}*:;,.-")) for id, why in named],
        missing="" if missing.casefold().strip(" .") == "none" else missing,
        note=parts.get("Note", ""),
    )


def read_citations(ids: Iterable[str], view: View) -> dict[str, Any]:
    """Return the fields of a trace about cited entries: the cited ids that are in the view (`used`), and the number of
    cited ids that are not in the view (`unknown`)."""
    distinct = dict.fromkeys(ids)
    used = tuple(id for id in distinct if id in view.ids)
    return {"used": used, "unknown": len(distinct) - len(used)}


def read_annotations(answer: Any, view: View) -> dict[str, Any]:
    """Return the values for the trace's `data`. For an annotated view: the doubts by entry id, only about entries in
    the view, and the missing guidance. For a noting view: the note."""
    data: dict[str, Any] = {}
    if view.annotated:
        data["doubts"] = {doubt.id: doubt.why for doubt in answer.doubts if doubt.id in view.ids}
        data["missing"] = answer.missing.strip()
    if view.noting:
        data["note"] = answer.note
    return data
