"""Extraction of the question of a request: the part of the request's text that differs from other requests of the
space.

Agents put rules, reminders, file lists and the date around each question, in the same message. Compared as a whole, all
such messages are similar. So a text is split into pieces: lines and sentences. The neighbours of a text are the
messages that share the most text with this text. Neighbours usually come from the same agent. A piece that most
neighbours also contain is boilerplate. The other pieces are the question. This works without knowledge of any agent's
tags or wording.

A frequent question is not boilerplate: repeated messages count once, so a question occurs in few of the messages that
share the same boilerplate. Digits are ignored at first, so that a clock is boilerplate; if no piece is then left as the
question, digits count, and the pieces that differ from boilerplate only in digits are the question ("Where is order
17?").
"""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from practicum.core.words import SENTENCE_END

EVIDENCE = 16
"""Maximum number of messages that are stored for each piece: the last messages with the piece."""

PIECES = 5_000
"""Maximum number of pieces of a space that are stored. If there are more pieces, the most recent pieces are stored."""

MESSAGES = 1_000
"""Maximum number of messages whose digests are stored, so that a repeated message counts once."""

LONG = 1_000
"""Minimum length (characters) of the text that a message shares with its only neighbour, for the shared text to count
as boilerplate. With two or more neighbours, the length `SHORT` is enough. A single neighbour may share some sentences
by chance."""

SHORT = 40
"""Minimum length (characters) of the text that two messages share, for the messages to count as neighbours."""

_DIGIT = re.compile(r"\d")


@dataclass(frozen=True)
class ExtractedQuestion:
    """Question of a text. `neighbours` is the number of messages that the text was compared with; if `neighbours` is 0,
    the question is the whole text."""

    text: str
    neighbours: int


@dataclass(frozen=True)
class _Piece:
    """Line or sentence of a text. `key` is a hash of the piece that ignores digits, and `exact` is a hash that includes
    digits."""

    line: int
    text: str
    key: int
    exact: int


class Questions:
    """Extractor of the questions of one space, which stores the space's messages in memory. Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._having: OrderedDict[int, deque[int]] = OrderedDict()
        """The sequence numbers of the last messages with each piece, by the key of the piece."""
        self._messages: OrderedDict[int, int] = OrderedDict()
        """Sequence numbers of messages, by the hashes of their texts."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._having)

    def start(self, texts: Iterable[str]) -> None:
        """Replace the stored messages by `texts`, which are in the order from the oldest to the newest message."""
        with self._lock:
            self._having.clear()
            self._messages.clear()
        for text in texts:
            self._add(text, _pieces(text))

    def ask(self, text: str) -> tuple[ExtractedQuestion, frozenset[int]]:
        """Store a message. Return the question and the pieces of the message, each piece as hashes. No pieces are
        returned if the message was stored already or has only one piece."""
        pieces = _pieces(text)
        return self._question(text, pieces), self._add(text, pieces)

    def of(self, text: str) -> ExtractedQuestion:
        """Return the question of a text."""
        return self._question(text, _pieces(text))

    def _add(self, text: str, pieces: list[_Piece]) -> frozenset[int]:
        keys = _keys(pieces)
        if not keys:
            return keys
        with self._lock:
            if (digest := hash(text)) in self._messages:
                self._messages.move_to_end(digest)
                return frozenset()
            self._count += 1
            self._messages[digest] = self._count
            for key in keys:
                self._having.setdefault(key, deque(maxlen=EVIDENCE)).append(self._count)
                self._having.move_to_end(key)
            while len(self._having) > PIECES:
                self._having.popitem(last=False)
            while len(self._messages) > MESSAGES:
                self._messages.popitem(last=False)
        return keys

    def _question(self, text: str, pieces: list[_Piece]) -> ExtractedQuestion:
        if len(pieces) < 2:
            return ExtractedQuestion(text, 0)
        with self._lock:
            neighbours = self._neighbours(text, pieces)
            if not neighbours:
                return ExtractedQuestion(text, 0)
            shared = [self._shares(piece.key, neighbours) for piece in pieces]
            if all(shared):
                shared = [self._shares(piece.exact, neighbours) for piece in pieces]
        length = sum(len(piece.text) for piece, is_shared in zip(pieces, shared, strict=True) if is_shared)
        left = [piece for piece, is_shared in zip(pieces, shared, strict=True) if not is_shared]
        enough = length >= (LONG if len(neighbours) == 1 else SHORT)
        if not enough or not any(char.isalnum() for piece in left for char in piece.text):
            return ExtractedQuestion(text, len(neighbours))
        lines = groupby(left, key=lambda piece: piece.line)
        return ExtractedQuestion(
            "\n".join(" ".join(piece.text for piece in line) for _, line in lines), len(neighbours)
        )

    def _neighbours(self, text: str, pieces: list[_Piece]) -> set[int]:
        """Return the sequence numbers of the messages that share enough text with this text: at least `SHORT`
        characters, and at least half of the length that the most similar message shares."""
        own, shared = self._messages.get(hash(text)), Counter[int]()
        for piece in {piece.key: piece for piece in pieces}.values():
            for message in self._having.get(piece.key, ()):
                shared[message] += len(piece.text)
        shared.pop(own or 0, None)
        minimum = max([SHORT, *(length / 2 for length in shared.values())])
        return {message for message, length in shared.items() if length >= minimum}

    def _shares(self, key: int, neighbours: set[int]) -> bool:
        """Return whether most neighbours have a piece."""
        return 2 * len(neighbours.intersection(self._having.get(key, ()))) > len(neighbours)


def pieces_of(text: str) -> frozenset[int]:
    """Return the pieces of a text, as in the result of `Questions.ask`. A text with only one piece has an empty
    result."""
    return _keys(_pieces(text))


def _keys(pieces: list[_Piece]) -> frozenset[int]:
    return frozenset(key for piece in pieces for key in (piece.key, piece.exact)) if len(pieces) > 1 else frozenset()


def _pieces(text: str) -> list[_Piece]:
    result = list[_Piece]()
    for number, line in enumerate(text.split("\n")):
        for sentence in filter(str.strip, SENTENCE_END.split(line)):
            words = sentence.casefold().split()
            exact = key = hash(" ".join(words))
            if _DIGIT.search(sentence):
                key = hash(" ".join("0" if _DIGIT.search(word) else word for word in words))
            result.append(_Piece(number, sentence.strip(), key, exact))
    return result
