"""Credentials and personal data in a text, for the filter of learned texts and for redaction.

Credentials are matched by detect-secrets' patterns for keys of known form. Two parts of detect-secrets are not used:
the entropy detectors, which flag ids and numbers as keys, and the network check. Numbers with a checksum (cards, IBANs,
personal id numbers) are validated by python-stdnum, so that other numbers in a task rarely match. Names and postal
addresses have no fixed form and are not detected.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any, Literal, get_args

Kind = Literal["secrets", "emails", "cards", "ibans", "ids", "phones", "ips"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of sensitive values, most serious first: where two values overlap, the more serious kind counts."""

NOUNS: dict[Kind, str] = {
    "secrets": "secret",
    "emails": "email",
    "cards": "card",
    "ibans": "iban",
    "ids": "id",
    "phones": "phone",
    "ips": "ip",
}
"""Noun for a value of each kind, as in its placeholder `<email-3f2a9c01d4b7>`."""


@dataclass(frozen=True, slots=True)
class SensitiveValue:
    """A sensitive value at `text[start:end]`. `label` describes the value without quoting it."""

    kind: Kind
    label: str
    start: int
    end: int


PLACEHOLDER = re.compile(f"<(?:{'|'.join(NOUNS.values())})-[0-9a-f]{{12}}>")
"""Placeholder of a redacted value (see `core.redact`)."""


def find(text: str, kinds: Iterable[Kind] = KINDS) -> list[SensitiveValue]:
    """Return the sensitive values of these kinds in a text, in the order of their positions. Overlapping values are
    joined into one value of the most serious kind among them. No value overlaps a placeholder."""
    joined: list[SensitiveValue] = []
    for value in sorted(_detect(text, tuple(kinds)), key=lambda value: value.start):
        if not joined or value.start >= joined[-1].end:
            joined.append(value)
            continue
        last = joined[-1]
        serious = min(last, value, key=lambda value: KINDS.index(value.kind))
        joined[-1] = SensitiveValue(serious.kind, serious.label, last.start, max(last.end, value.end))
    return joined


def _detect(text: str, kinds: tuple[Kind, ...]) -> Iterator[SensitiveValue]:
    start = 0
    for end, after in [*(match.span() for match in PLACEHOLDER.finditer(text)), (len(text), 0)]:
        part = text[start:end]
        for kind in kinds:
            for value in _FINDERS[kind](part):
                yield replace(value, start=start + value.start, end=start + value.end)
        start = after


def _secrets(text: str) -> Iterator[SensitiveValue]:
    if "-----BEGIN" in text:
        yield from _spans("secrets", "a private key", _PEM, text)
    for start, line in _lines(text):
        # Keys have digits, so a line without digits has no key. Passwords in addresses may have no digits, so they are
        # searched below.
        for label, pattern in _key_patterns() if _DIGIT.search(line) else ():
            for match in pattern.finditer(line):
                # If a pattern has groups, the key is the first group that is not empty.
                inner = next((n for n, part in enumerate(match.groups(), 1) if part), 0)
                if match.group(inner):
                    yield SensitiveValue("secrets", label, start + match.start(inner), start + match.end(inner))
    if "://" in text:
        for match in _URL_PASSWORD.finditer(text):
            yield SensitiveValue("secrets", "a password in an address", match.start(1), match.end(1))
    for match in _ASSIGNED.finditer(text):
        group = "quoted" if match["quoted"] else "bare"
        if group == "quoted" or _looks_random(match[group]):
            yield SensitiveValue("secrets", "a password or key", match.start(group), match.end(group))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line
        start += len(line)


@cache
def _key_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the patterns of keys with their labels. detect-secrets is imported here, on first use, because importing
    it takes 0.2 s."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    kinds: dict[str, Any] = get_mapping_from_secret_type_to_class()
    detectors = [kind() for name, kind in sorted(kinds.items()) if name not in _LEFT_OUT]
    return (
        ("a key of a model's provider or another service", _LATER_KEYS),
        *(
            (f"{d.secret_type} (detect-secrets)", pattern)
            for d in detectors
            if isinstance(d, RegexBasedDetector)
            for pattern in d.denylist
        ),
    )


_LEFT_OUT = {"Public IP (ipv4)", "Private Key", "Basic Auth Credentials"}
"""Detectors of detect-secrets that this module replaces, to match whole keys, all addresses and all passwords."""

_DIGIT = re.compile(r"\d")

_URL_PASSWORD = re.compile(r"://[^\s:/?#@]{0,200}:([^\s/?#@]{1,200})@")

_LATER_KEYS = re.compile(
    r"(?<![\w-])(?:"
    r"sk-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic, OpenRouter, DeepSeek
    r"|AIza[\w-]{35}"  # Google
    r"|ya29\.[\w-]{20,}"
    r"|hf_[A-Za-z0-9]{30,}"
    r"|github_pat_\w{22,}"
    r"|(?:xai|pplx|nvapi|dckr_pat|tvly|lin_api|shpat|dop_v1|pul|ntn|gsk|r8)[-_][A-Za-z0-9_-]{30,}"
    r"|vault:v\d:[\w+/=]{20,}|hvs\.[\w-]{20,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{58}"
    r")(?![\w-])"
)
"""Keys whose form is newer than detect-secrets 1.5 (2024)."""

_PEM = re.compile(
    r"-----BEGIN (?P<of>[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?)-----.{0,8000}?(?:-----END (?P=of)-----|\Z)", re.DOTALL
)

_ASSIGNED = re.compile(
    r"""(?<![A-Za-z])(?:pass(?:word|wd|phrase|code)|pwd|secret|(?:api|auth|access|private|client|account|secret)[_ -]?
    (?:key|token|secret)|bearer|token|contraseña|mot\ de\ passe|passwort|kennwort|senha)['"`]?
    (?:\s{0,3}(?::=|=>|==?|:)\s{0,3}|\s+(?:is|ist|est|es)\s+|\s+)
    (?:(?P<quote>["'`])(?P<quoted>[^\s"'`]{6,200})(?P=quote)|(?P<bare>[^\s"'`,;()\[\]{}<>]{8,200}))""",
    re.IGNORECASE | re.VERBOSE,
)


def _looks_random(word: str) -> bool:
    """Whether an unquoted word looks like a password: it has at least 8 characters, with letters and digits among
    them."""
    word = word.rstrip(".!?:")
    return len(word) >= 8 and any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def _spans(
    kind: Kind, label: str, pattern: re.Pattern[str], text: str, valid: Callable[[str], bool] | None = None
) -> Iterator[SensitiveValue]:
    for match in pattern.finditer(text):
        if valid is None or valid(match.group()):
            yield SensitiveValue(kind, label, match.start(), match.end())


_EMAIL = re.compile(
    r"(?<![\w.%+@-])[\w%+-](?:[\w.%+-]{0,62}[\w%+-])?@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w@])"
)


def _emails(text: str) -> Iterator[SensitiveValue]:
    if "@" in text:
        yield from _spans("emails", "an email address", _EMAIL, text)


_PHONE = re.compile(
    r"(?<![\w.+-])(?:"
    r"(?:\+|00)[1-9](?:[ ./()-]{0,2}\d){7,14}"  # international
    r"|(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d(?P<sep>[ .-]))\d{3}(?(sep)(?P=sep)|[ .-])\d{4}"  # North America
    r"|\(?0[1-9]\d{0,3}\)?(?: \d{2,5}){2,4}"  # national, in groups of digits
    r")(?![\w-]|\.\d)"
)


def _is_phone(text: str) -> bool:
    # Eight digits that begin with a 0 may be a date.
    return (9 if text.startswith(("0", "(0")) else 8) <= sum(c.isdigit() for c in text) <= 15


_CARD = re.compile(r"(?<![\w.-])(?:[2-6]\d{3}(?:[ -]?\d){8,15}|[2-6]\d{3}(?:(?:[ -]|\s*\n\s*)\d{4}){3})(?![\w-]|\.\d)")


def _is_card(text: str) -> bool:
    from stdnum import luhn

    digits = re.sub(r"\D", "", text)
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and bool(luhn.is_valid(digits))


_IBAN = re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?:[ \n-]?[A-Za-z0-9]){11,30}(?!\w)")


def _ibans(text: str) -> Iterator[SensitiveValue]:
    from stdnum import iban

    for match in _IBAN.finditer(text):
        # Words after an IBAN may look like further groups of the IBAN.
        value = match.group()
        while value and not iban.is_valid(value.replace("\n", " ")):
            value = value[: max(map(value.rfind, " -\n"))] if re.search("[ \n-]", value) else ""
        if value:
            yield SensitiveValue("ibans", "an IBAN", match.start(), match.start() + len(value))


_NUMBER = re.compile(r"\d{3}[ .-]?\d\d|\d\d[A-Z]\d\d|\d\d[ .]\d\d[ .]\d\d", re.IGNORECASE)
"""Pattern that occurs in every personal id number. A text without a match of this pattern has no such number, so the
other patterns are not tried."""

_PERSONS: dict[str, re.Pattern[str]] = {
    "us.ssn": re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"),
    "us.itin": re.compile(r"(?<![\w-])9\d{2}-\d{2}-\d{4}(?![\w-])"),
    "fr.nir": re.compile(r"(?<![\w-])[12] ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}(?![\w-])"),
    "it.codicefiscale": re.compile(r"(?<!\w)[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z](?!\w)", re.IGNORECASE),
    "es.dni": re.compile(r"(?<![\w-])\d{8}-?[A-Z](?!\w)"),
    "es.nie": re.compile(r"(?<![\w-])[XYZ]-?\d{7}-?[A-Z](?!\w)"),
    "ch.ssn": re.compile(r"(?<![\w.])756\.?\d{4}\.?\d{4}\.?\d{2}(?![\w.])"),
    "br.cpf": re.compile(r"(?<![\w.])\d{3}\.\d{3}\.\d{3}-\d{2}(?!\w)"),
    "fi.hetu": re.compile(r"(?<!\w)\d{6}[-+A]\d{3}[0-9A-Y](?!\w)"),
    "se.personnummer": re.compile(r"(?<!\w)(?:19|20)?\d{6}[-+]\d{4}(?![\w-])"),
    "cn.ric": re.compile(r"(?<!\w)\d{17}[\dX](?!\w)"),
    "mx.curp": re.compile(r"(?<!\w)[A-Z]{4}\d{6}[HM][A-Z]{5}[A-Z0-9]\d(?!\w)"),
    "kr.rrn": re.compile(r"(?<!\w)\d{6}-\d{7}(?![\w-])"),
    "in_.aadhaar": re.compile(r"(?<!\w)[2-9]\d{3} \d{4} \d{4}(?![\w-])"),
    "be.nn": re.compile(r"(?<!\w)\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}(?!\w)"),
}
"""Patterns of personal id numbers by their module in python-stdnum. Only numbers whose form and checksum together
rarely match by chance are included. Bare digits with one check digit (Germany, Poland, the Netherlands, ...) are not
included: they would match every tenth number."""


def _ids(text: str) -> Iterator[SensitiveValue]:
    if not _NUMBER.search(text):
        return
    for name, pattern in _PERSONS.items():
        for match in pattern.finditer(text):
            if import_module(f"stdnum.{name}").is_valid(match.group()):
                yield SensitiveValue("ids", f"a personal id number ({name})", match.start(), match.end())


_IP4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d|-\d)")
_IP6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    # Loopback addresses and masks do not identify a person.
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or text.startswith("255."))


def _ips(text: str) -> Iterator[SensitiveValue]:
    for pattern in (_IP4, _IP6):
        yield from _spans("ips", "an IP address", pattern, text, _is_address)


_FINDERS: dict[Kind, Callable[[str], Iterator[SensitiveValue]]] = {
    "secrets": _secrets,
    "emails": _emails,
    "cards": partial(_spans, "cards", "a payment card", _CARD, valid=_is_card),
    "ibans": _ibans,
    "ids": _ids,
    "phones": partial(_spans, "phones", "a phone number", _PHONE, valid=_is_phone),
    "ips": _ips,
}
