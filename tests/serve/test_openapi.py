"""The OpenAPI document is valid, and requests that schemathesis derives from it are answered as it says."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from needs import needs
from profiles import PROFILE
from serving import asynchronous, served

from practicum.serve.openapi import document

KEY = "k" * 20
ADMIN = {"Authorization": f"Bearer {KEY}", "x-practicum-key": KEY}

WITHOUT_INPUT = ("/health", "/ready", "/metrics")
"""No request to these paths can be wrong."""

CHECKS = ("status_code", "content_type", "response_schema", "response_headers")
"""Parts of an answer that have to conform to the document."""


def sent(url: str, most: int) -> Counter[str]:
    """Send right and wrong requests to each operation, and check the answers. Return the number of successes."""
    good, schema = Counter[str](), needs("schemathesis", "all-tests").openapi.from_dict(document())
    for operation in (each.ok() for each in schema.get_all_operations()):
        send(url, most, operation, "POSITIVE", good)
        if operation.path not in WITHOUT_INPUT:
            send(url, most, operation, "NEGATIVE", good)
    return good


def send(url: str, most: int, operation: Any, mode: str, good: Counter[str]) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    wrong = mode == "NEGATIVE"
    headers = ADMIN if wrong else {**ADMIN, "x-practicum-space": "default"}
    checks: Any = [not_a_server_error, *(getattr(openapi, f"{name}_conformance") for name in CHECKS)]
    checks += [openapi.negative_data_rejection] if wrong else []

    @settings(max_examples=most, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(operation.as_strategy(generation_mode=GenerationMode[mode]))
    def go(case: Any) -> None:
        response = case.call(base_url=url, headers=headers)
        good[operation.label] += response.status_code < 300
        case.validate_response(response, checks=checks)

    go()


@pytest.mark.slow
@asynchronous
async def test_requests_of_schemathesis_are_answered_as_the_document_says(tmp_path: Path) -> None:
    needs("schemathesis", "all-tests").openapi.from_dict(document()).validate()
    async with served(tmp_path, keys=(KEY,)) as at:
        good = await asyncio.to_thread(sent, at.url, 60 if PROFILE == "slow" else 8)
        needed = {"POST /v1/notes", "POST /v1/context", "GET /v1/playbook", "POST /v1/keys", "POST /v1/spaces"}
        assert all(good[label] for label in needed)
        assert (await at.ask("Still there?", ADMIN)).status == 200
