"""Particulars of a text that code can detect: numbers, names, identifiers, quotations. A rule that loses its
particulars is worthless. A weak model that rewords a rule may change the particulars, and the embeddings of the two
texts barely differ after such a change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from practicum.tasks.scoring.rules import named_choices

_PARTICULAR = re.compile(
    r"""`[^`]+` | "[^"]+"                                                          # quotations
    | (?<!\w) \w*\d (?: [\w.,:/%-]*\w )? (?!\w)                                      # numbers and codes
    | (?<!\w) (?: \w+_\w+ | [A-Z]{2,} | [a-z]+[A-Z]\w* ) (?!\w)                     # identifiers, abbreviations
    | (?<=[a-z,;:][ ]) [A-Z][a-z][\w-]+                                             # names within a sentence
    """,
    re.VERBOSE,
)
_NOT = re.compile(
    r"""\b(?:
      not | never | no | nor | cannot | without | avoid
    | nicht | kein\w* | nie | niemals | ohne | weder | niet | geen | nooit | zonder | inte | ej | ikke | aldrig | utan
    | ne | pas | jamais | sans | aucune? | ni | nunca | jamás | sin | ning[uú]n\w* | tampoco | não | nem | sem
    | nenhum\w* | non | mai | senza | nessun\w* | né | nigdy | bez | ani | żad\w* | nikdy | žádn\w* | nincs | nélkül
    | không | chưa | chẳng | đừng | tidak | bukan | jangan | tanpa | değil | yok | asla | \w{2,}m[ae]z
    | не | нет | ни | нельзя | никогда | ні | немає | ніколи | без
    | δεν? | μην? | όχι | χωρίς | ποτέ | ούτε | κανέν\w*
    | لا | لم | لن | ليس\w* | غير | بدون | دون | לא | אין | אל | בלי | ללא | 안
    )\b
    | n't\b | \bn['’](?=\w)
    | [不没沒無无未勿莫别非] | ない | なく | なけ | ません | ずに | 않 | 못 | 없 | 지\ ?마
    | नहीं | बिना | \bमत\b | ไม่""",
    re.IGNORECASE | re.VERBOSE,
)
"""Negations in English and in the most common languages of the Web: as words, or, in languages without spaces between
words, as characters."""


def particulars(text: str) -> frozenset[str]:
    """Return the numbers, names, identifiers and quotations in a text, in lower case."""
    return frozenset(match.strip('`"').casefold() for match in _PARTICULAR.findall(text))


def lost(original: str, new: str) -> frozenset[str]:
    """Return the particulars of the original text that the new text does not have."""
    folded = new.casefold()
    return frozenset(p for p in particulars(original) if not _contains(folded, p))


def _contains(text: str, particular: str) -> bool:
    """Return whether a text has this particular as a whole word or number, not only within a longer word or number. The
    text is searched without a regular expression, because a compiled pattern for each particular would take five times
    as long."""
    at = text.find(particular)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(particular) :][:1]
        if not (_in_word(before) or before in (".", ",") or _in_word(after)):
            return True
        at = text.find(particular, at + 1)
    return False


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def answers_named(text: str, choices: Sequence[str]) -> frozenset[str]:
    """Return the answers in `choices` that a text names as whole words. The article "a" is not the answer A."""
    return frozenset(named_choices(choices, text)) if choices else frozenset()


def _negated(text: str) -> bool:
    # A letter with an accent may be written as two characters.
    return _NOT.search(text if text.isascii() else unicodedata.normalize("NFC", text)) is not None


def differ_in_particulars(one: str, other: str, choices: Sequence[str] = ()) -> bool:
    """Return whether two similar texts differ in a particular, in the answers of `choices` that the texts name, or in
    whether the text has a negation."""
    if one == other:
        return False
    if lost(one, other) or lost(other, one):
        return True
    return _negated(one) != _negated(other) or answers_named(one, choices) != answers_named(other, choices)
