"""Generate `practicum/core/lookalikes.txt`: the characters that look like a Latin letter, one line a letter.

    pip install confusable_homoglyphs==3.3.1      # Unicode's confusables.txt as JSON
    python bench/lookalikes.py > practicum/core/lookalikes.txt

Sources: the confusables of Unicode's UTS #39, the names in Python's `unicodedata` (small capitals, negative circles,
regional indicators, turned and stroked letters), and the letters in EXTRA, which UTS #39 does not have. Characters that
NFKC turns into a letter are left out, because the filter normalises texts first.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from string import ascii_lowercase

from confusable_homoglyphs.confusables import confusables_data

EXTRA = {
    "a": "ᗩ∀卂", "b": "ßъьҍ乃", "c": "匚¢", "d": "∂ԁ", "e": "єэҿ∈€乇", "f": "ʄ千", "g": "ցԍ", "h": "ңћђ卄", "i": "ї丨ꭵ",
    "j": "ʝ", "k": "κқҝ", "l": "ւ", "m": "๓从爪", "n": "ηпийл几", "o": "ωᎾᏫѳθ口ტ", "p": "ρ卩", "q": "զ", "r": "яг尺ʁ",
    "s": "ѕꙅ丂", "t": "†тʈ", "u": "μцᥙսㄩ", "v": "νѵ", "w": "шщωѡ山", "x": "χж乂", "y": "үұýㄚ", "z": "乙",
}  # fmt: skip
"""Latin letter → characters that leet and styled alphabets write for it."""

NAMED = re.compile(
    r"(?:LATIN (?:CAPITAL |SMALL )?LETTER|(?:NEGATIVE|CROSSED NEGATIVE|REGIONAL) .*\bLETTER)"
    r"(?: (?:SMALL CAPITAL|TURNED|REVERSED|SIDEWAYS|INVERTED|BLACKLETTER|SCRIPT|OPEN|CLOSED|BARRED|DOTLESS|LONG"
    r"|TAILLESS|HALF|STRETCHED|INSULAR|FLATTENED))*"
    r" (?P<letter>[A-Z]|SCHWA|ENG|ESH|EZH|ETH|IOTA|ALPHA|UPSILON)(?: WITH .*)?"
)
LETTERS = {"SCHWA": "e", "ENG": "n", "ESH": "s", "EZH": "z", "ETH": "d", "IOTA": "i", "ALPHA": "a", "UPSILON": "u"}
DIGITS = dict(zip("01358", "oiesb", strict=True))


def confusable(character: str) -> str:
    """Return the Latin letter that UTS #39 lists for this character, or an empty text."""
    for one in (character, character.upper(), character.lower()):
        for match in confusables_data.get(one, ()):
            letter = DIGITS.get(match["c"], match["c"]).lower()
            if letter in ascii_lowercase and len(letter) == 1:
                return letter
    return ""


def named(character: str) -> str:
    """Return the letter in the Unicode name of this character, or an empty text."""
    match = NAMED.fullmatch(unicodedata.name(character, ""))
    return "" if match is None else LETTERS.get(match["letter"], match["letter"].lower())


def table() -> dict[str, str]:
    """Return the lookalikes of each letter, in order of their code points."""
    lines = {letter: set[str]() for letter in ascii_lowercase}
    extra = {c: letter for letter, characters in EXTRA.items() for c in characters}
    for character in map(chr, range(0x80, sys.maxunicode + 1)):
        plain = "".join(c for c in unicodedata.normalize("NFKD", character) if not unicodedata.combining(c)).lower()
        if unicodedata.category(character)[0] not in "LNSP" or (plain.isascii() and plain[:1].strip()):
            continue
        if letter := extra.get(character) or named(character) or confusable(character):
            lines[letter].add(character)
    return {letter: "".join(sorted(lookalikes)) for letter, lookalikes in lines.items()}


if __name__ == "__main__":
    print("# Characters that are taken for the letter at the head of their line. Generated: bench/lookalikes.py.")
    print("# Derived from Unicode data (confusables.txt, character names), © Unicode, Inc., Unicode License v3.")
    for letter, characters in table().items():
        print(letter, characters)
