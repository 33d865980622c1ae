"""The settings of a run as keywords of functions.

They are made from the fields of `session.config.Config`, because a type checker cannot derive them:
`PRACTICUM_UPDATE_DOCS=1 pytest tests/session/test_settings.py` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from practicum.agents.limits import GuardTools
from practicum.core.sensitive import Kind
from practicum.core.trust import Review
from practicum.core.types import Profile
from practicum.engine.resources import Resources
from practicum.models.options import ModelOptions
from practicum.models.prices import GivenPrices
from practicum.models.refused import Structure


class RunOptions(TypedDict, total=False):
    """The keywords that `learn`, `evaluate`, `compare` and `ask` share."""

    model: str | None
    """The model of every role without its own: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or
    local:PATH."""
    roles: Mapping[str, str]
    """Models by role (agent, reflector, curator, judge, state); typed as ROLE=MODEL, repeatable."""
    profile: Profile | None
    """Prompts and forms for capable models (full) or for small ones (small). If it is None: small where the model that
    reflects, or else the agent's, runs in this process."""
    sections: Mapping[str, str] | Sequence[str]
    """Sections of the playbook, with what belongs there: NAME: DESCRIPTION, or names alone. Typed as a file of such
    lines, or a,b,c. If it is empty: those of the seed and a set for any task; in the profile small, the one section
    rules."""
    agent: str
    """The agent: chat, tools:module:name, command:PROGRAM, module:function, or one of a plug-in."""
    scorer: str | None
    """The scorer: exact, numeric, tests, ... (see docs/tasks.md) or module:function. If it is None: that of the agent's
    plug-in, choice if choices are given, else exact."""
    instructions: str
    """Text that the agent sees with each task; typed as it is, or as @FILE."""
    choices: Sequence[str]
    """The possible answers; typed as a,b,c, @FILE of lines, or auto (the targets of the tasks)."""
    reasoning: bool
    """The chat agent writes its reasoning before the answer."""
    max_turns: int
    """Model calls of an agent with tools in one attempt, at most."""
    tool_timeout: float
    """Seconds that a tool may take, and that the tools' environment may take to open or close."""
    guard_tools: GuardTools
    """Tool calls whose text only strangers wrote: off (made), refuse, or ask (held for approval). Approval comes from
    `Parts(approve=...)` or the terminal; without either, the call is refused (`agents.guard`)."""
    labels: bool
    """Learning sees targets and scores; --no-labels hides both."""
    judged: bool
    """Without labels or scores: a judge's verdict is the feedback."""
    seed: int
    """The seed of every random choice."""
    concurrency: int
    """Calls in flight at one endpoint, or attempts of an agent of your own, at most."""
    engine: str
    """Where attempts are made: local (this process), ray (a cluster), or a plug-in's engine. The rest of a run stays in
    this process, and so does an agent that makes one model call."""
    ray_address: str | None
    """The cluster's head as HOST:PORT, or auto: the cluster that this machine is part of. If it is None: RAY_ADDRESS,
    or else a Ray of this machine that is started for the run alone."""
    resources: Resources | Mapping[str, Any] | str
    """What an attempt on a cluster takes, such as cpu=2,gpu=0.5,memory=4gb,image=NAME. One processor if nothing is
    given. Attempts that take less than one share a process."""
    structure: Structure
    """How models are asked for JSON: native, tool, prompted, grammar. native: a schema in the request; tool: a tool
    call; prompted: in the prompt; grammar: for llama.cpp. With choices, grammar is fixed once an attempt is kept."""
    temperature: float | None
    """The sampling temperature of every role. If a program gives None, the provider chooses it."""
    max_output_tokens: int | None
    """Tokens that one call may write, at most. If it is None: 4,096 in the profile full and 1,024 in small."""
    timeout: float
    """Seconds that one try of a call may take, from the connection to the last byte."""
    retries: int
    """How often a call that the provider failed is sent again."""
    api_key_env: str | None
    """The environment variable with the key of a model at an address; the key is stored nowhere."""
    max_reply_mb: float
    """Megabytes of a reply, at most; a larger one is a failed call."""
    model_options: ModelOptions | Mapping[str, Any] | str
    """More for every request, as JSON: {"extra_body": {...}, "headers": {NAME: "env:NAME"}}. A secret in a header is
    written as env:NAME, the name of an environment variable, and is not stored."""
    window: int | None
    """Tokens that fit into the model's context window. If it is None: 8,192 for models in this process, and the known
    window for others."""
    prices: GivenPrices
    """US dollars per million tokens, in=X,cached=X,out=X; 'NAME in=X,out=X' for one model. For models that genai-prices
    does not list. In Python also a mapping by model names, in which * stands for every model without a price."""
    embedder: str
    """The embedder: wordllama, granite, or one of pydantic-ai (openai:text-embedding-3-small)."""
    validate_every: int
    """Steps between two validations, if there are validation tasks."""
    review: Review
    """Which edits wait for `practicum review`: none, foreign (not from your own tasks, or flagged), or all."""
    trust_tools: bool
    """What tools return is as trusted as your own tasks."""
    redact: Sequence[Kind] | str
    """Values that become placeholders: secrets, emails, cards, ibans, ids, phones, ips, or all."""
    redact_map: str | None
    """The file, outside the run, that keeps the redacted values; tools and programs then get them back."""
    nonce: str
    """The word in the marks around entries and material that models are shown; empty: no marks. By default it is made
    of the tasks (`engine.framing`)."""
    from_traces: bool
    """Learning is from attempts that the tasks carry, so that the agent runs in evaluations only."""
    trace_faults: int
    """Parts of the stored traces that could not be read in full; the report counts them."""
    before: bool
    """The test tasks are also scored before learning."""
    max_calls: int | None
    """Stop before more model calls than this, over all resumes."""
    max_tokens: int | None
    """Stop before more tokens than this, input and output together."""
    max_usd: float | None
    """Stop before it costs more US dollars than this."""
    max_minutes: float | None
    """Stop after this many minutes of work."""


class ResumeOptions(TypedDict, total=False):
    """The keywords of `resume` that change settings of the run; None changes nothing. docs/settings.md says when each
    may change."""

    model: str | None
    """The model of every role without its own: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or
    local:PATH."""
    roles: Mapping[str, str] | None
    """Models by role (agent, reflector, curator, judge, state); typed as ROLE=MODEL, repeatable."""
    agent: str | None
    """The agent: chat, tools:module:name, command:PROGRAM, module:function, or one of a plug-in."""
    guard_tools: GuardTools | None
    """Tool calls whose text only strangers wrote: off (made), refuse, or ask (held for approval). Approval comes from
    `Parts(approve=...)` or the terminal; without either, the call is refused (`agents.guard`)."""
    concurrency: int | None
    """Calls in flight at one endpoint, or attempts of an agent of your own, at most."""
    engine: str | None
    """Where attempts are made: local (this process), ray (a cluster), or a plug-in's engine. The rest of a run stays in
    this process, and so does an agent that makes one model call."""
    ray_address: str | None
    """The cluster's head as HOST:PORT, or auto: the cluster that this machine is part of. If it is None: RAY_ADDRESS,
    or else a Ray of this machine that is started for the run alone."""
    resources: Resources | Mapping[str, Any] | str | None
    """What an attempt on a cluster takes, such as cpu=2,gpu=0.5,memory=4gb,image=NAME. One processor if nothing is
    given. Attempts that take less than one share a process."""
    structure: Structure | None
    """How models are asked for JSON: native, tool, prompted, grammar. native: a schema in the request; tool: a tool
    call; prompted: in the prompt; grammar: for llama.cpp. With choices, grammar is fixed once an attempt is kept."""
    temperature: float | None
    """The sampling temperature of every role. If a program gives None, the provider chooses it."""
    timeout: float | None
    """Seconds that one try of a call may take, from the connection to the last byte."""
    retries: int | None
    """How often a call that the provider failed is sent again."""
    api_key_env: str | None
    """The environment variable with the key of a model at an address; the key is stored nowhere."""
    max_reply_mb: float | None
    """Megabytes of a reply, at most; a larger one is a failed call."""
    model_options: ModelOptions | Mapping[str, Any] | str | None
    """More for every request, as JSON: {"extra_body": {...}, "headers": {NAME: "env:NAME"}}. A secret in a header is
    written as env:NAME, the name of an environment variable, and is not stored."""
    window: int | None
    """Tokens that fit into the model's context window. If it is None: 8,192 for models in this process, and the known
    window for others."""
    prices: GivenPrices | None
    """US dollars per million tokens, in=X,cached=X,out=X; 'NAME in=X,out=X' for one model. For models that genai-prices
    does not list. In Python also a mapping by model names, in which * stands for every model without a price."""
    max_calls: int | None
    """Stop before more model calls than this, over all resumes."""
    max_tokens: int | None
    """Stop before more tokens than this, input and output together."""
    max_usd: float | None
    """Stop before it costs more US dollars than this."""
    max_minutes: float | None
    """Stop after this many minutes of work."""
