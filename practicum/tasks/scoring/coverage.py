"""Scorer `coverage`: the share of required concepts that a text uses, in any form (CommonGen-Hard, Self-Refine 2023).

A text uses a concept if a word of the text has the same stem as the concept (Snowball stemmer for English), or is an
irregular form of the concept. A stem is coarser than a lemma: "operator" counts as "operate". The words of a concept
with several words must follow each other in the text; each word is compared by its stem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from practicum.core.types import Score

MAX_NAMED = 12  # maximum number of missing concepts that a note names


def concept_coverage(concepts: Sequence[str], text: str) -> Score:
    """Return the share of the concepts that the text uses, in [0, 1]; the note names the missing concepts."""
    import Stemmer

    required = list(dict.fromkeys(concepts))
    stem = Stemmer.Stemmer("english").stemWord
    # A word may be both a word with its own stem and an irregular form: "shot" is a noun, and a form of "shoot".
    stems = [{stem(word), stem(_base_forms().get(word, word))} for word in _words(text)]

    def uses(concept: str) -> bool:
        concept_stems = [stem(word) for word in _words(concept)]
        starts = range(len(stems) - len(concept_stems) + 1)
        return any(all(stem in stems[start + i] for i, stem in enumerate(concept_stems)) for start in starts)

    missing = [concept for concept in required if not uses(concept)]
    if not missing:
        return Score(1.0, True)
    used = len(required) - len(missing)
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    note = f"{used} of {len(required)} concepts are used; missing: {', '.join(missing[:MAX_NAMED])}{more}"
    return Score(used / len(required), False, note)


def concepts_fault(meta: Mapping[str, Any], scorer: str) -> str | None:
    """Return why a task has no usable concepts, phrased to follow "task X"; None if the concepts are usable."""
    concepts = meta.get("concepts")
    if isinstance(concepts, list) and concepts and all(isinstance(c, str) and _words(c) for c in concepts):
        return None
    return f"has no meta.concepts (a list of words), which scorer {scorer!r} needs"


def _words(text: str) -> list[str]:
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower().replace("\u2019", "'"))
    return [word.removesuffix("'s") for word in words]


@cache
def _base_forms() -> Mapping[str, str]:
    """Return the mapping from each irregular form to its base form."""
    return {form: word for word, forms in (row.split(":") for row in IRREGULAR.split()) for form in forms.split(",")}


# Irregular forms. Forms that are also other words (saw, left, bit, ground, wound) are omitted.
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
