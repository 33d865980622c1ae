"""Changes of settings on resume: only settings that no stored result depends on may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.core.clashes import refuse
from practicum.core.errors import UsageError
from practicum.core.settings import Resume
from practicum.engine.resources import LOCAL, Resources
from practicum.models.budget import LIMITS
from practicum.models.prices import read_prices
from practicum.models.registry import ROLES, client_name
from practicum.session.components import Parts
from practicum.session.config import (
    CLASHES,
    RESUMABLE,
    SETTINGS,
    Config,
    Splits,
    config_from,
    prices_for,
    require_names,
)
from practicum.session.records import StoredResults
from practicum.session.setup import Setup, build_setup, check_engine, set_up


def resumed(
    config: Config, changes: Mapping[str, Any], splits: Splits, parts: Parts, stored_results: StoredResults
) -> Setup:
    """Return the setup of a stored run with these changes. Raises UsageError for a change that contradicts stored
    results."""
    require_names(changes, RESUMABLE)
    values = {name: value for name, value in changes.items() if value is not None and value != {}}
    if "roles" in values:
        values["roles"] = config.roles | {ROLES.get(role, role): name for role, name in values["roles"].items()}
    if "prices" in values:
        values["prices"] = {**config.prices, **read_prices(values["prices"])}
    if values.get("engine") == LOCAL:
        values = {"ray_address": None, "resources": Resources(), **values}
    new = config_from({**config.model_dump(), **values})
    if "api_key_env" not in values and new.hosts != config.hosts:
        new = new.model_copy(update={"api_key_env": None})  # the key belongs to another server
    if "model_options" not in values and new.servers != config.servers:
        new = new.model_copy(update={"model_options": new.model_options.without_secrets()})
    _check_limits(new, values, stored_results)
    changed = {name for name in values if getattr(new, name) != getattr(config, name)}
    _check_unchanged(config, new, changed, stored_results)
    if all(SETTINGS[name].setting.resume in (Resume.FREE, Resume.LATER) for name in changed):
        refuse(new, CLASHES)
        setup = build_setup(new, splits, parts)
        check_engine(setup)
        return setup
    new = new.model_copy(update={"prices": prices_for(new.prices, new.model, new.roles)})
    setup = set_up(new.model_dump(), splits, parts)
    for role in setup.roles:
        old, name = config.roles.get(role, config.model), new.roles.get(role, new.model)
        same = old and name and client_name(old) == client_name(name)
        if old != name and not same and setup.client(role) is None and (stored_counts := stored_results.of(role)):
            raise UsageError(
                "settings.fixed",
                f"the model of the {role} cannot change from {old} to {name}: the run stores {stored_counts} of "
                f"{old}. Change only other roles with `roles`, or start a new run from this run's context "
                "(`seed_context`)",
                setting="model",
                role=role,
            )
    return setup


def _check_limits(config: Config, changes: Mapping[str, Any], stored_results: StoredResults) -> None:
    """Refuse a new limit that the run has already spent."""
    spent = {
        "max_calls": stored_results.spent.calls, "max_tokens": stored_results.spent.tokens,
        "max_usd": stored_results.spent.usd,
        "max_minutes": stored_results.seconds / 60,
    }  # fmt: skip
    for name, unit in LIMITS.items():
        if name not in changes:
            continue
        limit, used = getattr(config, name), spent[name]
        if used is None:
            raise UsageError(
                "price.unknown",
                f"`{name}={limit:g}` cannot be enforced: the price of earlier calls of this run is unknown",
                setting=name,
            )
        if limit <= used:
            raise UsageError(
                "budget.spent",
                f"`{name}={limit:g}` is spent: this run has already used {used:.6g} {unit}; raise the limit",
                setting=name,
                used=used,
            )


def _check_unchanged(config: Config, new: Config, changed: set[str], stored_results: StoredResults) -> None:
    """Refuse a change that contradicts stored results. Models are checked later, when the roles are known."""
    attempts, results = stored_results.of("agent"), sum(stored_results.answers.values())
    for name in sorted(changed):
        match SETTINGS[name].setting.resume:
            case Resume.NO_ATTEMPT if attempts:
                stored_counts = f"{attempts} of the agent"
            case Resume.NOTHING if results:
                stored_counts = f"{results} results"
            case _:
                continue
        raise UsageError(
            "settings.fixed",
            f"`{name}` cannot change from {getattr(config, name)} to {getattr(new, name)}: the run stores "
            f"{stored_counts}. Start a new run from this run's context (`seed_context`)",
            setting=name,
        )
    grammar = "structure" in changed and "grammar" in (config.structure, new.structure)
    # A grammar restricts the agent to the choices, so requests with a grammar differ from requests without a grammar.
    if grammar and config.choices and attempts:
        raise UsageError(
            "settings.fixed",
            f"the structure cannot change from {config.structure} to {new.structure} with `choices`: the run stores "
            f"{attempts} of the agent",
            setting="structure",
        )
