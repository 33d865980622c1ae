"""Simulated model server that answers every request with the same text, so that it needs little CPU during a bench."""

from __future__ import annotations

from pathlib import Path

from practicum.testing import Body, main

SCRIPT = str(Path(__file__).resolve())
CHUNKS = 60
"""Number of chunks of a streamed answer."""
TEXT = " ".join(f"Sentence {n} of the answer says what was asked." for n in range(1, 13))


def answer(body: Body) -> str:
    return TEXT


if __name__ == "__main__":
    main(responder=answer)
