"""Class `Run`, through which a method causes every effect.

A `Run` is a place in the journal (`engine.place`). Through a `Run`, models are called (`engine.calls`), tasks are
attempted and scored (`engine.attempts`), texts are embedded, entries are searched, and deltas are checked before they
are applied (`engine.admission`).
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
from practicum.engine.admission import Admitted, edit_statement, named_entries
from practicum.engine.attempts import Attempts
from practicum.engine.place import KEPT, Chain
from practicum.engine.specifics import differ_in_particulars
from practicum.retrieval.scripts import alike
from practicum.retrieval.search import VISIBLE, EntryPredicate, Match
from practicum.store.reviews import PENDING, REJECTED, WHY

ActSeam = Callable[[Task, Context, "Run"], Awaitable[Attempt]]
"""Attempts one task under a context and returns the scored attempt, exactly as in evaluation."""


class Run(Attempts):
    """Place in a run. A method has all its effects through `Run` objects: model calls, attempts, scores, embeddings,
    randomness.

    `Place` defines the fields.
    """

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        """Report to the observer that a step begins."""
        self._state.observer.stepping(step, tasks, steps)

    def completed(self, view: View) -> View:
        """Add to a view the texts that an agent sees in addition to the context, such as corrections."""
        return view if self._state.complete is None else self._state.complete(view)

    @property
    def reusable(self) -> dict[str, dict[tuple[object, str, int], Attempt]]:
        """Attempts to reuse for later attempts at the same task. The keys of the outer mapping are digests of the
        contexts under which the attempts were made."""
        return self._state.reusable

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors of unit length, shape (n, d). Each text is embedded only once per store; later calls read the
        stored vector."""
        return await self._state.vectors(texts)

    async def nearest(self, context: Context, text: str, k: int, where: EntryPredicate = VISIBLE) -> list[Match]:
        """Return the `k` entries of a context that are most similar to a text, best first. Each place allows only one
        search. Of two equally similar entries, the older entry comes first. Matches from an approximate index are noted
        in the journal, because an index that is rebuilt before a resume may find other entries."""
        noted = self.recall("nearest")
        if noted is not None:
            self._open(f"{self.place}/nearest")
            return [Match(entry, similarity) for id, similarity in noted if (entry := context.get(id)) is not None]
        search = await self._state.retriever.nearest(context, text, k, where)
        if search.exact:
            self._open(f"{self.place}/nearest")
        else:
            self.note("nearest", [(near.entry.id, near.similarity) for near in search.matches])
        return list(search.matches)

    async def evaluate(
        self, act: ActSeam, split: str, tasks: Sequence[Task], context: Context, repeat: int = 0
    ) -> list[Attempt]:
        """Make one attempt at each task under `context`, with `act` only. Results are stored by split, task, digest of
        the context and `repeat`, so a second evaluation with equal arguments makes no calls.

        Raises ProviderError if every new attempt was lost. Exception: if all these attempts were lost only because
        answers could not be parsed, and an earlier evaluation had valid answers, no error is raised. The journal stores
        the answers that could not be parsed, so a resume would fail again.
        """
        # The name of the place contains the digest of the context, so the results at this place do not depend on
        # earlier failures.
        chain = Chain(self.chain.seconds)
        top = Run(self._state, f"evaluate {split} {context.digest} {repeat}", teaches=False, chain=chain)
        keys = [(split, task.id, context.digest, repeat) for task in tasks]
        evaluated = self._state.evaluated
        todo = {key: task for key, task in zip(keys, tasks, strict=True) if key not in evaluated}
        fresh = await top.gather([(task.id, partial(_attempt, act, task, context)) for task in todo.values()])
        await self.require_working_agent()
        self.chain.join([chain])
        self._state.rests_on.update(dict.fromkeys(todo, frozenset(chain.losses)))
        self.chain.losses.update(*(self._state.rests_on.get(key, ()) for key in keys))
        dead = self.provider_failed or all(attempt.trace.lost for attempt in evaluated.values())
        if fresh and dead and all(attempt.trace.lost for attempt in fresh):
            # A resume, or the same command given again, repeats the calls of this evaluation whose answers had no text:
            # the model's server may have changed.
            self.try_again([top.place])
            raise ProviderError(
                "attempts.all_failed", f"none of {len(fresh)} tasks could be evaluated: {fresh[0].trace.error}"
            )
        evaluated.update(zip(todo, fresh, strict=True))
        if self._state.keep_evaluated is not None:
            self._state.keep_evaluated(fresh)
        return [evaluated[key] for key in keys]

    def require_own(self, sources: Iterable[str]) -> None:
        """Raise UsageError if reviews are on and one of these sources is less trusted than the operator. This check is
        for methods that try their edits before any review, because such edits cannot wait for review."""
        if self._state.admission.review != "none" and (level := trust_of(sources)) != "own":
            raise UsageError(
                "review.impossible",
                f"the attempts of this method read untrusted texts (trust level {level}), and the method tries edits "
                "made from them before any review: pass `review=none`, or `trust_tools` if all texts are your own, or "
                "use another method",
            )

    def ready(self, delta: Delta) -> tuple[Delta, Delta]:
        """Split a delta into the part that may enter the context now, and the part that waits for review."""
        ready, held = self._state.admission.split(delta.edits)
        return replace(delta, edits=tuple(ready)), Delta(tuple(edit for group in held for edit in group.edits))

    async def admit(self, delta: Delta) -> Admitted:
        """Check a delta before it is applied. Refuses edits that a review rejected before, even if they are worded
        differently now; edits that must wait for review and have the same text as an edit that waits already; and edits
        that change or vote on the entry of a refused edit."""
        admission, refused = self._state.admission, list[Refused]()
        if admission.review_states:
            new = [edit for edit in delta.edits if edit_statement(edit)]
            rejected = await self._rejected([edit_statement(edit) for edit in new])
            states = (
                REJECTED if before else PENDING if admission.repeats(edit) else ""
                for edit, before in zip(new, rejected, strict=True)
            )
            refused = [Refused(edit, WHY[state]) for edit, state in zip(new, states, strict=True) if state]
            self.count(Count.KNOWN_TO_REVIEW, len(refused))
            refused_refs = {one.edit.ref: one.reason for one in refused if isinstance(one.edit, Add) and one.edit.ref}
            builds = ((edit, refused_refs.keys() & named_entries(edit)) for edit in delta.edits)
            refused += [Refused(edit, refused_refs[min(refs)]) for edit, refs in builds if refs]
        out = {id(refusal.edit) for refusal in refused}
        ready, held = admission.split(edit for edit in delta.edits if id(edit) not in out)
        admission.review_states |= {
            text: PENDING for group in held for edit in group.edits if (text := edit_statement(edit))
        }
        self.count(Count.HELD_EDITS, len(held))
        return Admitted(replace(delta, edits=tuple(ready)), tuple(held), (*delta.refused, *refused))

    async def _rejected(self, texts: Sequence[str]) -> list[bool]:
        """For each text, return whether a review rejected a similar text with the same meaning."""
        rejected = [text for text, state in self._state.admission.review_states.items() if state == REJECTED]
        if not texts or not rejected:
            return [False] * len(texts)
        both = [*texts, *rejected]
        similar = alike(both, await self.embed(both), len(texts), self.same_from)
        # Similar texts that differ in a number, a name or an answer differ in meaning.
        return [
            any(not differ_in_particulars(text, rejected[int(n)], self.choices) for n in np.flatnonzero(row))
            for text, row in zip(texts, similar, strict=True)
        ]


async def _attempt(act: ActSeam, task: Task, context: Context, run: Run) -> Attempt:
    attempt = await act(task, context, replace(run, about=(f"task:{task.id}",)))
    if not isinstance(attempt, Attempt):
        returned = "None" if attempt is None else type(attempt).__name__
        raise MethodError(
            "method.wrong_result",
            f"`act` of the method returned {returned} for task {task.id!r}; it must return an Attempt{KEPT}",
        )
    return attempt
