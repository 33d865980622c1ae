"""Updates by plain code: votes, the token budget, harmful entries, one episode a task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors

from practicum.blocks.update.append import append, draft, newest_per_key, pruned, votes, within_budget
from practicum.core.context import PAGE, ApplyResult, Context, Page, initial_context, seed_context
from practicum.core.edits import Add, Delete, Delta, Entry, Merge, Update, Vote
from practicum.core.types import Lesson
from practicum.core.views import entry_line, render_full
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.models.scripted import Call

Verdict = Literal["helpful", "harmful", "neutral"]


def giving(delta: Delta) -> UpdateSeam:
    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return delta

    return update


def no_model(call: Call) -> str:
    raise AssertionError("the model was asked")


def delta_of(update: UpdateSeam, context: Context, lessons: Sequence[Lesson], run: Run) -> Delta:
    return asyncio.run(update(lessons, context, run))


def ran(update: UpdateSeam, context: Context, lessons: Sequence[Lesson] = ()) -> tuple[ApplyResult, Mapping[str, int]]:
    """The delta of an update, applied, and what was counted."""
    run = indoors(no_model)
    return context.apply(delta_of(update, context, lessons, run)), run.counts


ENTRIES = st.lists(
    st.tuples(st.text("ab \n", min_size=1, max_size=60).filter(str.strip), st.integers(0, 3), st.integers(0, 3),
              st.integers(0, 2)),
    max_size=150,
)  # fmt: skip


def context_of(entries: Sequence[tuple[str, int, int, int]]) -> Context:
    adds = [Add("rules", text, helpful=up, harmful=down) for text, up, down, _ in entries]
    return initial_context([*adds, *(Vote(f"e{n}", uses=uses) for n, (*_, uses) in enumerate(entries) if uses)])


def rank(entry: Entry, before: Context) -> int:
    """Who goes first; what is new could not be used yet."""
    return 0 if entry.harmful > entry.helpful else 1 if entry.uses == 0 and entry.id in before else 2


@settings(max_examples=examples(60), deadline=None)
@given(ENTRIES, ENTRIES, st.integers(1, 1500))
def test_the_budget_holds_and_the_worst_entries_are_removed_first(
    old: list[tuple[str, int, int, int]], new: list[tuple[str, int, int, int]], tokens: int
) -> None:
    context = context_of(old)
    delta = Delta(tuple(Add("rules", text, helpful=up, harmful=down) for text, up, down, _ in new))
    unbound = context.apply(delta).context
    outcome, counts = ran(within_budget(giving(delta), tokens), context)
    assert not outcome.refused
    assert render_full(outcome.context).tokens <= tokens
    gone = [e for e in unbound if e.id not in outcome.context]
    assert counts["pruned_entries"] == len(gone)
    if gone:
        worst_kept = min((rank(e, context) for e in outcome.context), default=2)
        assert max(rank(e, context) for e in gone) <= worst_kept
        unused = [e.number for e in gone if rank(e, context) == 1]
        young = [e.number for e in outcome.context if rank(e, context) == 1]
        assert not unused or not young or max(unused) < min(young)
        # No more goes than has to: with the last one back it might be too much.
        largest = max(len(entry_line(e)) for e in gone)
        assert render_full(outcome.context).tokens + largest // 4 + len(gone) + 3 > tokens
    else:
        assert render_full(unbound).tokens <= tokens


def test_nothing_is_removed_under_the_budget() -> None:
    delta = Delta((Add("rules", "new"),))
    outcome, counts = ran(within_budget(giving(delta), 1000), seed_context([("rules", "old")]))
    assert [a.edit.op for a in outcome.applied] == ["add"]
    assert counts["pruned_entries"] == 0


def test_new_rules_replace_used_ones_in_a_full_budget() -> None:
    context = context_of([("a" * 40, 0, 0, 1), ("b" * 40, 0, 0, 1), ("c" * 40, 2, 0, 2)])
    tokens = render_full(context).tokens
    outcome, _ = ran(within_budget(giving(Delta((Add("rules", "n" * 40),))), tokens), context)
    assert [e.text[0] for e in outcome.context] == ["b", "c", "n"]
    # A step later it has had its chance.
    outcome, _ = ran(within_budget(giving(Delta((Add("rules", "m" * 40),))), tokens), outcome.context)
    assert [e.text[0] for e in outcome.context] == ["b", "c", "m"]


def test_rules_that_helped_are_not_replaced_by_new_ones() -> None:
    context = context_of([("a" * 40, 1, 0, 1), ("b" * 40, 2, 1, 3)])
    outcome, _ = ran(within_budget(giving(Delta((Add("rules", "n" * 40),))), render_full(context).tokens + 4), context)
    assert [e.text[0] for e in outcome.context] == ["a", "b"]


def test_a_margin_of_zero_removes_only_entries_that_harmed() -> None:
    context = context_of([("a", 0, 0, 0), ("b", 2, 2, 2), ("c", 2, 1, 3), ("d", 0, 1, 1)])
    outcome, _ = ran(pruned(giving(Delta()), 0), context)
    assert [e.text for e in outcome.context] == ["a", "c"]


def test_an_addition_of_the_same_delta_can_be_removed() -> None:
    delta = Delta((Add("rules", "x" * 400), Merge(("e0", "e1")), Add("rules", "y")))
    outcome, _ = ran(within_budget(giving(delta), 20), seed_context([("rules", "one"), ("rules", "two")]))
    assert not outcome.refused
    assert [e.text for e in outcome.context] == ["y"]


def test_entries_beyond_the_harmful_margin_are_removed() -> None:
    context = context_of([("a", 0, 2, 1), ("b", 1, 3, 1), ("c", 0, 1, 1), ("d", 5, 6, 1)])
    outcome, counts = ran(pruned(giving(Delta((Vote("e2", harmful=1),))), 2), context)
    assert [e.text for e in outcome.context] == ["d"]
    assert counts["pruned_entries"] == 3
    assert all(a.edit.reason for a in outcome.applied if isinstance(a.edit, Delete))


@given(st.lists(st.dictionaries(st.sampled_from(["e0", "e1"]), st.sampled_from(["helpful", "harmful", "neutral"]))))
def test_the_votes_of_each_lesson_count_once(said_of: list[dict[str, Verdict]]) -> None:
    lessons = [Lesson(f"l{n}", "", votes=verdicts, sources=(f"task:{n}",)) for n, verdicts in enumerate(said_of)]
    context = seed_context([("rules", "one"), ("rules", "two")])
    after = context.apply(votes(lessons)).context
    for entry in after:
        said = [verdicts[entry.id] for verdicts in said_of if entry.id in verdicts]
        assert (entry.helpful, entry.harmful, entry.uses) == (
            said.count("helpful"), said.count("harmful"), len(said),
        )  # fmt: skip
    # What a lesson says of an entry is not what the entry comes from.
    assert all(entry.sources == ("seed",) for entry in after)


def episode(answer: str, **data: Any) -> Lesson:
    return Lesson("l", "Which?", data={"answer": answer, **data}, sources=(f"rollout:{answer}",))


def test_the_newest_episode_of_a_task_replaces_the_older_one() -> None:
    update = newest_per_key(append("episodes"))
    first, _ = ran(update, Context(), [episode("a")])
    again, _ = ran(update, first.context, [episode("a")])
    assert again.applied == ()
    other, _ = ran(update, first.context, [episode("b"), Lesson("m", "What?", data={"answer": "c"})])
    assert [type(a.edit) for a in other.applied] == [Update, Add]
    assert [(e.id, e.text, e.data["answer"]) for e in other.context] == [("e0", "Which?", "b"), ("e1", "What?", "c")]
    assert set(next(iter(other.context)).sources) == {"rollout:a", "rollout:b"}


def test_an_episode_is_found_without_reading_every_page() -> None:
    class Closed(Page):
        """One whose entries are not to be looked at."""

        @property
        def entries(self) -> dict[int, Entry]:
            raise AssertionError("looked at")

    update = newest_per_key(append("episodes"))
    old = [Add("episodes", f"{n}?", data={"answer": "a"}) for n in range(5 * PAGE)]
    context = Context().apply(Delta((*old, Add("rules", "7?"), Add("episodes", "8?", data={"answer": "b"})))).context
    ran(update, context, [episode("x")])
    pages = [page if n in (0, 5) else Closed(None, like=page) for n, page in enumerate(context.pages)]
    lessons = [Lesson("l", text, data={"answer": "c"}) for text in ("7?", "8?", "no such?")]
    delta = delta_of(update, replace(context, pages=tuple(pages)), lessons, indoors(no_model))
    said = [(type(e), e.id if isinstance(e, Update) else e.text) for e in delta.edits if isinstance(e, Add | Update)]
    assert said == [(Update, "e7"), (Update, f"e{5 * PAGE + 1}"), (Add, "no such?")]


def test_lessons_without_text_become_no_entry() -> None:
    outcome, _ = ran(append("rules"), seed_context([("rules", "one")]), [Lesson("l", "", votes={"e0": "helpful"})])
    assert [e.helpful for e in outcome.context] == [1]
    assert outcome.context.size == 1


def test_a_draft_names_what_it_adds() -> None:
    tried = draft(
        seed_context([("rules", "one")]), Delta((Add("rules", "two"), Add("rules", " "), Add("rules", "x", ref="r")))
    )
    names = {e.text: tried.name(e) for e in tried.outcome.context}
    assert names["one"] == "e0"
    assert names["x"] == "r"
    merged = seed_context([("rules", "one")]).apply(tried.delta + Delta((Merge(("e0", names["two"], "r")),)))
    assert [e.text for e in merged.context] == ["one"]
    assert len(merged.refused) == 1
