"""The scorer `coverage`: which of the given concepts a text uses, in whatever form (CommonGen-Hard, Self-Refine 2023).

A concept is used where a word has its stem, by the Snowball stemmer for English, or is one of its irregular forms. A
stem is coarser than a lemma: "operator" counts as "operate". A concept of several words must stand as written, each
word by its stem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from practicum.core.errors import TaskFileError
from practicum.core.types import Score, Task, Trace

SHOWN = 12
"""Missing concepts that a note names."""


@dataclass(frozen=True)
class Coverage:
    """The share of `meta.concepts` that the answer uses; right where it uses all."""

    name: str = field(default="coverage", init=False)
    needs_target: bool = field(default=False, init=False)

    def __call__(self, task: Task, trace: Trace) -> Score:
        """The share, in [0, 1]. Raises TaskFileError for a task without concepts."""
        if trace.error is not None:
            return Score(0.0, False, trace.error)
        if fault := concepts_fault(task.meta, self.name):
            raise TaskFileError(f"task {task.id!r} {fault}")
        return covered(task.meta["concepts"], trace.answer)


def covered(concepts: Sequence[str], text: str) -> Score:
    """Share of the concepts that the text uses; the note names those it does not."""
    wanted = list(dict.fromkeys(concepts))
    stem = _stemmer()
    # A form may be a word of its own too: "shot" is one of "shoot".
    said = [{stem(word), stem(_regular().get(word, word))} for word in _words(text)]
    missing = [concept for concept in wanted if not _stands([stem(word) for word in _words(concept)], said)]
    if not missing:
        return Score(1.0, True)
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    note = (
        f"{len(wanted) - len(missing)} of {len(wanted)} concepts are used; missing: {', '.join(missing[:SHOWN])}{more}"
    )
    return Score((len(wanted) - len(missing)) / len(wanted), False, note)


def concepts_fault(meta: Mapping[str, Any], scorer: str) -> str | None:
    """Why there are no concepts to look for, to be read after "task X"; else None."""
    concepts = meta.get("concepts")
    if isinstance(concepts, list) and concepts and all(isinstance(c, str) and _words(c) for c in concepts):
        return None
    return f"has no meta.concepts (a list of words), which scorer {scorer!r} needs"


def _stands(stems: Sequence[str], said: Sequence[Set[str]]) -> bool:
    """Whether these stems follow each other somewhere."""
    starts = range(len(said) - len(stems) + 1)
    return any(all(stem in said[start + i] for i, stem in enumerate(stems)) for start in starts)


def _stemmer() -> Callable[[str], str]:
    import snowballstemmer

    stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return stem


def _words(text: str) -> list[str]:
    return [
        word.removesuffix("'s") for word in re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower().replace("\u2019", "'"))
    ]


@cache
def _regular() -> Mapping[str, str]:
    """The word that each irregular form belongs to."""
    rows = (row.partition(":") for row in IRREGULAR.split())
    return {form: word for word, _, forms in rows for form in forms.split(",")}


# Forms that no rule of endings gives; those that are words of their own (saw, left, bit, ground, wound) stay out.
IRREGULAR = """
arise:arose,arisen awake:awoke,awoken be:am,is,are,was,were,been bear:bore,borne beat:beaten become:became
begin:began,begun bend:bent bite:bitten bleed:bled blow:blew,blown break:broke,broken breed:bred bring:brought
build:built burn:burnt buy:bought catch:caught choose:chose,chosen cling:clung come:came creep:crept deal:dealt
dig:dug do:did,done,does draw:drew,drawn dream:dreamt drink:drank,drunk drive:drove,driven eat:ate,eaten
fall:fell,fallen feed:fed feel:felt fight:fought find:found flee:fled fling:flung fly:flew,flown,flies
forget:forgot,forgotten forgive:forgave,forgiven freeze:froze,frozen get:got,gotten give:gave,given go:went,gone,goes
grow:grew,grown hang:hung have:had,has hear:heard hide:hid,hidden hold:held keep:kept kneel:knelt know:knew,known
lay:laid lead:led leap:leapt learn:learnt lend:lent lie:lain,lying light:lit lose:lost make:made mean:meant meet:met
mow:mown pay:paid ride:rode,ridden ring:rang,rung rise:risen run:ran say:said see:seen seek:sought sell:sold send:sent
sew:sewn shake:shook,shaken shear:shorn shine:shone shoot:shot show:shown shrink:shrank,shrunk sing:sang,sung
sink:sank,sunk sit:sat sleep:slept slide:slid sling:slung smell:smelt sow:sown speak:spoke,spoken spend:spent
spill:spilt spin:spun spit:spat spring:sprang,sprung stand:stood steal:stole,stolen stick:stuck sting:stung
stink:stank,stunk stride:strode strike:struck,stricken string:strung swear:swore,sworn sweep:swept swell:swollen
swim:swam,swum swing:swung take:took,taken teach:taught tear:tore,torn tell:told think:thought throw:threw,thrown
tie:tying die:dying,died dye:dyed,dyeing wake:woke,woken wear:wore,worn weave:wove,woven weep:wept win:won
write:wrote,written
calf:calves child:children elf:elves foot:feet goose:geese half:halves knife:knives life:lives loaf:loaves man:men
mouse:mice person:people scarf:scarves shelf:shelves thief:thieves tooth:teeth wife:wives wolf:wolves woman:women
policeman:policemen fisherman:fishermen fireman:firemen axis:axes
"""
