"""Views of a context for an agent: in full, as selected entries, or as earlier turns of the conversation.

Entries are shown in the order of birth, in pages, and without their counters. So nearly all of a prompt repeats the
beginning of an earlier prompt byte for byte, and a server's prefix cache can be used. An edit only changes the page of
the edited entry.

Texts are shown as `core.visible.visible_to_model` returns them: with plain line breaks, so that no entry can begin a
line that looks like another entry, and without hidden characters. The stored texts are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from xml.sax.saxutils import escape, quoteattr

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.tool_texts import ToolTexts
from practicum.core.types import Step, Turn
from practicum.core.visible import line_visible_to_model, lines, visible_to_model


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text, for budgets and reports: four characters per token, rounded up.

    If a character has several bytes in UTF-8, each byte after the first counts as one and a half more characters, so
    that a Chinese character is one token and budgets hold for any language.
    """
    extra_bytes = 0 if text.isascii() else len(text.encode(errors="surrogatepass")) - len(text)
    return (2 * len(text) + 3 * extra_bytes + 7) // 8


def truncate(text: str, most: int) -> str:
    """Return the text. If it has more than `most` characters, replace its middle by a note with the size of the gap."""
    if len(text) <= most:
        return text
    keep = max(most // 2, 1)
    missing = max(len(text) - 2 * keep, 0) // 4
    return f"{text[:keep]}\n[... about {missing:,} tokens left out here ...]\n{text[-keep:]}"


@dataclass(frozen=True, slots=True)
class View:
    """Everything that an agent is shown in addition to its instructions and its task.

    `pages` precede the task; the first `fixed` pages are the same for every task while the context is unchanged.
    `turns` are earlier turns of the conversation, and `note` follows the task. `ids` are the entries that may be cited,
    if the view is `citable`. `tokens` is the estimated size. An `annotated` view also asks the agent for doubts and
    missing information. A `noting` view also asks the agent to write a note for a later attempt. The pages of an
    `instructing` view are instructions, so they are shown without the marks around material (`engine.framing`).
    `retrieved` are the entries that were retrieved for the task, with their similarity to the task. `entries`
    returns the entries that the view shows. `tools` are descriptions of tools that replace the original ones.
    """

    pages: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    note: str = ""
    ids: Container[str] = ()
    citable: bool = False
    tokens: int = 0
    annotated: bool = False
    noting: bool = False
    instructing: bool = False
    retrieved: tuple[tuple[str, float], ...] = ()
    fixed: int = 0
    entries: Callable[[], Iterable[Entry]] = field(default=tuple, compare=False)
    tools: ToolTexts = field(default_factory=dict)

    def with_note(self, note: str) -> View:
        """Return the view with a note after the task, such as a reflection on an earlier try."""
        return replace(self, note=note, tokens=self.tokens + count_tokens(note))


def indented(text: str) -> str:
    """Indent each line that is not empty by two spaces."""
    return "\n".join(f"  {line}" if line else line for line in lines(text))


def behind(heading: str, text: str) -> str:
    """Return a heading and its text as a model may see them: the text is on the line of the heading or, if it has
    several lines, indented below the heading."""
    text = visible_to_model(text)
    return f"{heading}\n{indented(text)}" if "\n" in text else f"{heading} {text}"


def entry_line(entry: Entry) -> str:
    """Return one entry as an agent sees it: one line, or a heading with the lines of the entry's text indented below.
    So the first line is the only line of an entry without indentation, and lines of code keep their relative
    indentation."""
    return behind(f"[{entry.id}] ({line_visible_to_model(entry.section)})", entry.text)


def _page(entries: Iterable[Entry]) -> tuple[str, int]:
    shown = [e for e in entries if not e.hidden]
    text = "\n".join([f"[{e.id}] ({e.section}) {e.text}" for e in shown])
    # Most pages have nothing to escape or to indent, and this check takes a tenth of the time of escaping each entry.
    if text.count("\n") >= len(shown) > 0 or visible_to_model(text) != text:
        text = "\n".join(map(entry_line, shown))
    return text, count_tokens(text)


@dataclass(frozen=True, slots=True)
class _PageWithout:
    """Rendering of a page without these sections. Unlike a function in a function, an object of this class can be
    pickled with the renderings of a context."""

    sections: tuple[str, ...]

    def __call__(self, entries: Iterable[Entry]) -> tuple[str, int]:
        return _page(e for e in entries if e.section not in self.sections)


def render_full(context: Context, *without: str) -> View:
    """Show every entry that is not hidden, except entries in the sections `without`."""
    render = _PageWithout(without) if without else _page
    shown = [pair for pair in context.rendered(render) if pair[0]]
    return replace(_paged(context, shown), entries=partial(_not_hidden, context, *without))


def _not_hidden(context: Context, *without: str) -> Iterable[Entry]:
    return (e for e in context if not e.hidden and e.section not in without)


def render_annotated(context: Context) -> View:
    """Show every entry as an XML element, for an agent that comments on each entry (RCL, section 3.2)."""
    view = _paged(context, context.rendered(_annotated_page))
    return replace(view, citable=True, annotated=True, entries=partial(_not_hidden, context))


def _paged(context: Context, shown: list[tuple[str, int]]) -> View:
    """Return the view of a context, given the text of each page with its size in tokens."""
    texts, tokens = tuple(text for text, _ in shown), sum(size for _, size in shown)
    return View(texts, ids=context, citable=bool(shown), tokens=tokens, fixed=len(texts))


def _annotated_page(entries: Iterable[Entry]) -> tuple[str, int]:
    text = "\n".join(_element(e) for e in entries if not e.hidden)
    return text, count_tokens(text)


def _element(entry: Entry) -> str:
    text, section = visible_to_model(entry.text), line_visible_to_model(entry.section)
    text = escape(f"\n{text}\n" if "\n" in text else text)
    return f"<entry id={quoteattr(entry.id)} section={quoteattr(section)}>{text}</entry>"


def render_selected(entries: Iterable[Entry]) -> View:
    """Show these entries as one page, oldest first."""
    chosen = tuple(sorted(entries, key=lambda e: e.number))
    if not chosen:
        return View()
    text, tokens = _page(chosen)
    ids = frozenset(e.id for e in chosen)
    return View(pages=(text,), ids=ids, citable=True, tokens=tokens, entries=partial(tuple, chosen))


def render_turns(entries: Iterable[Entry]) -> View:
    """Show entries as earlier turns of the conversation, in the order of `entries`: `text` as the question,
    `data["answer"]` as the answer, and `data["steps"]` as the steps between question and answer."""
    chosen = tuple(entries)
    turns = tuple(map(_turn, chosen))
    tokens = sum(count_tokens(text) for t in turns for text in (t.user, t.assistant, *(step.text for step in t.steps)))
    return View(turns=turns, ids=frozenset(e.id for e in chosen), tokens=tokens, entries=partial(tuple, chosen))


def exchanges(turns: Iterable[Turn]) -> str:
    """Return earlier turns as a page of solved tasks, for an agent that takes one text. A text of several lines is
    indented below its heading ("Task:", the kind of the step, or "Answer:"), so that no line of the text looks like a
    heading."""
    return "\n".join(["# Solved tasks that are similar", *map(_exchange, turns)])


def _exchange(turn: Turn) -> str:
    steps = (behind(f"{step.kind.capitalize()}:", step.text) for step in turn.steps)
    parts = [behind("Task:", turn.user), *steps, behind("Answer:", turn.assistant)]
    return f"-{indented(chr(10).join(parts))[1:]}"


def _turn(entry: Entry) -> Turn:
    steps = tuple(Step(kind, visible_to_model(text)) for kind, text in entry.data.get("steps", ()))
    return Turn(visible_to_model(entry.text), visible_to_model(str(entry.data["answer"])), steps)
