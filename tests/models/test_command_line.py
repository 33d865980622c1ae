"""Models that are called through the programs of coding agents (`cli:claude`, `cli:codex`).

Scripts that print recorded events replace the programs. The real programs are tried in tests/agents/test_programs.py.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from standins import Event, StandIn, claude, codex, message

import practicum
from practicum.core.errors import PracticumError, UsageError
from practicum.core.types import Prompt, Turn, Usage
from practicum.models.client import CallOptions, Reply, Wait
from practicum.models.registry import ClientSettings, Models
from practicum.serve.upstream import open_upstream

SCHEMA = {
    "type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"],
    "additionalProperties": False,
}  # fmt: skip
WARNING = {"id": "1", "type": "error", "message": "a warning"}


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(request.param, tmp_path / "bin", monkeypatch)


both = pytest.mark.parametrize("program", ["claude", "codex"], indirect=True)
only_claude = pytest.mark.parametrize("program", ["claude"], indirect=True)
only_codex = pytest.mark.parametrize("program", ["codex"], indirect=True)


def ask(
    name: str, schema: dict[str, Any] | None = None, prompt: Prompt | None = None, **options: Any
) -> tuple[Reply | PracticumError, list[Wait]]:
    """The reply of a model, or its error, and the waits before it."""
    waits: list[Wait] = []

    async def call() -> Reply | PracticumError:
        models = Models(ClientSettings(attempts=2))

        async def wait(pause: Wait) -> None:
            waits.append(pause)

        try:
            client = models.open(name)
            how = CallOptions(wait=wait, **options)
            return await client.complete("agent", prompt or Prompt("You answer.", "ping"), schema, how)
        except PracticumError as error:
            return error
        finally:
            await models.close()

    return asyncio.run(call()), waits


def answer(name: str, **how: Any) -> Reply:
    reply, _ = ask(name, **how)
    assert isinstance(reply, Reply), reply
    return reply


def code_of(name: str, **how: Any) -> str:
    error, _ = ask(name, **how)
    assert isinstance(error, PracticumError), error
    return error.code


@both
def test_a_call_replaces_the_system_prompt_and_reads_no_settings_of_the_user(
    program: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-user")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-user")
    save = f"cp ../system.md {program.folder}"
    program.prints(*(claude() if program.name == "claude" else codex(WARNING)), first=save)
    prompt = Prompt("You answer.", "ping\ud800", turns=(Turn("2+2?", "four"),))
    assert answer(f"cli:{program.name}/m1", prompt=prompt, temperature=0.0).text == "pong"
    [args], [sent], [env], [cwd] = (program.calls(kind) for kind in ("args", "input", "env", "cwd"))
    assert args.splitlines()[-2:] == ["--model", "m1"]
    assert sent.index("2+2?") < sent.index("four") < sent.index("ping?")
    assert (program.folder / "system.md").read_text() == "You answer."
    assert "sk-user" not in env
    assert not Path(cwd.strip()).exists()
    isolating = {"claude": ["--setting-sources", "--strict-mcp-config"], "codex": ["--ignore-user-config"]}
    assert set(isolating[program.name]) <= set(args.splitlines())


@only_claude
def test_usage_and_cost_are_those_that_claude_reports(program: StandIn) -> None:
    program.prints(*claude())
    assert answer("cli:claude").usage == Usage(1, 19, 5, 9, 0.25, 3)


@only_codex
def test_codex_reports_no_cost_so_a_listed_model_has_its_listed_price(program: StandIn) -> None:
    program.prints(*codex())
    assert answer("cli:codex").usage == Usage(1, 42, 8, 16, None)
    assert answer("cli:codex/gpt-4.1-mini").usage.usd == pytest.approx((34 * 0.4 + 8 * 0.1 + 16 * 1.6) / 1e6)


@both
def test_a_schema_is_passed_and_the_answer_is_json(program: StandIn) -> None:
    text = '{"answer": "4"}'
    program.prints(*(claude(text, structured_output={"answer": "4"}) if program.name == "claude" else codex(text=text)))
    assert json.loads(answer(f"cli:{program.name}", schema=SCHEMA).text) == {"answer": "4"}
    flag = {"claude": "--json-schema", "codex": "--output-schema"}[program.name]
    assert flag in program.calls()[0].splitlines()


@only_codex
def test_a_schema_that_the_provider_refuses_is_put_into_the_prompt(program: StandIn) -> None:
    refusal = {"error": {"message": "Invalid schema for response_format 'codex_output_schema'", "param": "text.format"}}
    program.prints(*codex(failed=json.dumps(refusal)))
    (program.folder / "out").rename(program.folder / "refused")
    refuse = f'case "$*" in *--output-schema*) cat {program.folder}/refused; exit 1;; esac'
    program.prints(*codex(text='{"answer": "4"}'), first=refuse)
    assert json.loads(answer("cli:codex", schema=SCHEMA).text) == {"answer": "4"}
    assert len(program.calls()) == 2


NOT_LOGGED_IN = claude("Not logged in", is_error=True)
NOT_LOGGED_IN[1] = message("Not logged in", error="authentication_failed")
OVER_PLAN = claude("You've hit your session limit", is_error=True, api_error_status=429)
OVER_PLAN[2] = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1796032477}}


@pytest.mark.parametrize(
    ("program", "events", "code"),
    [
        ("claude", NOT_LOGGED_IN, "model.not_logged_in"),
        ("claude", claude("401 expired", is_error=True, api_error_status=401), "model.not_logged_in"),
        ("claude", claude("no such model", is_error=True, api_error_status=404), "model.not_found"),
        ("claude", claude("bad request", is_error=True, api_error_status=400), "provider.refused"),
        ("claude", claude("prompt is too long", is_error=True, api_error_status=400), "window.exceeded"),
        ("claude", claude("Credit balance is too low", is_error=True, api_error_status=400), "model.no_credit"),
        ("claude", claude("overloaded", is_error=True, api_error_status=529), "provider.failed"),
        ("claude", claude(None, is_error=True, subtype="error_during_execution", errors=["x"]), "provider.failed"),
        (
            "claude",
            claude(None, is_error=True, subtype="error_max_structured_output_retries", errors=["five tries"]),
            "output.invalid",
        ),
        ("claude", claude()[:2], "provider.failed"),
        ("claude", [*claude()[:2], {"type": "result", "is_error": "no"}], "provider.failed"),
        ("claude", [], "model.unusable"),
        ("codex", codex(failed="unexpected status 401 Unauthorized: no, url: https://x"), "model.not_logged_in"),
        ("codex", codex(failed='{"error": {"message": "no", "code": "model_not_found"}}'), "model.not_found"),
        ("codex", codex(failed="exceeded retry limit, last status: 429 Too Many Requests"), "provider.failed"),
        ("codex", codex(failed="stream disconnected before completion"), "provider.failed"),
        ("codex", codex()[:-1], "provider.failed"),
    ],
    indirect=["program"],
)  # fmt: skip
def test_each_failure_has_its_code(program: StandIn, events: list[Event], code: str) -> None:
    program.prints(*events, code=1, err="error: unknown option")
    assert code_of(f"cli:{program.name}", schema=SCHEMA) == code
    permanent = code not in ("provider.failed", "output.invalid")
    assert len(program.calls()) == (1 if permanent else 3 if code == "output.invalid" else 2)


@pytest.mark.parametrize(
    ("program", "events", "seconds"),
    [
        ("claude", OVER_PLAN, 120.0),
        ("codex", codex(failed="You've hit your usage limit. Try again at 3:05 PM."), 120.0),
        ("codex", codex(failed="exceeded retry limit, last status: 429 Too Many Requests"), None),
    ],
    indirect=["program"],
)  # fmt: skip
def test_a_limit_of_the_plan_is_a_rate_limit_with_the_longest_pause(
    program: StandIn, events: list[Event], seconds: float | None
) -> None:
    program.prints(*events, code=1)
    error, waits = ask(f"cli:{program.name}")
    assert isinstance(error, PracticumError)
    assert error.code == "provider.failed"
    assert [wait.limited for wait in waits] == [True]
    assert seconds is None or waits[0].seconds == seconds


@only_claude
def test_a_refusal_and_an_answer_that_was_cut_are_replies_without_text(program: StandIn) -> None:
    program.prints(*claude("API Error", is_error=True, stop_reason="refusal"), code=1)
    refusal = answer("cli:claude")
    assert (refusal.text, refusal.refused, refusal.usage.usd) == ("", True, 0.25)
    events = claude("API Error", is_error=True)
    program.prints(*events[:1], message("cut", error="max_output_tokens"), *events[2:], code=1)
    cut = answer("cli:claude")
    assert (cut.text, cut.cut) == ("", True)


@only_claude
def test_a_call_that_takes_too_long_is_ended_with_its_children(program: StandIn) -> None:
    program.prints(first=f"sleep 300 & echo $! > {program.folder}/child; wait")
    assert code_of("cli:claude", timeout=0.5) == "provider.failed"
    child = Path(f"/proc/{(program.folder / 'child').read_text().strip()}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_a_missing_program_and_a_wrong_name_are_reported_before_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error, _ = ask("cli:claude")
    assert isinstance(error, UsageError)
    assert error.code == "program.missing"
    assert "npm install -g @anthropic-ai/claude-code" in str(error)
    for name in ("cli:gemini", "cli:", "cli:claude/"):
        assert code_of(name) == "program.unknown"


@only_claude
def test_options_of_http_requests_and_a_proxy_do_not_apply(program: StandIn, tmp_path: Path) -> None:
    program.prints(*claude())
    options = {"extra_body": {"top_k": 1}}
    with pytest.raises(UsageError) as unused:
        practicum.run_sync(practicum.learn(make_tasks(2), method="none", model="cli:claude", model_options=options))
    assert unused.value.code == "settings.unused"
    with pytest.raises(UsageError) as no_server:
        open_upstream("cli:claude", tmp_path, 1.0)
    assert no_server.value.code == "model.not_a_server"


@only_claude
def test_a_budget_in_usd_needs_a_price(program: StandIn, tmp_path: Path) -> None:
    program.prints(*claude("Answer: word10"))
    how: dict[str, Any] = {"method": "none", "model": "cli:claude", "max_usd": 100.0}
    with pytest.raises(UsageError) as refused:
        practicum.run_sync(practicum.learn(make_tasks(2), **how))
    assert refused.value.code == "price.unknown"
    how["prices"] = {"cli:claude": "in=1000,cached=0,out=1000"}
    result = practicum.run_sync(practicum.learn(make_tasks(1), test=make_tasks(1, start=10), **how))
    assert result.usage.usd == 0.25


@only_claude
def test_a_resume_repeats_only_the_calls_that_failed(program: StandIn, tmp_path: Path) -> None:
    program.prints(*claude("overloaded", is_error=True, api_error_status=529))
    (program.folder / "out").rename(program.folder / "overloaded")
    fail = f"if grep -q word13 {program.folder}/input.$$; then cat {program.folder}/overloaded; exit 1; fi"
    program.prints(*claude("Answer: word10"), first=fail)
    how: dict[str, Any] = {"method": "none", "model": "cli:claude", "retries": 0, "out": tmp_path / "run"}
    practicum.run_sync(practicum.learn(make_tasks(2), test=make_tasks(4, start=10), **how))
    assert len(program.calls("input")) == 4
    program.prints(*claude("Answer: word10"))
    result = practicum.run_sync(practicum.resume(tmp_path / "run"))
    assert [text for text in program.calls("input")[4:] if "word13" not in text] == []
    assert (result.usage.calls, result.usage.usd) == (4, 1.0)
