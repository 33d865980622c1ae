"""Address of a simulated model for the real programs of coding agents: the Messages API and the Responses API."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


class ModelAddress:
    """Server at `url`, and the requests that it got. A request with tools for files is answered with a call that writes
    `new.py`, and its result with the text "done"; a request with a schema with {"answer": "4"}, and any other request
    with "pong". A model whose name ends in a number is answered with this HTTP status."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Body] = []

    def answer(self, path: str, body: Body) -> tuple[int, list[Body]]:
        """The HTTP status and the events for a request."""
        self.requests.append(body)
        if status := re.search(r"\d{3}$", body["model"]):
            error = {"type": "rate_limit_error", "message": "simulated"}
            return int(status[0]), [{"type": "error", "error": error}]
        return 200, _messages(body) if path.startswith("/v1/messages") else _responses(body)


def _messages(body: Body) -> list[Body]:
    names = {tool["name"] for tool in body["tools"]}
    wrote = "tool_result" in json.dumps(body["messages"])
    block: Body = {"type": "text", "text": "done" if wrote else "pong"}
    arguments: Body = {}
    if "StructuredOutput" in names and not wrote:
        arguments = {"answer": "4"}
        block = {"type": "tool_use", "id": "c1", "name": "StructuredOutput", "input": {}}
    elif "Write" in names and not wrote:
        folder = re.search(r"orking directory: ([^\\\s]+)", json.dumps([body["system"], body["messages"]]))
        assert folder is not None
        arguments = {"file_path": f"{folder[1]}/new.py", "content": "x = 2\n"}
        block = {"type": "tool_use", "id": "c1", "name": "Write", "input": {}}
    text = {"type": "text_delta", "text": block.get("text")}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)} if arguments else text
    usage = {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
    message = {
        "id": "m1", "type": "message", "role": "assistant", "model": body["model"], "content": [], "usage": usage,
        "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip
    stop = {"stop_reason": "tool_use" if arguments else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block | ({} if arguments else {"text": ""})},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {**usage, "output_tokens": 9}},
        {"type": "message_stop"},
    ]


def _responses(body: Body) -> list[Body]:
    names = {tool.get("name") for tool in body.get("tools", ())}
    wrote = "function_call_output" in json.dumps(body["input"])
    text = '{"answer": "4"}' if (body.get("text") or {}).get("format") else "done" if wrote else "pong"
    item: Body = {
        "id": "i1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }  # fmt: skip
    if "exec_command" in names and not wrote:
        command = json.dumps({"cmd": "echo 'x = 2' | tee new.py"})
        item = {"id": "i1", "type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": command}
    usage = {
        "input_tokens": 21, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 29,
    }  # fmt: skip
    response = {"id": "r1", "object": "response", "model": body["model"], "status": "completed", "output": [item]}
    return [
        {"type": "response.created", "response": response | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response | {"usage": usage}},
    ]


@contextmanager
def model_address() -> Iterator[ModelAddress]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *parts: object) -> None:
            pass

        def send(self, status: int, kind: str, text: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            self.send(426, "application/json", '{"error": {"message": "no WebSocket"}}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, events = address.answer(self.path, body)
            if status == 200:
                lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                self.send(status, "text/event-stream", "".join(lines))
            else:
                self.send(status, "application/json", json.dumps(events[0]))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = ModelAddress(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
