"""Run: the only way to every effect.

It is a place of the run (`engine.place`) at which models are asked (`engine.calls`), tasks are attempted and scored
(`engine.attempts`), texts are embedded, entries are searched, and deltas pass the door.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Refused
from practicum.core.errors import (
    MethodError,
    ProviderError,
    UsageError,
)
from practicum.core.trust import trust_of
from practicum.core.types import Attempt, Task
from practicum.core.views import View
from practicum.engine.attempts import Attempts
from practicum.engine.door import Admitted, named_entries, said
from practicum.engine.place import KEPT, Chain
from practicum.engine.specifics import tell_apart
from practicum.retrieval.scripts import alike
from practicum.retrieval.search import VISIBLE, EntryPredicate, Match
from practicum.store.reviews import PENDING, REJECTED, WHY

ActSeam = Callable[[Task, Context, "Run"], Awaitable[Attempt]]
"""Attempts one task under a context and returns the scored attempt, exactly as in evaluation."""


class Run(Attempts):
    """A place in a run, and the only way to every effect: model calls, attempts, scores, embeddings, chance.

    Its fields are those of `Place`.
    """

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        """Tell who watches the run that a step begins."""
        self._state.observer.stepping(step, tasks, steps)

    def completed(self, view: View) -> View:
        """The view with what the agent sees besides the context, such as corrections."""
        return view if self._state.complete is None else self._state.complete(view)

    @property
    def reusable(self) -> dict[str, dict[tuple[object, str, int], Attempt]]:
        """Attempts that may be reused for another task, by the digest of their context."""
        return self._state.reusable

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, shape (n, d). Each text is embedded once in the life of a store."""
        return await self._state.vectors(texts)

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> list[Match]:
        """The `k` entries of a context that are most similar to a text, best first, once at each place. Ties go to the
        older entry. What an index finds is noted, because a rebuilt index may find other entries."""
        known = self.recall("nearest")
        if known is not None:
            self._open(f"{self.place}/nearest")
            return [Match(entry, similarity) for id, similarity in known if (entry := context.get(id)) is not None]
        search = await self._state.retriever.nearest(context, text, k, where)
        if search.exact:
            self._open(f"{self.place}/nearest")
        else:
            self.note("nearest", [(near.entry.id, near.similarity) for near in search.found])
        return list(search.found)

    async def evaluate(
        self, act: ActSeam, split: str, tasks: Sequence[Task], context: Context, repeat: int = 0
    ) -> list[Attempt]:
        """One attempt at each task under `context`, with `act` alone. Results are kept by split, task and what the
        context shows, so a second evaluation of the same costs nothing.

        Raises ProviderError if no new attempt was answered. Unparsed answers stop the run only if no evaluation ever
        had others: the journal holds them, so a resume could not get past them.
        """
        # What is asked there follows from the place, so it rests on no failure.
        chain = Chain(self.chain.seconds)
        top = Run(self._state, f"evaluate {split} {context.digest} {repeat}", teaches=False, chain=chain)
        keys = [(split, task.id, context.digest, repeat) for task in tasks]
        known = self._state.evaluated
        todo = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
        fresh = await top.gather([(task.id, partial(_attempt, act, task, context)) for task in todo.values()])
        await self.require_working_agent()
        self.chain.join([chain])
        self._state.rests_on.update(dict.fromkeys(todo, frozenset(chain.losses)))
        self.chain.losses.update(*(self._state.rests_on.get(key, ()) for key in keys))
        dead = self.provider_failed or all(attempt.trace.lost for attempt in known.values())
        if fresh and dead and all(attempt.trace.lost for attempt in fresh):
            # A resume, or the same command, asks again for answers without text: the model's server may have changed.
            self.try_again([top.place])
            raise ProviderError(
                "attempts.all_failed", f"none of {len(fresh)} tasks could be evaluated: {fresh[0].trace.error}"
            )
        known.update(zip(todo, fresh, strict=True))
        if self._state.keep_evaluated is not None:
            self._state.keep_evaluated(fresh)
        return [known[key] for key in keys]

    def require_own(self, sources: Iterable[str]) -> None:
        """For a method that tries what it writes at once. Raises UsageError if something that would have to wait for
        review is among what it learns from."""
        if self._state.door.review != "none" and (level := trust_of(sources)) != "own":
            raise UsageError(
                "review.impossible",
                f"the attempts of this method brought what is no longer the operator's own ({level}), and what it "
                "writes of that is tried at once: give `review=none`, or `trust_tools` if it is all your own, or learn "
                "with another method",
            )

    def ready(self, delta: Delta) -> tuple[Delta, Delta]:
        """The part of a delta that may enter the context now, and the part that waits for review."""
        ready, held = self._state.door.split(delta.edits)
        return replace(delta, edits=tuple(ready)), Delta(tuple(edit for group in held for edit in group.edits))

    async def admit(self, delta: Delta) -> Admitted:
        """The delta at the door. Refused is what a review rejected before, in other words too, what waits for one in
        the same words, and what builds on either."""
        door, refused = self._state.door, list[Refused]()
        if door.known:
            new = [edit for edit in delta.edits if said(edit)]
            rejected = await self._rejected([said(edit) for edit in new])
            states = (
                REJECTED if before else PENDING if door.repeats(edit) else ""
                for edit, before in zip(new, rejected, strict=True)
            )
            refused = [Refused(edit, WHY[state]) for edit, state in zip(new, states, strict=True) if state]
            self.count(Count.KNOWN_TO_REVIEW, len(refused))
            gone = {one.edit.ref: one.reason for one in refused if isinstance(one.edit, Add) and one.edit.ref}
            builds = ((edit, gone.keys() & named_entries(edit)) for edit in delta.edits)
            refused += [Refused(edit, gone[min(refs)]) for edit, refs in builds if refs]
        out = {id(refusal.edit) for refusal in refused}
        ready, held = door.split(edit for edit in delta.edits if id(edit) not in out)
        door.known |= {text: PENDING for group in held for edit in group.edits if (text := said(edit))}
        self.count(Count.HELD_EDITS, len(held))
        return Admitted(replace(delta, edits=tuple(ready)), tuple(held), (*delta.refused, *refused))

    async def _rejected(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether a review rejected one that says the same, in other words too."""
        known = [text for text, state in self._state.door.known.items() if state == REJECTED]
        if not texts or not known:
            return [False] * len(texts)
        both = [*texts, *known]
        similar = alike(both, await self.embed(both), len(texts), self.same_from)
        # Similar texts with another number, name or answer say something else.
        return [
            any(not tell_apart(text, known[int(n)], self.choices) for n in np.flatnonzero(row))
            for text, row in zip(texts, similar, strict=True)
        ]


async def _attempt(act: ActSeam, task: Task, context: Context, run: Run) -> Attempt:
    attempt = await act(task, context, replace(run, about=(f"task:{task.id}",)))
    if not isinstance(attempt, Attempt):
        found = "None" if attempt is None else type(attempt).__name__
        raise MethodError(
            "method.wrong_result",
            f"`act` of the method returned {found} for task {task.id!r}; it must return an Attempt{KEPT}",
        )
    return attempt
