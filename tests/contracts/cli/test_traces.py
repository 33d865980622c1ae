"""Stored traces: formats, trust, scores, and refusals."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import Any

import pytest

import practicum
from practicum import Count

from .kit import Model, Shell, write_lines

QUESTION, ANSWER = "Where is order 17?", "It was sent."
USER, REPLY = {"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}
TURNS = [{"role": "system", "content": "You help in a shop."}, USER, REPLY]


def span(name: str, attributes: dict[str, Any], start: int) -> dict[str, Any]:
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    ids = {"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": f"00f067aa0ba902b{start}"}
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 1)}
    return {**ids, **times, "name": name, "attributes": values}


MESSAGES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}]
    ),
}
OTLP = {"resourceSpans": [{"scopeSpans": [{"spans": [span("chat gpt", MESSAGES, 1)]}]}]}
SWE = {
    "trajectory": [
        {"thought": "Look.", "action": "grep x\n", "observation": "12\n", "response": "Look.", "state": "{}"}
    ],
    "history": [{"role": "system", "content": "s"}, {"role": "user", "content": QUESTION}],
    "info": {"submission": ANSWER, "exit_status": "submitted"},
}
MINI = {
    "trajectory_format": "mini-swe-agent-1",
    "info": {"submission": ANSWER, "exit_status": "Submitted", "config": {}},
    "messages": [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "Let me see."}],
}
ATIF = {
    "schema_version": "ATIF-v1.2", "session_id": "s-1", "agent": {"name": "terminus", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": QUESTION},
        {"step_id": 2, "source": "agent", "message": ANSWER},
    ],
}  # fmt: skip
CLAUDE = [
    {"type": "user", "sessionId": "5f0c", "uuid": "1", "parentUuid": None, "message": USER, "cwd": "/x"},
    {"type": "assistant", "sessionId": "5f0c", "uuid": "2", "parentUuid": "1",
     "message": {"role": "assistant", "model": "claude-x", "content": [{"type": "text", "text": ANSWER}]}},
]  # fmt: skip
CODEX = [
    {"timestamp": "t", "type": "session_meta", "payload": {"id": "019c", "cwd": "/x", "cli_version": "0.171.0"}},
    {"timestamp": "t", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "<environment_context>\n</environment_context>"}]}},
    {"timestamp": "t", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": QUESTION}]}},
    {"timestamp": "t", "type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": ANSWER}]}},
]  # fmt: skip
OPENCODE = {
    "info": {"id": "ses_1", "version": "1.18.34", "directory": "/x", "time": {"created": 1}},
    "messages": [{"info": {"role": role}, "parts": [{"type": "text", "text": text}]}
                 for role, text in (("user", QUESTION), ("assistant", ANSWER))],
}  # fmt: skip
GEMINI = [
    {"sessionId": "a3", "projectHash": "e4", "startTime": "2026-01-01T00:00:00Z"},
    {"id": "1", "type": "user", "content": [{"text": QUESTION}]},
    {"id": "2", "type": "gemini", "content": "I look."},
    {"id": "2", "type": "gemini", "content": ANSWER, "tokens": {"total": 9}},
]
GEMINI_EVENTS = [
    {"type": "init", "session_id": "a4", "model": "gemini-x"}, {"type": "message", "role": "user", "content": QUESTION},
    *({"type": "message", "role": "assistant", "content": text, "delta": True} for text in (ANSWER[:3], ANSWER[3:])),
]  # fmt: skip
CURSOR = [
    {"role": "user", "message": {"content": [{"type": "text", "text": f"<user_query>\n{QUESTION}\n</user_query>"}]}},
    {"role": "assistant", "message": {"content": [{"type": "text", "text": f"[REDACTED]{ANSWER}"}]}},
]
SHAREGPT = {"conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": ANSWER}]}
AI_SDK = [{"id": role, "role": role, "parts": [{"type": "step-start"}, {"type": "text", "text": text}]}
          for role, text in (("user", QUESTION), ("assistant", ANSWER))]  # fmt: skip
REQUEST = {"model": "m", "messages": [USER]}
COMPLETION = {"id": "c1", "model": "m", "choices": [{"index": 0, "message": REPLY, "finish_reason": "stop"}]}
RESPONSE = {"object": "response", "output": [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}]}  # fmt: skip
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": ANSWER}]}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


FORMATS: dict[str, tuple[str, bytes, str]] = {
    "chat": ("log.jsonl", lines({"id": "order-17", "messages": TURNS}), "chat"),
    "a bare list": ("log.jsonl", lines(TURNS), "chat"),
    "one document": ("log.json", json.dumps([{"messages": TURNS}], indent=1).encode(), "chat"),
    "OTLP": ("spans.json", json.dumps(OTLP, indent=1).encode(), "otel"),
    "one export a line": ("spans.jsonl", lines(OTLP), "otel"),
    "SWE-agent": ("x.traj", json.dumps(SWE).encode(), "swe-agent"),
    "mini-swe-agent": ("x.traj.json", json.dumps(MINI).encode(), "mini-swe-agent"),
    "ATIF": ("trajectory.json", json.dumps(ATIF).encode(), "atif"),
    "Claude Code": ("session.jsonl", lines(*CLAUDE), "claude-code"),
    "Codex": ("rollout-1.jsonl", lines(*CODEX), "codex"),
    "opencode": ("export.json", json.dumps(OPENCODE, indent=1).encode(), "opencode"),
    "Gemini CLI": ("session-1.jsonl", lines(*GEMINI), "gemini-cli"),
    "Gemini CLI's events": ("out.jsonl", lines(*GEMINI_EVENTS), "gemini-cli events"),
    "Cursor": ("transcript.jsonl", lines(*CURSOR), "cursor"),
    "ShareGPT": ("sharegpt.json", json.dumps([SHAREGPT]).encode(), "sharegpt"),
    "AI SDK": ("chat.json", json.dumps(AI_SDK).encode(), "chat"),
    "chat pair": ("pairs.jsonl", lines({"request": REQUEST, "response": COMPLETION}), "pairs"),
    "Responses pair": ("p.jsonl", lines({"request": {"input": QUESTION}, "response": RESPONSE}), "pairs"),
    "Anthropic pair": ("p.jsonl", lines({"request": {"body": REQUEST}, "response": {"body": MESSAGE}}), "pairs"),
    "LiteLLM": ("p.jsonl", lines({"call_type": "acompletion", "messages": [USER], "response": COMPLETION}), "pairs"),
    "Helicone": ("p.jsonl", lines({"request_body": json.dumps(REQUEST), "response_body": COMPLETION}), "pairs"),
    "OpenAI batch": (
        "b.jsonl",
        lines(
            {"custom_id": "o", "response": {"status_code": 200, "body": COMPLETION}, "error": None},
            {"custom_id": "o", "method": "POST", "url": "/v1/chat/completions", "body": REQUEST},
        ),
        "batch",
    ),
    "Anthropic batch": (
        "b.jsonl",
        lines(
            {"custom_id": "a", "params": REQUEST},
            {"custom_id": "a", "result": {"type": "succeeded", "message": MESSAGE}},
        ),
        "batch",
    ),
    "gzip": ("log.jsonl.gz", gzip.compress(lines({"messages": TURNS})), "chat"),
}
EPISODES = "--method episodes --model scripted:script.jsonl --out"


def test_each_format_is_detected_by_its_content_and_a_folder_may_hold_several(shell: Shell) -> None:
    """The task is the user's question; the answer is the agent's last message or its submission."""
    for number, (kind, (name, content, form)) in enumerate(FORMATS.items()):
        path = shell / "traces" / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        other = path if kind == "gzip" else path.rename(shell / "traces.any")
        read = practicum.load_traces(other, trust="own")
        assert [(t.input, t.recorded and t.recorded.trace.answer) for t in read.tasks] == [(QUESTION, ANSWER)], kind
        assert read.formats == {form: 1}
        other.rename(path)
    (shell / "traces" / "notes.txt").write_text("no traces")
    packed = shutil.make_archive(str(shell / "packed"), "gztar", shell / "traces")
    assert len(practicum.load_traces(packed, trust="own").tasks) == len(FORMATS)
    done = shell(f"learn --from-traces traces --trust own --batch-size 40 {EPISODES} run --json")
    assert {(e["text"], e["data"]["answer"]) for e in done.json["entries"]} == {(QUESTION, ANSWER)}
    assert all(form in done.err for _, _, form in FORMATS.values())
    assert done.json["usage"]["calls"] == 0
    assert len(shell.json("show run --attempts")["attempts"]) == len(FORMATS)


def test_the_steps_of_an_agent_are_those_of_the_trace(shell: Shell) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"id": 17}'}}
    content = [{"type": "text", "text": "What happens?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    turns = [{"role": "user", "content": content}, {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "c", "content": "sent"}, REPLY]  # fmt: skip
    write_lines(shell / "log.jsonl", [{"messages": turns}])
    value = shell.json(f"learn --from-traces log.jsonl --trust own {EPISODES} run")
    # A part that is not text is its medium, and is counted.
    assert value["entries"][0]["text"] == "What happens?\n[image]"
    assert value["errors"][Count.TRACE_FAULTS.value] == 1
    (line,) = shell.json("show run --attempts")["attempts"]
    attempt = json.dumps(shell.json("show run --attempt", line["id"]))
    assert "find(" in attempt
    assert "sent" in attempt


def test_the_fields_of_another_format_are_named(shell: Shell) -> None:
    record = {"log": {"turns": TURNS, "grade": 0.75, "asked": QUESTION, "reply": ANSWER}}
    write_lines(shell / "log.jsonl", [record])
    shell.fails(f"learn --from-traces log.jsonl {EPISODES} run", error="traces.unreadable")
    for number, names in enumerate(("messages=log.turns", "task=log.asked,answer=log.reply")):
        learn = (
            f"learn --from-traces log.jsonl --trust own --trace-fields {names},score=log.grade {EPISODES} run{number}"
        )
        assert shell.json(learn)["entries"][0]["text"] == QUESTION
        assert [a["score"] for a in shell.json(f"show run{number} --attempts")["attempts"]] == [0.75]
    for names in ("score=x", "message=log.turns"):
        shell.fails(f"learn --from-traces log.jsonl --trace-fields {names} {EPISODES} run", error="settings.invalid")


def test_evidence_in_a_session_decides_and_the_judge_decides_the_rest(shell: Shell, model: Model) -> None:
    """The user objects to the first request's work; nothing follows the second request."""
    turns = [("user", QUESTION), ("assistant", "It is lost."), ("user", "No, look again."), ("assistant", ANSWER),
             ("user", "Now write the whole story of order 18 into a file."), ("assistant", "Done.")]  # fmt: skip
    call = [{"type": "tool_use", "id": "c", "name": "Edit", "input": {"old_string": "a", "new_string": "b"}}]
    session = [
        {"type": role, "sessionId": "s", "uuid": f"{n}", "message": {
            "role": role, "content": [*(call if n == 1 else []), {"type": "text", "text": text}]}}
        for n, (role, text) in enumerate(turns)
    ]  # fmt: skip
    write_lines(shell / "session.jsonl", session)
    done = shell(
        f"learn --from-traces session.jsonl --trust own --judge --method ace --model {model.name} --out run --json"
    )
    assert "1 × objection" in done.err
    # The judge does not read the session in full, so the rules decide; one verdict is about the second request.
    assert done.json["by_role"]["judge"]["calls"] == 2
    assert done.json["errors"]["unread_sessions"] == 1
    attempts = {a["task"]: a["success"] for a in shell.json("show run --attempts")["attempts"]}
    assert attempts["s/1"] is False
    assert attempts["s/2"] is not None


def test_a_run_of_practicum_is_read_with_its_scores_and_pays_for_no_attempt(shell: Shell) -> None:
    learn = "learn --from-traces runs/first --trust own --method combee --batch-size 16 --choices auto"
    value = shell.json(f"{learn} --model scripted:script.jsonl --out again")
    assert "agent" not in value["by_role"]
    attempts = shell.json("show again --attempts")["attempts"]
    original = [a for a in shell.json("show runs/first --attempts")["attempts"] if not a["reused"]]
    assert len(attempts) == len(original)
    assert sum(a["correct"] for a in attempts) == sum(a["correct"] for a in original)
    assert {a["task"] for a in attempts} >= {"r7", "r7#2"}
    assert len(value["entries"]) == 3


def test_scores_are_read_from_every_usual_field(shell: Shell) -> None:
    cases: list[tuple[dict[str, Any], float | None, bool | None]] = [
        ({"score": 0.75}, 0.75, True), ({"reward": 0.25}, 0.25, False), ({"resolved": True}, 1.0, True),
        ({"success": False}, 0.0, False), ({"passed": True}, 1.0, True), ({"correct": False}, 0.0, False),
        ({"metadata": {"score": 0.5}}, 0.5, True), ({"info": {"resolved": True}}, 1.0, True),
        ({"score": 0.75, "passed": False}, 0.75, False), ({"score": 7}, None, None), ({}, None, None),
    ]  # fmt: skip
    write_lines(shell / "log.jsonl", [{"id": f"t{n}", "messages": TURNS, **case[0]} for n, case in enumerate(cases)])
    value = shell.json(f"learn --from-traces log.jsonl --trust own {EPISODES} run")
    attempts = {a["task"]: (a["score"], a["correct"]) for a in shell.json("show run --attempts")["attempts"]}
    assert attempts == {f"t{n}": case[1:] for n, case in enumerate(cases)}
    assert value["errors"][Count.TRACE_FAULTS.value] == 1  # the score 7


def test_the_reward_in_the_result_file_of_harbor_counts(shell: Shell) -> None:
    (shell / "job" / "agent").mkdir(parents=True)
    (shell / "job" / "agent" / "trajectory.json").write_text(json.dumps(ATIF))
    result = {"task_name": "hello", "trial_name": "hello__1", "verifier_result": {"rewards": {"reward": 1.0}}}
    (shell / "job" / "result.json").write_text(json.dumps(result))
    shell(f"learn --from-traces job --trust own {EPISODES} run")
    assert [a["score"] for a in shell.json("show run --attempts")["attempts"]] == [1.0]


def test_a_judge_judges_traces_without_a_score(shell: Shell, model: Model) -> None:
    other = {"messages": [{**USER, "content": "And 18?"}, REPLY], "score": 1}
    write_lines(shell / "log.jsonl", [{"messages": TURNS}, other])
    for judged, options in enumerate(("", "--judge", "--judge --no-labels")):
        how = f"--trust own --method ace --batch-size 2 {options} --model {model.name}"
        value = shell.json(f"learn --from-traces log.jsonl {how} --out run{judged}")
        assert value["by_role"].get("judge", {"calls": 0})["calls"] == judged


def test_every_unreadable_part_is_counted_and_named(shell: Shell) -> None:
    folder = shell / "stored"
    write_lines(folder / "a.jsonl", [{"messages": TURNS}])
    (folder / "b.jsonl").write_text('{"messages": [\n')
    (folder / "notes.json").write_text('{"title": "x", "text": "y"}\n')
    write_lines(folder / "c.jsonl", [{"messages": [USER]}, {"messages": [REPLY]}, {"messages": []}])
    done = shell(f"learn --from-traces stored --trust own {EPISODES} run --json")
    assert len(done.json["entries"]) == 1
    assert done.json["errors"][Count.TRACE_FAULTS.value] == 5
    for name in ("stored/b.jsonl", "stored/notes.json", "stored/c.jsonl"):
        assert name in done.err


def test_if_nothing_can_be_read_the_command_ends_with_the_reasons(shell: Shell) -> None:
    shell.file("notes.json", '{"title": "x"}\n')
    assert "notes.json" in shell.fails(f"learn --from-traces notes.json {EPISODES} run", error="traces.unreadable")
    shell.fails(f"learn --from-traces nowhere {EPISODES} run", error="traces.not_found")
    assert not (shell / "run").exists()


def test_the_source_may_vanish_once_the_run_has_begun(shell: Shell) -> None:
    learn = (
        "learn --from-traces logs.jsonl --trust own --method ace --choices K2,K5,K7,K9 --model scripted:script.jsonl"
    )
    assert shell.json(f"{learn} --max-calls 2 --out run")["stopped"]
    (shell / "logs.jsonl").unlink()
    assert len(shell.json("space resume run --max-calls 100")["entries"]) == 3


def test_methods_and_settings_that_attempt_again_are_refused_before_the_first_call(shell: Shell, model: Model) -> None:
    for options in ("train.jsonl", "--online", "--set rounds=1", "--set refine=true", "--set lessons=3",
                    "--method none", "--method icl", "--method mael", "--method gepa", "--method rcl"):  # fmt: skip
        shell.fails(f"learn --from-traces logs.jsonl --model {model.name} --out run {options}")
    assert model.bodies == []
    assert not (shell / "run").exists()


@pytest.mark.slow
def test_these_methods_learn_from_traces_and_run_no_agent(shell: Shell, model: Model) -> None:
    bare = "rcl --set group=1 --set twin=false --set replay=0 --set attempted=none"
    methods = ("ace", "combee", "episodes", "naive", "top_k", "summarized", "reasoning_bank", "unified", bare)
    for number, method in enumerate(methods):
        how = f"--trust own --batch-size 3 --model {model.name} --method {method}"
        value = shell.json(f"learn --from-traces logs.jsonl {how} --out run{number}")
        assert "agent" not in value["by_role"], method
        assert len(shell.json(f"show run{number} --attempts")["attempts"]) == 3
