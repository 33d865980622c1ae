"""Refusals over HTTP carry their codes."""

from pathlib import Path
from typing import Any

from serving import MESSAGES, Headers, asynchronous, served

KEY, SCOPED = "k" * 20, "s" * 20
ADMIN = {"x-practicum-key": KEY}
OTHER = {"x-practicum-key": SCOPED}

REFUSED: tuple[tuple[str, str, Any, Headers, int, str, str | None], ...] = (
    ("GET", "/v1/playbook", None, {}, 401, "key.missing", None),
    ("GET", "/v1/playbook", None, {"x-practicum-key": "wrong" * 4}, 401, "key.wrong", None),
    ("GET", "/v1/spaces", None, OTHER, 403, "key.forbidden", None),
    ("GET", "/nothing", None, ADMIN, 404, "request.unknown_path", None),
    ("PUT", "/v1/feedback", None, ADMIN, 405, "request.wrong_verb", None),
    ("GET", "/v1/playbook?limit=many", None, ADMIN, 400, "request.malformed", "limit"),
    ("GET", "/v1/playbook", None, {**ADMIN, "x-practicum-space": "elsewhere"}, 404, "space.unknown", None),
    ("POST", "/v1/feedback", {"interaction": "i", "score": 7}, ADMIN, 400, "outcome.invalid", "score"),
    ("POST", "/v1/feedback", {"interaction": "i", "score": 1}, ADMIN, 404, "interaction.unknown", None),
    ("POST", "/v1/playbook", {"id": "e9", "text": "x"}, ADMIN, 404, "entry.unknown", None),
    ("POST", "/v1/learn", {}, ADMIN, 409, "learning.disabled", None),
    ("POST", MESSAGES, {}, {}, 401, "key.missing", None),
)


@asynchronous
async def test_an_error_over_http_has_its_code_and_status(tmp_path: Path) -> None:
    async with served(tmp_path, keys=(KEY, f"default={SCOPED}")) as at:
        for method, path, body, headers, status, code, param in REFUSED:
            reply = await at.send(method, path, body, headers)
            error = reply.json.get("error", reply.json)
            assert (reply.status, error.get("code"), error.get("param")) == (status, code, param), (path, error)
            assert error["message"].startswith("practicum: ")
