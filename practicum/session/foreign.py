"""Foreign runs: runs created by another user or on another machine.

A run folder names an agent, a scorer, models and more. If this installation did not write the folder, these names are
data: the caller must replace the names or trust the run to use them. Reading a run needs no trust.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.core.errors import UsageError
from practicum.core.words import one_line
from practicum.models.registry import ROLES
from practicum.session.components import Parts, make_method, make_settings
from practicum.session.config import EXECUTING, PYTHON, TOOLS, Config, Splits, config_from, used_by
from practicum.session.records import (
    acting_config,
    config_columns,
    is_own,
    override_config,
    read_config,
    split_version,
    update_run,
)
from practicum.store.database import Store
from practicum.store.folder import is_run
from practicum.tasks.scoring.registry import COMPARING, JUDGED

HARMLESS_SCORERS = (*COMPARING, "coverage", *JUDGED)
"""Scorers that run no program; the model of a judge is checked with the other models."""


@dataclass(frozen=True)
class Origin:
    """Configuration of a run with the caller's overrides, and whether the run is trusted. `named` are the overrides by
    field of `Config`. If `trusted`, all settings of the run are used. `nameable` are the fields that the caller could
    override."""

    folder: Path
    config: Config
    named: Mapping[str, Any]
    parts: Parts
    trusted: bool
    nameable: Collection[str]

    @classmethod
    def of(
        cls, store: Store, named: Mapping[str, Any], parts: Parts, trust_run: bool,
        nameable: Collection[str] = EXECUTING,
    ) -> Origin:  # fmt: skip
        """Return the origin of a run. `named` are the caller's overrides; a value of None overrides nothing. `nameable`
        are the fields that the caller could override.

        If the caller trusts a run that is open for writing, the run counts as a run of this installation after this
        call.
        """
        config, _ = read_config(store)
        own = is_own(store, config)
        if trust_run and not own and not store.read_only:
            update_run(store, mark=config_columns(config)["mark"])
            store.trusted = True
        objects = {**parts.names(), **({} if parts.embedder is None else {"embedder": parts.embedder.name})}
        overrides = {name: value for name, value in {**named, **objects}.items() if value is not None}
        return cls(store.folder, config, overrides, parts, own or trust_run, nameable)

    @property
    def method(self) -> str:
        """Name of the run's method, or "none" if inspecting the method would import foreign code."""
        return self.config.method if self.trusted or methods.is_own(self.config.method) else "none"

    def values(self) -> dict[str, Any]:
        """Return the run's configuration for attempts, with the caller's overrides."""
        self.require(("method",))
        values = acting_config(self.config)
        if not self.trusted:
            # The author of the run knows its nonce, and could imitate the markers in prompts.
            del values["nonce"]
        return override_config(values, self.named)

    def require_all(self) -> None:
        """Raise UsageError if an untrusted run names code to execute or a model to call, and the caller does not
        override the name. Settings that the caller's command does not use are checked too."""
        self.require(EXECUTING, every_role=True)

    def require_acting(self, learns: bool = False, without: Collection[str] = ()) -> None:
        """Raise UsageError as `require_all` does, for the settings that attempts use and, with `learns`, for the
        settings of learning. The fields in `without` have no effect and are not checked."""
        if self.trusted:
            return
        # Only a resume reuses a cluster.
        without = {*without, *used_by("cluster"), *(() if learns else used_by("learning"))}
        fields = [field for field in EXECUTING if field not in without]
        # Only a built method names its roles. The method is built only if building runs no foreign code; otherwise
        # every role is checked.
        unbuilt = any(self._foreign_uses(("method", "settings")))
        self.require(fields, () if unbuilt else self._roles(learns, without), every_role=unbuilt)

    def acting_values(self, learns: bool = False, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the result of `values`, after the check of `require_acting`."""
        self.require_acting(learns, without)
        return self.values()

    def require(self, fields: Iterable[str], roles: Iterable[str] = (), *, every_role: bool = False) -> None:
        """Raise UsageError if an untrusted run names code or models in these fields or for these roles, and the caller
        does not override the name."""
        if self.trusted:
            return
        violations = [*self._foreign_uses(fields), *self._foreign_models(tuple(roles), every_role)]
        if violations:
            fields = list(dict.fromkeys(field for field, _ in violations))
            instead = f"Pass your own ({', '.join(f'`{field}`' for field in fields)}), or"
            raise UsageError(
                "run.untrusted",
                f"{self.folder} was created elsewhere: the run would "
                f"{', '.join(dict.fromkeys(text for _, text in violations))}. "
                f"{instead if set(fields) <= {*self.nameable} else 'To continue,'} trust this run (`trust_run=True`)",
            )

    def _foreign_uses(self, fields: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield each of these fields that would run foreign code or send data, with a text that describes the
        effect."""
        for field in fields:
            value = getattr(self.config, field)
            if field in self.named and field != "settings":
                continue
            match field:
                case "model" | "roles" | "nonce":
                    continue
                case "ray_address" | "resources" if "engine" in self.named:
                    continue
                case "method" if not methods.is_own(value) and not value.startswith(PYTHON):
                    text = f"import the method {_shown(value)}"
                case "settings" if methods.is_own(self.config.method) and "method" not in self.named:
                    overridden = self.named.get("settings") or {}
                    remaining = {name: setting for name, setting in value.items() if name not in overridden}
                    yield from ((field, text) for text in methods.settings_of(self.config.method).outside(remaining))
                    continue
                case "agent" if value != "chat" and not value.removeprefix(TOOLS).startswith(PYTHON):
                    text = f"run the agent {_shown(value)}"
                case "scorer" if value not in (None, *HARMLESS_SCORERS) and not value.startswith(PYTHON):
                    text = f"score with {_shown(value)}"
                case "embedder" if value not in ("wordllama", "granite"):
                    text = f"send texts to the embedder {_shown(value)}"
                case "api_key_env" if value is not None:
                    text = f"send the key in {_shown(value)}"
                case "review" if value == "none":
                    text = "apply its lessons without review"
                case "method" | "settings" | "agent" | "scorer" | "embedder" | "review" | "guard_tools":
                    continue
                case _ if value != Config.model_fields[field].get_default(call_default_factory=True):
                    text = f"use {field} {_shown(value)}"
                case _:
                    continue
            yield field, text

    def _roles(self, learns: bool, without: Collection[str]) -> Iterator[str]:
        """Yield the roles that attempts call, and with `learns` also the roles of learning."""
        config = config_from({**self.values(), **self.parts.names()})
        method = make_method(config, make_settings(config), Splits(), self.parts)
        if config.asks and "agent" not in without:
            yield "agent"
        yield from method.act_roles
        if learns:
            yield from (*method.roles, "judge")
        elif config.scorer in JUDGED and "scorer" not in without:
            yield "judge"

    def _foreign_models(self, roles: Collection[str], every: bool) -> Iterator[tuple[str, str]]:
        """Yield a field and a text that describes the effect, for each model of these roles (or of every role) that the
        run names and the caller does not replace."""
        config, named = self.config, self.named.get("roles") or {}
        overridden = {*self.parts.clients, *(ROLES.get(role, role) for role in named)}
        by_model: dict[tuple[str, str], list[str]] = {}
        for name, model in config.roles.items():
            role = ROLES.get(name, name)
            # For acting, an override of `model` also replaces the model of the role `agent`.
            replaced = name == "agent" and "model" in self.named and not every
            if (every or role in roles) and role not in overridden and not replaced:
                by_model.setdefault(("roles", model), []).append(role)
        own = {ROLES.get(name, name) for name in config.roles}
        remaining = (
            ["other roles" if by_model else "all roles"]
            if every
            else [role for role in dict.fromkeys(roles) if role not in own | overridden]
        )
        if remaining and config.model is not None and "model" not in self.named:
            by_model["model", config.model] = remaining
        for (field, model), called in by_model.items():
            yield field, f"send prompts to {_shown(model)} ({', '.join(called)})"


def acting_values(
    path: Path | str, named: Mapping[str, Any], parts: Parts, trust_run: bool, *, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values for acting: the configuration of a run with the caller's overrides. For a playbook file, return
    only the overrides.

    Raises UsageError if an untrusted run would execute code or call models that the caller did not name.
    """
    folder, _ = split_version(path)
    if not is_run(folder):
        return override_config({}, named)
    with Store.read(folder) as store:
        return Origin.of(store, named, parts, trust_run).acting_values(without=without)


def executes(folder: Path, config: Config) -> bool:
    """Return whether the run in a folder and a configuration execute the same code and call the same models."""
    with Store.read(folder) as store:
        return read_config(store)[0].executing == config.executing


def _shown(value: object) -> str:
    return one_line(value, 200)
