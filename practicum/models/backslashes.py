r"""Mends single backslashes in the JSON that models write, before it is parsed.

A model that writes `w \times h` in a JSON string means a backslash, and JSON reads a tab and "imes". The rule, for each
text between two quotes:

1. A backslash that begins no JSON escape is a backslash: `\(`, `\alpha`, `\d`, `\underline`.
2. So is one that begins `\b`, `\f`, `\n`, `\r` or `\t`, if it and the letters after it are a LaTeX command of
   `COMMANDS`: `\times`, `\neq`, `\frac`, `\beta`, `\rho`.
3. Some commands leave a word or a usual name behind their first letter, which may follow a real line break or tab:
   `\nu` and `\ni` (u, i), `\to`, `\tan` (an). These are commands within `$ … $`; and in a text with a single backslash
   by rule 1 or 2 and no doubled one before a letter, whose writer does not escape.
4. In such a text `\b` and `\f` are backslashes too (a regular expression), and `\\` before a space is two.

All other escapes stay: `\n` before "next" is a line break. What a serializer wrote stays as it is unless a control
character in it stands before the letters that complete a command of rule 2 or, within `$ … $`, of rule 3.
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
"""LaTeX commands that begin as a JSON escape does, whose other letters are no word."""

AMBIGUOUS = frozenset(_AMBIGUOUS.split())
"""Commands whose other letters are a word or a usual name."""

WITH_BRACE = frozenset(_WITH_BRACE.split())
"""Commands that are certain before a brace: `\\text{…}`."""

_BETWEEN_QUOTES = re.compile(r'(?:[^"\\]++|\\.)++', re.DOTALL)
_BACKSLASH = re.compile(r"\\(\\|u[0-9a-fA-F]{4}|[A-Za-z]++|.)", re.DOTALL)
_CODE = re.compile("u[0-9a-fA-F]{4}")
_CONTROLS, _OTHERS = "bfnrt", "\"'/\\"


def mend_backslashes(text: str) -> str:
    """A text with JSON in it, whose single backslashes are doubled by the rule above."""
    return _BETWEEN_QUOTES.sub(lambda part: _mended(part[0]), text) if "\\" in text else text


def _mended(part: str) -> str:
    if "\\" not in part:
        return part
    found = list(_BACKSLASH.finditer(part))
    # A writer who doubles one backslash before a letter means line breaks by the single ones.
    escapes = any(match[1] == "\\" and part[match.end() : match.end() + 1].isalpha() for match in found)
    careless = not escapes and any(_certain(match, part) for match in found)

    def backslash(match: re.Match[str]) -> str:
        word = match[1]
        if word == "\\":
            return r"\\\\" if careless and part[match.end() : match.end() + 1].isspace() else match[0]
        meant = _certain(match, part) or (
            (careless and (word in AMBIGUOUS or word[0] in "bf")) or (word in AMBIGUOUS and _in_formula(match, part))
        )  # fmt: skip
        return f"\\{match[0]}" if meant else match[0]

    return _BACKSLASH.sub(backslash, part)


def _certain(match: re.Match[str], part: str) -> bool:
    """Whether this is a backslash whatever else the text has."""
    word = match[1]
    if word[0] in _OTHERS or _CODE.fullmatch(word):
        return False
    if word[0] not in _CONTROLS:
        return True
    return word in COMMANDS or (word in WITH_BRACE and part[match.end() : match.end() + 1] == "{")


def _in_formula(match: re.Match[str], part: str) -> bool:
    """Whether it stands between two dollar signs."""
    return part.count("$", 0, match.start()) % 2 == 1 and "$" in part[match.end() :]
