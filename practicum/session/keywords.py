"""The settings of a run as keywords of functions.

They are made from the fields of `session.config.Config`, because a type checker cannot derive them:
`PRACTICUM_UPDATE_DOCS=1 pytest tests/session/test_settings.py` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from practicum.agents.limits import GuardTools
from practicum.core.sensitive import Kind
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.engine.resources import Resources
from practicum.models.options import ModelOptions
from practicum.models.prices import PricesArgument
from practicum.models.refused import Structure


class RunOptions(TypedDict, total=False):
    """The keywords that `learn`, `evaluate`, `compare` and `ask` share."""

    model: str | None
    """Model of all roles without a model in `roles`: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or
    local:PATH. Default: the variable PRACTICUM_MODEL."""
    roles: Mapping[str, str]
    """Models by role (agent, reflector, curator, judge, state), as ROLE=MODEL; repeatable."""
    profile: Profile | None
    """Prompts and formats for capable models (full) or for small models (small). None: small if the reflector's model
    runs in this process, otherwise full. Without a model for the reflector, the agent's model decides."""
    sections: Mapping[str, str] | Sequence[str]
    """Sections of the playbook with their descriptions (NAME: DESCRIPTION), or only names. On the command line a file
    with lines NAME: DESCRIPTION, or names as a,b,c. Without names, the profile full uses the sections of the seed
    and a few general sections; the profile small uses only `rules`."""
    agent: str
    """Agent: chat, tools:module:name, cli:PROGRAM, command:PROGRAM, module:function, or an agent of a plug-in."""
    scorer: str | None
    """Scorer: exact, numeric, tests, ... (see docs/learn/tasks.md) or module:function. None: the scorer of the agent's
    plug-in; otherwise choice if `choices` is set, else exact."""
    instructions: str
    """Text that the agent sees with each task, or @FILE."""
    choices: Sequence[str]
    """Possible answers, as a,b,c, @FILE with one answer a line, or auto (the targets of the tasks)."""
    reasoning: bool
    """The chat agent writes its reasoning before the answer."""
    max_turns: int
    """Maximum number of model calls of an agent with tools in one attempt."""
    learn_tools: bool
    """Also learn the descriptions of the agent's tools and their parameters: they become entries, which the curator
    edits."""
    tool_timeout: float
    """Timeout (s) of a tool call, and of opening or closing the tools' environment."""
    guard_tools: GuardTools
    """Handling of tool calls whose text comes only from untrusted sources: off (no check), refuse, or ask (for
    approval). Approval comes from `Parts(approve=...)` or the terminal; if neither is available, the call is refused
    (`agents.guard`)."""
    labels: bool
    """Learning uses targets and scores; --no-labels hides both."""
    targets: bool
    """Learning sees right answers; --no-targets shows it only whether an answer is right."""
    judged: bool
    """A judge's verdict is the feedback; for learning without labels or scores."""
    seed: int
    """Seed of all random choices."""
    concurrency: int
    """Maximum number of concurrent calls to one endpoint, or concurrent attempts of your own agent."""
    batch_api: bool
    """Send calls through the batch API of openai:NAME and anthropic:NAME: half the price, answers within a day. A run
    that was stopped while a batch was under way collects its answers on resume."""
    engine: str
    """Where attempts run: local (this process), ray (a cluster), or the engine of a plug-in. Everything except attempts
    runs in this process, and so do attempts of an agent that makes one model call."""
    ray_address: str | None
    """Address of the cluster's head as HOST:PORT, or auto: the cluster of this machine. None: RAY_ADDRESS, or else a
    local Ray that is started for this run."""
    resources: Resources | Mapping[str, Any] | str
    """Resources of an attempt on a cluster, such as cpu=2,gpu=0.5,memory=4gb,image=NAME. Default: one CPU. Attempts
    that need less than one CPU share a process."""
    structure: Structure
    """How JSON is requested from models: native, tool, prompted, grammar. native: a schema in the request; tool: a tool
    call; prompted: in the prompt; grammar: for llama.cpp. If tasks have choices, `grammar` cannot be set or replaced
    after the first stored attempt."""
    temperature: float | None
    """Sampling temperature of every role. None (Python only): the provider's default."""
    max_output_tokens: int | None
    """Maximum number of output tokens of one call. None: 4,096 in the profile full and 1,024 in small."""
    timeout: float
    """Timeout (s) of one try of a call, from the connection to the last byte."""
    retries: int
    """Number of retries after a provider error."""
    api_key_env: str | None
    """Environment variable with the key of a model at an address; the key is never stored."""
    max_reply_mb: float
    """Maximum size (MB) of a reply; a larger reply is a failed call."""
    model_options: ModelOptions | Mapping[str, Any] | str
    """Options of every request, as JSON: {"extra_body": {...}, "headers": {NAME: "env:NAME"}}. Write a secret in a
    header as env:NAME, the name of an environment variable; the secret is not stored."""
    window: int | None
    """Size (tokens) of the model's context window. None: 8,192 for models in this process, and the published window for
    other models."""
    prices: PricesArgument
    """Prices (USD per million tokens), in=X,cached=X,out=X; 'NAME in=X,out=X' for one model. For models that genai-
    prices does not list. In Python also a mapping by model name; the price of the key * applies to every model
    without another price."""
    embedder: str
    """Embedder: wordllama, granite, or an embedder of pydantic-ai (openai:text-embedding-3-small)."""
    validate_every: int
    """Number of steps between two validations, if there are validation tasks."""
    review: Review
    """Edits that wait for `practicum review`: none, foreign (not from your own tasks, or flagged), or all."""
    trust_tools: bool
    """Trust tool results like your own tasks."""
    redact: Sequence[Kind] | str
    """Kinds of values to replace by placeholders: secrets, emails, cards, ibans, ids, phones, ips, or all."""
    redact_map: str | Path | None
    """File, outside the run's folder, that stores the redacted values, so that tools and programs receive the real
    values."""
    nonce: str
    """Word in the markers around entries and material in prompts; empty: no markers. By default derived from the tasks
    (`engine.framing`)."""
    from_traces: bool
    """Learn from attempts stored in the tasks; the agent runs in evaluations only."""
    trace_faults: int
    """Number of parts of the stored traces that could not be read in full; the report shows this number."""
    before: bool
    """Also score the test tasks before learning."""
    max_calls: int | None
    """Maximum number of model calls, over all resumes."""
    max_tokens: int | None
    """Maximum number of tokens, input and output together."""
    max_usd: float | None
    """Maximum cost (USD)."""
    max_minutes: float | None
    """Maximum work time (min), over all resumes."""


class ResumeOptions(TypedDict, total=False):
    """The keywords of `resume` that change settings of the run; None changes nothing. The manual says when each may
    change."""

    model: str | None
    """Model of all roles without a model in `roles`: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or
    local:PATH. Default: the variable PRACTICUM_MODEL."""
    roles: Mapping[str, str] | None
    """Models by role (agent, reflector, curator, judge, state), as ROLE=MODEL; repeatable."""
    agent: str | None
    """Agent: chat, tools:module:name, cli:PROGRAM, command:PROGRAM, module:function, or an agent of a plug-in."""
    guard_tools: GuardTools | None
    """Handling of tool calls whose text comes only from untrusted sources: off (no check), refuse, or ask (for
    approval). Approval comes from `Parts(approve=...)` or the terminal; if neither is available, the call is refused
    (`agents.guard`)."""
    concurrency: int | None
    """Maximum number of concurrent calls to one endpoint, or concurrent attempts of your own agent."""
    batch_api: bool | None
    """Send calls through the batch API of openai:NAME and anthropic:NAME: half the price, answers within a day. A run
    that was stopped while a batch was under way collects its answers on resume."""
    engine: str | None
    """Where attempts run: local (this process), ray (a cluster), or the engine of a plug-in. Everything except attempts
    runs in this process, and so do attempts of an agent that makes one model call."""
    ray_address: str | None
    """Address of the cluster's head as HOST:PORT, or auto: the cluster of this machine. None: RAY_ADDRESS, or else a
    local Ray that is started for this run."""
    resources: Resources | Mapping[str, Any] | str | None
    """Resources of an attempt on a cluster, such as cpu=2,gpu=0.5,memory=4gb,image=NAME. Default: one CPU. Attempts
    that need less than one CPU share a process."""
    structure: Structure | None
    """How JSON is requested from models: native, tool, prompted, grammar. native: a schema in the request; tool: a tool
    call; prompted: in the prompt; grammar: for llama.cpp. If tasks have choices, `grammar` cannot be set or replaced
    after the first stored attempt."""
    temperature: float | None
    """Sampling temperature of every role. None (Python only): the provider's default."""
    timeout: float | None
    """Timeout (s) of one try of a call, from the connection to the last byte."""
    retries: int | None
    """Number of retries after a provider error."""
    api_key_env: str | None
    """Environment variable with the key of a model at an address; the key is never stored."""
    max_reply_mb: float | None
    """Maximum size (MB) of a reply; a larger reply is a failed call."""
    model_options: ModelOptions | Mapping[str, Any] | str | None
    """Options of every request, as JSON: {"extra_body": {...}, "headers": {NAME: "env:NAME"}}. Write a secret in a
    header as env:NAME, the name of an environment variable; the secret is not stored."""
    window: int | None
    """Size (tokens) of the model's context window. None: 8,192 for models in this process, and the published window for
    other models."""
    prices: PricesArgument | None
    """Prices (USD per million tokens), in=X,cached=X,out=X; 'NAME in=X,out=X' for one model. For models that genai-
    prices does not list. In Python also a mapping by model name; the price of the key * applies to every model
    without another price."""
    max_calls: int | None
    """Maximum number of model calls, over all resumes."""
    max_tokens: int | None
    """Maximum number of tokens, input and output together."""
    max_usd: float | None
    """Maximum cost (USD)."""
    max_minutes: float | None
    """Maximum work time (min), over all resumes."""
