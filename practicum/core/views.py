"""How a context is shown to an agent: in full pages, the most similar entries, or earlier turns.

The order of birth, pages and counters left out serve one end: that nearly all of a prompt is byte for byte what an
earlier prompt began with, so that a server's prefix cache need not read it again. An edit rewrites the page it
touches and no other byte.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import cache
from xml.sax.saxutils import escape, quoteattr

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.types import Turn


def count_tokens(text: str) -> int:
    """The house's one estimate of tokens: four characters each, rounded up. For budgets, `icl` and reports alike.

    Tokenizers were made for Latin letters: a byte of UTF-8 beyond a character's first counts one and a half, so that
    a Chinese character is a token, and budgets hold for any language.
    """
    more = 0 if text.isascii() else len(text.encode(errors="surrogatepass")) - len(text)
    return (2 * len(text) + 3 * more + 7) // 8


def without_middle(text: str, keep: int) -> str:
    """The first and the last `keep` characters, with a mark that tells how much stood between them."""
    left_out = max(len(text) - 2 * keep, 0) // 4
    return f"{text[:keep]}\n[... about {left_out:,} tokens left out here ...]\n{text[-keep:]}"


def truncate(text: str, most: int) -> str:
    """The text, with its middle left out where it is longer than `most` characters."""
    return text if len(text) <= most else without_middle(text, max(most // 2, 1))


@dataclass(frozen=True, slots=True)
class View:
    """What an agent is shown beside its instructions and its task, and how much that is.

    `pages` go before the task for all tasks alike; `turns` are earlier exchanges; `note` goes after the task.
    `ids` holds the entries that may be cited (empty where citing makes no sense). An `annotated` view also asks the
    agent what it doubted and what it missed, a `noting` one for a note to go on from. `retrieved` are the entries that
    were looked up for the task, with their similarity to it.
    """

    pages: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    note: str = ""
    ids: Container[str] = ()
    citable: bool = False
    tokens: int = 0
    annotated: bool = False
    noting: bool = False
    retrieved: tuple[tuple[str, float], ...] = ()

    def with_note(self, note: str) -> View:
        """The same view with words after the task, such as a reflection on an earlier try."""
        return replace(self, note=note, tokens=self.tokens + count_tokens(note))


def entry_line(entry: Entry) -> str:
    """One entry as an agent sees it. A text of several lines stays one item by its indent."""
    text = entry.text if "\n" not in entry.text else entry.text.replace("\n", "\n  ")
    return f"[{entry.id}] ({entry.section}) {text}"


def _page(entries: Iterable[Entry]) -> tuple[str, int]:
    text = "\n".join(entry_line(e) for e in entries if not e.hidden)
    return text, count_tokens(text)


@cache
def _page_without(section: str) -> Callable[[Iterable[Entry]], tuple[str, int]]:
    return lambda entries: _page(e for e in entries if e.section != section)


def render_full(context: Context, without: str = "") -> View:
    """Every entry, in pages in the order of birth; those of the section `without` left out."""
    how = _page_without(without) if without else _page
    shown = [made for page in context.pages if page.entries and (made := page.shown(how))[0]]
    return View(
        pages=tuple(text for text, _ in shown),
        ids=context,
        citable=bool(shown),
        tokens=sum(tokens for _, tokens in shown),
    )


def render_annotated(context: Context) -> View:
    """Every entry in XML of its own, for a run that tells what it made of each (RCL, section 3.2)."""
    shown = [page.shown(_annotated_page) for page in context.pages if page.entries]
    return View(
        pages=tuple(text for text, _ in shown),
        ids=context,
        citable=True,
        tokens=sum(tokens for _, tokens in shown),
        annotated=True,
    )


def _annotated_page(entries: Iterable[Entry]) -> tuple[str, int]:
    shown = (e for e in entries if not e.hidden)
    text = "\n".join(
        f"<entry id={quoteattr(e.id)} section={quoteattr(e.section)}>{escape(e.text)}</entry>" for e in shown
    )
    return text, count_tokens(text)


def render_selected(entries: Iterable[Entry]) -> View:
    """Just these entries, oldest first, as one page."""
    chosen = sorted(entries, key=lambda e: e.number)
    if not chosen:
        return View()
    text, tokens = _page(chosen)
    return View(pages=(text,), ids=frozenset(e.id for e in chosen), citable=True, tokens=tokens)


def render_turns(entries: Iterable[Entry]) -> View:
    """Entries as earlier exchanges, in the order given: `text` was asked, `data["answer"]` was answered."""
    turns = tuple(Turn(e.text, str(e.data["answer"])) for e in entries)
    return View(turns=turns, tokens=sum(count_tokens(t.user) + count_tokens(t.assistant) for t in turns))
