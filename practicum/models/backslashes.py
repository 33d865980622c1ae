r"""Repair of unescaped backslashes in model-written JSON, before it is parsed.

A model that writes `w \times h` in a JSON string means a backslash, but JSON reads a tab and "imes". For each string
between two quotes, these rules decide which backslashes are literal and are doubled:

1. A backslash that does not begin a JSON escape is literal: `\(`, `\alpha`, `\d`, `\underline`.
2. The backslash of `\b`, `\f`, `\n`, `\r` or `\t` is literal if this backslash and the letters after it are a LaTeX
   command of `COMMANDS`: `\times`, `\neq`, `\frac`, `\beta`, `\rho`.
3. Some commands are ambiguous: without its first letter, the command is a word or a common name, which may follow a
   real line break or tab: `\nu` and `\ni` (u, i), `\to` (o), `\tan` (an). An ambiguous command counts as a command
   within `$ … $`, and in unescaped strings. A string is unescaped if it has a literal backslash by rule 1 or 2, and no
   doubled backslash before a letter.
4. In unescaped strings, the backslashes of `\b` and `\f` are literal too (a regular expression), and `\\` before a
   space is two literal backslashes.

All other escapes are unchanged: `\n` before "next" is a line break. JSON from a serializer is unchanged, with one
exception: an escaped control character, such as a tab, is changed if this character and the letters after it look like
a command of rule 2 or, within `$ … $`, of rule 3.
"""

from __future__ import annotations

import re

_CERTAIN = """\
backepsilon backprime backsim backsimeq backslash bar barwedge because begin beta beth between bf bfseries bgroup big
bigcap bigcirc bigcup bigg biggl biggm biggr bigl bigm bigodot bigoplus bigotimes bigr bigsqcup bigstar bigtriangledown
bigtriangleup biguplus bigvee bigwedge binom blacklozenge blacksquare blacktriangle blacktriangledown bm bmod bold
boldsymbol bot bowtie box boxdot boxed boxminus boxplus boxtimes bra braket breve bullet bumpeq
fallingdotseq fbox fcolorbox flat footnote footnotesize forall frac frak framebox frown
nLeftarrow nRightarrow nVdash nabla natural ncong nearrow neq newcommand newline newpage ngeq ngeqq ngeqslant ngtr
nleftarrow nleftrightarrow nleq nleqq nleqslant nobreak nocite noindent nolimits nolinebreak nonumber normalsize not
notag notin npreceq nrightarrow nshortmid nsubseteq nsucceq nsupseteq ntriangleleft ntriangleright nvDash nvdash
nwarrow
raggedright raisebox rangle rbrace rbrack rceil ref renewcommand resizebox rfloor rgroup rhd rho right rightarrow
rightarrowtail rightharpoondown rightharpoonup rightleftarrows rightleftharpoons rightrightarrows rightsquigarrow
rightthreetimes risingdotseq rm rmfamily rmoustache root rtimes rule rVert rvert
tableofcontents tanh tau tbinom textbf textbackslash textcolor textit textrm textsc textsf textstyle textsuperscript
textsubscript texttt textwidth tfrac therefore theta thickapprox thicksim thinspace tilde times tiny today triangle
triangledown triangleleft trianglelefteq triangleq triangleright trianglerighteq ttfamily twoheadleftarrow
twoheadrightarrow"""

_AMBIGUOUS = "ne neg nexists ni nless nmid nparallel nprec nsim nsubset nsucc nsupset nu tan to top tt"

_WITH_BRACE = "tag text thanks title"

COMMANDS = frozenset(_CERTAIN.split())
"""LaTeX commands of rule 2. With its backslash, each of these commands begins like a JSON escape. Without its first
letter, a command of this list is not a word."""

AMBIGUOUS = frozenset(_AMBIGUOUS.split())
"""Commands of rule 3. The letters after the first letter of such a command are a word or a common name."""

WITH_BRACE = frozenset(_WITH_BRACE.split())
"""Commands that rule 2 includes only before a brace: `\\text{…}`."""

_BETWEEN_QUOTES = re.compile(r'(?:[^"\\]++|\\.)++', re.DOTALL)
_BACKSLASH = re.compile(r"\\(\\|u[0-9a-fA-F]{4}|[A-Za-z]++|.)", re.DOTALL)
_CODE = re.compile("u[0-9a-fA-F]{4}")
_CONTROLS, _OTHERS = "bfnrt", "\"'/\\"


def mend_backslashes(text: str) -> str:
    """Double the literal backslashes of JSON strings in a text, by the rules of this module."""
    return _BETWEEN_QUOTES.sub(lambda part: _mended(part[0]), text) if "\\" in text else text


def _mended(part: str) -> str:
    if "\\" not in part:
        return part
    matches = list(_BACKSLASH.finditer(part))
    # If a backslash before a letter is doubled, the string is escaped, so `\n` is a line break.
    escapes = any(match[1] == "\\" and part[match.end() : match.end() + 1].isalpha() for match in matches)
    unescaped = not escapes and any(_certain(match, part) for match in matches)

    def backslash(match: re.Match[str]) -> str:
        word = match[1]
        if word == "\\":
            return r"\\\\" if unescaped and part[match.end() : match.end() + 1].isspace() else match[0]
        literal = _certain(match, part) or (
            (unescaped and (word in AMBIGUOUS or word[0] in "bf")) or (word in AMBIGUOUS and _in_formula(match, part))
        )  # fmt: skip
        return f"\\{match[0]}" if literal else match[0]

    return _BACKSLASH.sub(backslash, part)


def _certain(match: re.Match[str], part: str) -> bool:
    """Return whether this backslash is literal by rule 1 or 2. These two rules do not depend on other backslashes in
    the string."""
    word = match[1]
    if word[0] in _OTHERS or _CODE.fullmatch(word):
        return False
    if word[0] not in _CONTROLS:
        return True
    return word in COMMANDS or (word in WITH_BRACE and part[match.end() : match.end() + 1] == "{")


def _in_formula(match: re.Match[str], part: str) -> bool:
    """Return whether this backslash is between two dollar signs."""
    return part.count("$", 0, match.start()) % 2 == 1 and "$" in part[match.end() :]
