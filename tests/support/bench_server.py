"""A server whose model follows the rules in its prompt, and answers K7 where none applies."""

from __future__ import annotations

import re
from typing import Any

from practicum.testing import main


def respond(body: dict[str, Any]) -> str:
    said = [str(message["content"]) for message in body["messages"]]
    rules = re.findall(r"If it is about (\w+), answer (K\d)", "\n".join(said[:-1]))
    return next((answer for word, answer in rules if word in said[-1]), "K7")


if __name__ == "__main__":
    main(responder=respond)
