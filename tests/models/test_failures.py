"""Bodies that real servers send, and what each is about."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from practicum.models.failures import classify, error_summary

SENT = {"temperature", "max_tokens", "seed", "response_format", "system", "top_p", "stop", "thinking"}


def google(message: str, code: int = 400, status: str = "INVALID_ARGUMENT") -> list[Any]:
    return [{"error": {"code": code, "message": message, "status": status}}]


def vllm(message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


def openai(message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


def anthropic(message: str) -> dict[str, Any]:
    return {"type": "invalid_request_error", "message": message}


def extra(name: str) -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted", "input": 1}


BODIES: list[tuple[int, Any, str]] = [
    # A parameter
    (400, openai("Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is "
                 "supported.", "unsupported_value", "temperature"), "parameter temperature"),
    (400, openai("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                 "instead.", "unsupported_parameter"), "parameter max_tokens"),
    (400, openai("Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                 "unsupported_value", "messages[0].role"), "parameter system"),
    (400, vllm("System role not supported"), "parameter system"),
    (400, google("Developer instruction is not enabled for models/gemma-3-27b-it"), "parameter system"),
    (500, {"message": "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."},
     "parameter system"),
    (400, google('Invalid JSON payload received. Unknown name "seed": Cannot find field.'), "parameter seed"),
    (422, {"object": "error", "message": {"detail": [extra("seed")]}, "code": None}, "parameter seed"),
    (422, {"object": "error", "message": '{"detail":[{"type":"extra_forbidden","loc":["body","top_p"],"msg":"Extra '
           'inputs are not permitted"}]}', "type": "internal_error_proxy", "code": "1000"}, "parameter top_p"),
    (422, {"detail": [extra("store"), extra("stop")]}, "parameter stop"),
    (400, openai("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
     "parameter response_format"),
    (400, openai("This response_format type is unavailable now"), "parameter response_format"),
    (400, openai("This model does not support response format `json_schema`."), "parameter response_format"),
    (400, openai("invalid schema for response format: response_format/json_schema/step: minItems is not supported"),
     "parameter response_format"),
    (400, openai("'response_format.type' must be 'text'"), "parameter response_format"),
    (400, anthropic("`temperature` and `top_p` cannot both be specified for this model."), "parameter temperature"),
    (400, anthropic("`temperature` is deprecated for this model."), "parameter temperature"),
    (422, {"error": "Input validation error: `temperature` must be strictly positive", "error_type": "validation"},
     "parameter temperature"),
    (400, {"error": "Argument not supported on this model: stop"}, "parameter stop"),
    (400, {"error": "registry.ollama.ai/library/x does not support thinking"}, "parameter thinking"),
    (400, {"message": "Provider returned error", "code": 400, "metadata": {
        "raw": '{"error":{"message":"Unsupported parameter: \'seed\'"}}', "provider_name": "X"}}, "parameter seed"),
    # This request: a content filter
    (400, {"message": "The response was filtered due to the prompt triggering Azure OpenAI's content management "
           "policy.", "param": "prompt", "code": "content_filter", "innererror": {
               "code": "ResponsibleAIPolicyViolation"}}, "filter"),
    (400, anthropic("Output blocked by content filtering policy"), "filter"),
    (403, {"code": 403, "message": 'Your input was flagged for "violence".', "metadata": {"reasons": ["violence"]}},
     "filter"),
    (400, openai("Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
                 "invalid_prompt"), "filter"),
    (400, {"code": "421", "message": "Moderation Block", "type": "content_filter"}, "filter"),
    # This request: the window
    (400, openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens.",
                 "context_length_exceeded", "messages"), "window"),
    (400, {"code": 400, "message": "the request exceeds the available context size",
           "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}, "window"),
    (500, {"code": 500, "message": "the request exceeds the available context size. try increasing the context size",
           "type": "server_error"}, "window"),
    (400, vllm("The input (61709 tokens) is longer than the model's context length (40960 tokens)."), "window"),
    (422, openai("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000"), "window"),
    (400, anthropic("prompt is too long: 210000 tokens > 200000 maximum"), "window"),
    (400, google("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), "window"),
    (400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context "
           "length", "code": "3051"}, "window"),
    (413, {"message": "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000",
           "type": "tokens", "code": "rate_limit_exceeded"}, "window"),
    (400, vllm("'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is "
               "4096 tokens and your request has 12 input tokens"), "window"),
    # This request: anything else
    (400, openai("Bad request"), "input"),
    (422, openai("The input could not be processed."), "input"),
    (400, openai("max_tokens is too large: 40000. This model supports at most 16384 completion tokens",
                 "invalid_value", "max_tokens"), "input"),
    (400, None, "input"),
    (400, "plain text", "input"),
    # This sample
    (400, {**openai("Failed to generate JSON. Please adjust your prompt.", "json_validate_failed"),
           "failed_generation": "{"}, "sample"),
    (400, openai("Failed to call a function. See 'failed_generation' for more details.", "tool_use_failed"), "sample"),
    # All requests
    (401, openai("Incorrect API key provided", "invalid_api_key"), "key"),
    (401, {"message": "Unauthorized", "request_id": "x"}, "key"),
    (400, google("API key not valid. Please pass a valid API key."), "key"),
    (402, {"message": "Insufficient Balance"}, "credit"),
    (402, {"message": "This request requires more credits, or fewer max_tokens.", "code": 402}, "credit"),
    (400, anthropic("Your credit balance is too low to access the Anthropic API."), "credit"),
    (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "credit"),
    (404, openai("The model `x` does not exist or you do not have access to it.", "model_not_found"), "model"),
    (404, {"message": "model 'x' not found", "type": "not_found_error"}, "model"),
    (400, {"object": "error", "message": "Invalid model: x", "type": "invalid_model", "code": "1500"}, "model"),
    (400, {"message": "x/y is not a valid model ID", "code": 400}, "model"),
    (400, openai("The model `x` has been decommissioned and is no longer supported.", "model_decommissioned"), "model"),
    (403, {"message": "Country, region, or territory not supported",
           "code": "unsupported_country_region_territory"}, "account"),
    (400, google("User location is not supported for the API use.", status="FAILED_PRECONDITION"), "account"),
    # What passes
    (429, google("You exceeded your current quota, please check your plan and billing details. Please retry in 34s.",
                 429, "RESOURCE_EXHAUSTED"), "transient"),
    (429, {"message": "Rate limit reached for model `x` on tokens per minute: reduce your prompt",
           "code": "rate_limit_exceeded"}, "transient"),
    (503, {"message": "overloaded"}, "transient"),
    (529, {"type": "overloaded_error", "message": "Overloaded"}, "transient"),
    (500, openai("The server had an unexpected error. temperature seed"), "transient"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "expected"), BODIES)
def test_what_a_server_sends_is_about(status: int, body: Any, expected: str) -> None:
    error = ModelHTTPError(status, "m", body)
    refusal = classify(error, SENT)
    assert f"{refusal.kind} {refusal.parameter}".strip() == expected
    assert len(error_summary(error).splitlines()) == 1
    assert not refusal.parameter or classify(error, SENT - {refusal.parameter}).parameter != refusal.parameter
