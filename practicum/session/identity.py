"""Identities of names that are unique within one run, for contexts that seed another run.

Within a run, an attempt is named by its place, a lesson by the place where it was made, and a task without an id by its
line in the file. These names are short, and equal in equal runs. But another run uses the same names for other
attempts, lessons and tasks. So in a seed (the context that a run starts with), each of these names contains an
identity, which is a digest of the seed's contents, such as "attempt:seed 3f9a1c2b/step 1/attempt/0.line-2". A name
keeps its identity, so a trace has the same name in all later runs. A task id set by the user stays unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from practicum.core.edits import Add, ordered_union
from practicum.methods.blocks.network import IDENTIFIED, POOL, with_trace_ids
from practicum.store.journal import digest
from practicum.tasks.records import BY_POSITION


def identified(adds: Sequence[Add]) -> list[Add]:
    """Return the entries of a seed. In the sources of the entries, an identity is added to each name of an attempt, a
    lesson or a task that another run could use too.

    The name of an attempt gets the identity of the attempt's trace if the seed holds the trace, so that attempts of
    merged contexts stay distinct. All other names get the identity of the seed, a digest of its contents.
    """
    adds = with_trace_ids(adds)
    traces: dict[str, dict[str, None]] = defaultdict(dict)
    for add in adds:
        identity, place = _split(_trace(add))
        traces[place][identity] = None
    brought = [[x.section, x.text, x.key, dict(x.data), x.sources] for x in adds if _is_local(x)]
    seed = f"seed {digest(brought)[:8]}/"

    def named(source: str, own: str) -> Iterable[str]:
        if not _is_local_source(source):
            return (source,)
        kind, _, id = source.partition(":")
        identity, place = _split(own)
        # The sources of an entry may include attempts other than the attempt that the entry belongs to.
        prefixes = (seed,) if kind == "task" else (identity,) if place == id else traces.get(id, (seed,))
        return (f"{kind}:{before}{id}" for before in prefixes)

    def below(add: Add) -> Add:
        lesson = {"lesson": f"{seed}{add.data['lesson']}"} if _has_local_lesson(add) else {}
        sources = ordered_union(named(source, _trace(add)) for source in add.sources)
        return replace(add, sources=sources, data={**add.data, **lesson})

    return [below(add) if _is_local(add) else add for add in adds]


def namesakes(names: Iterable[str], sources: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that had one of these names in an earlier run."""
    requested = {*names}
    parts = ((source, *source.partition(":")) for source in sources)
    return tuple(
        sorted(
            source for source, kind, _, id in parts if IDENTIFIED.match(id) and f"{kind}:{_split(id)[1]}" in requested
        )
    )


def _split(name: str) -> tuple[str, str]:
    """Return the identity of a name ("" for a name without an identity), and the name without the identity."""
    match = IDENTIFIED.match(name)
    return (match[0], name[match.end() :]) if match else ("", name)


def _trace(add: Add) -> str:
    """Return the id of the trace that an entry belongs to, if the entry is an experience in a pool; "" for other
    entries."""
    return str(add.data.get("trace", "")) if add.section.startswith(POOL) else ""


def _is_local(add: Add) -> bool:
    """Return whether an entry has a name that is unique within one run only."""
    return _has_local_lesson(add) or any(map(_is_local_source, add.sources))


def _is_local_source(source: str) -> bool:
    kind, _, id = source.partition(":")
    if IDENTIFIED.match(id):
        return False
    return kind == "attempt" or (kind == "task" and BY_POSITION.fullmatch(id) is not None)


def _has_local_lesson(add: Add) -> bool:
    """Return whether the data of an entry names a lesson without an identity."""
    return "lesson" in add.data and not IDENTIFIED.match(str(add.data["lesson"]))
