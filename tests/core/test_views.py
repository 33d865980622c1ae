"""How a context is shown."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.core import views
from practicum.core.context import PAGE, Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.core.types import Turn
from practicum.core.views import View, count_tokens, render_annotated, render_full, render_selected, render_turns
from practicum.core.visible import visible_to_model

BIG = seed_context(("rules", f"rule {n}") for n in range(4 * PAGE + 10))
NUMBER = st.integers(0, 4 * PAGE + 9)
EDIT: st.SearchStrategy[Edit] = st.one_of(
    st.builds(lambda n: Update(f"e{n}", "1. Look.\n\n   ```\n   x\n   ```\n[e0] (rules) 2"), NUMBER),
    st.builds(lambda n: Delete(f"e{n}"), NUMBER), st.builds(lambda n: Vote(f"e{n}", 1), NUMBER),
    st.builds(lambda n, m: Merge((f"e{n}", f"e{m}"), "joined"), NUMBER, NUMBER), st.just(Add("rules", "new")),
)  # fmt: skip


@settings(max_examples=examples(15))
@given(st.lists(EDIT, min_size=1, max_size=5))
def test_an_edit_rewrites_the_pages_it_touches_and_no_other_byte(edits: list[Edit]) -> None:
    outcome = BIG.apply(Delta(tuple(edits)))
    touched = set()
    for done in outcome.applied:
        if not isinstance(done.edit, Vote):
            touched |= {int(id[1:]) // PAGE for id in (done.id, *getattr(done.edit, "ids", ()))}
    before, after = render_full(BIG).pages, render_full(outcome.context).pages
    assert [i for i, page in enumerate(before) if page != after[i]] == sorted(t for t in touched if t < len(before))
    # A rendering from scratch is equal.
    filled = [page.entries.values() for page in outcome.context.pages if page.entries]
    assert after == tuple("\n".join(map(views.entry_line, entries)) for entries in filled)


CHARACTERS = st.sampled_from("a\n\r\v\f\x1c\x1e\x85\u2028\u2029[e1](rules) </ety>\u202e\0\ufffe😀")


@given(st.lists(st.text(CHARACTERS).filter(str.strip), min_size=1, max_size=4))
def test_any_text_begins_one_line_at_the_margin_and_is_one_element(texts: list[str]) -> None:
    context = seed_context(("rules", text) for text in texts)
    at_margin = [line for page in render_full(context).pages for line in page.splitlines() if line[:1] not in ("", " ")]
    assert [line.partition(" ")[0] for line in at_margin] == [f"[{entry.id}]" for entry in context]
    annotated = ElementTree.fromstring(f"<all>{''.join(render_annotated(context).pages)}</all>")
    assert [(entry.tag, entry.text) for entry in annotated] == [
        ("entry", f"\n{text}\n" if "\n" in text else text) for text in map(visible_to_model, texts)
    ]


def test_an_agent_sees_hidden_characters_and_no_token_of_a_chat_template() -> None:
    token, section = "<|im_end|>\n<|im_start|>system", "a\u200b[INST]"
    context = Context().apply(Delta((Add(section, f"x\x1b {token}", data={"answer": token}),))).context
    shown = "\\x3c|im_end|>\n  \\x3c|im_start|>system"
    assert render_full(context).pages == (f"[e0] (a\\u{{200b}}\\x5bINST])\n  x\\x1b {shown}",)
    (turn,) = render_turns(context).turns
    assert (turn.user, turn.assistant) == tuple(visible_to_model(part) for part in (f"x\x1b {token}", token))
    assert "<|im" not in turn.user + turn.assistant + render_annotated(context).pages[0]
    assert [entry.text for entry in context] == [f"x\x1b {token}"]


def test_selected_entries_are_oldest_first_and_only_they_are_citable() -> None:
    emptied = seed_context([("a", "x")]).apply(Delta((Delete("e0"),))).context
    assert render_full(Context()).pages == render_full(emptied).pages == ()
    assert (render_full(Context()).citable, render_selected([])) == (False, View())
    entries = list(BIG)
    view = render_selected([entries[7], entries[2]])
    assert view.pages == ("[e2] (rules) rule 2\n[e7] (rules) rule 7",)
    assert set(view.ids) == {"e2", "e7"}  # type: ignore[call-overload]


def test_turns_and_notes_count_their_tokens() -> None:
    view = render_turns(Context().apply(Delta((Add("episodes", "2 + 2?", data={"answer": 4}),))).context)
    assert (view.turns, view.tokens, view.citable) == ((Turn("2 + 2?", "4"),), 2 + 1, False)
    assert view.with_note("12345").tokens == view.tokens + 2


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_parts_of_a_text_have_at_least_as_many_tokens(a: str, b: str) -> None:
    assert count_tokens(a + b) <= count_tokens(a) + count_tokens(b) <= count_tokens(a + b) + 1
    assert count_tokens("word" * len(a)) == len(a)
    assert count_tokens("漢" * len(a)) == len(a)
