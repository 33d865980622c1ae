"""Runs that were made elsewhere: by another user or on another machine.

A run folder names an agent, a scorer, models and more. Where this installation did not write that, the run is data: it
does only what the caller names, or what the caller says to trust. Reading it is free.
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
"""Scorers that run no program; what a judge's model is, is a matter of the models."""


@dataclass(frozen=True)
class Origin:
    """What a run says that it would execute, and what the caller names in place of that (fields of `Config`; None names
    nothing). A `trusted` run is obeyed."""

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
        """The origin of a run. `nameable` are the fields that the caller could name. If the caller trusts a run that is
        open for writing, it is this installation's from now on."""
        config, _ = read_config(store)
        own = is_own(store, config)
        if trust_run and not own and not store.read_only:
            update_run(store, mark=config_columns(config)["mark"])
            store.trusted = True
        objects = {**parts.names(), **({} if parts.embedder is None else {"embedder": parts.embedder.name})}
        given = {name: value for name, value in {**named, **objects}.items() if value is not None}
        return cls(store.folder, config, given, parts, own or trust_run, nameable)

    @property
    def method(self) -> str:
        """The method that can be looked at without importing anything foreign; none in place of a package's."""
        return self.config.method if self.trusted or methods.is_own(self.config.method) else "none"

    def values(self) -> dict[str, Any]:
        """The configuration for acting, with what the caller names over it."""
        self.require(("method",))
        values = acting_config(self.config)
        if not self.trusted:
            # Who made the run knows it.
            del values["nonce"]
        return override_config(values, self.named)

    def require_all(self) -> None:
        """Raises UsageError if the run names anything to execute or to ask that the caller neither names nor trusts,
        whether it is used or not."""
        self.require(EXECUTING, every_role=True)

    def require_acting(self, learns: bool = False, without: Collection[str] = ()) -> None:
        """The same for what attempts use, or also learning from them, but for these fields, which have no effect."""
        if self.trusted:
            return
        # A cluster is taken over by a resume alone.
        without = {*without, *used_by("cluster"), *(() if learns else used_by("learning"))}
        fields = [field for field in EXECUTING if field not in without]
        # Whom a method asks is known once it is built, which it is only if that runs nothing foreign.
        unbuilt = any(self._outside(("method", "settings")))
        self.require(fields, () if unbuilt else self._roles(learns, without), every_role=unbuilt)

    def acting_values(self, learns: bool = False, without: Collection[str] = ()) -> dict[str, Any]:
        """`values`, where `require_acting` raises nothing."""
        self.require_acting(learns, without)
        return self.values()

    def require(self, fields: Iterable[str], roles: Iterable[str] = (), *, every_role: bool = False) -> None:
        """The same for these fields and for the models of these roles."""
        if self.trusted:
            return
        found = [*self._outside(fields), *self._asked(tuple(roles), every_role)]
        if found:
            fields = list(dict.fromkeys(field for field, _ in found))
            instead = f"Name your own ({', '.join(f'`{field}`' for field in fields)}), or say"
            raise UsageError(
                "run.untrusted",
                f"{self.folder} was made elsewhere: it would "
                f"{', '.join(dict.fromkeys(text for _, text in found))}. "
                f"{instead if set(fields) <= {*self.nameable} else 'Say'} that you trust this run (`trust_run=True`)",
            )

    def _outside(self, fields: Iterable[str]) -> Iterator[tuple[str, str]]:
        """What these fields would execute, each with the field."""
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
                    given = self.named.get("settings") or {}
                    left = {name: setting for name, setting in value.items() if name not in given}
                    yield from ((field, text) for text in methods.settings_of(self.config.method).outside(left))
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
                    text = "let what it learns in without review"
                case "method" | "settings" | "agent" | "scorer" | "embedder" | "review" | "guard_tools":
                    continue
                case _ if value != Config.model_fields[field].get_default(call_default_factory=True):
                    text = f"use {field} {_shown(value)}"
                case _:
                    continue
            yield field, text

    def _roles(self, learns: bool, without: Collection[str]) -> Iterator[str]:
        """The roles that attempts ask, or also learning from them."""
        config = config_from({**self.values(), **self.parts.names()})
        method = make_method(config, make_settings(config), Splits(), self.parts)
        if config.asks and "agent" not in without:
            yield "agent"
        yield from method.act_roles
        if learns:
            yield from (*method.roles, "judge")
        elif config.scorer in JUDGED and "scorer" not in without:
            yield "judge"

    def _asked(self, roles: Collection[str], every: bool) -> Iterator[tuple[str, str]]:
        """The models of these roles, or of every one, each with the field that names it."""
        config, named = self.config, self.named.get("roles") or {}
        given = {*self.parts.clients, *(ROLES.get(role, role) for role in named)}
        by_model: dict[tuple[str, str], list[str]] = {}
        for name, model in config.roles.items():
            role = ROLES.get(name, name)
            # For acting, another model replaces that of the agent, too.
            replaced = name == "agent" and "model" in self.named and not every
            if (every or role in roles) and role not in given and not replaced:
                by_model.setdefault(("roles", model), []).append(role)
        own = {ROLES.get(name, name) for name in config.roles}
        left = (
            ["other roles" if by_model else "all roles"]
            if every
            else [role for role in dict.fromkeys(roles) if role not in own | given]
        )
        if left and config.model is not None and "model" not in self.named:
            by_model["model", config.model] = left
        for (field, model), asked in by_model.items():
            yield field, f"send prompts to {_shown(model)} ({', '.join(asked)})"


def acting_values(
    path: Path | str, named: Mapping[str, Any], parts: Parts, trust_run: bool, *, without: Collection[str] = ()
) -> dict[str, Any]:
    """What a caller names for acting, over the configuration of a run; of a playbook file it is all there is. Raises
    UsageError for a run that was made elsewhere and would execute more."""
    folder, _ = split_version(path)
    if not is_run(folder):
        return override_config({}, named)
    with Store.read(folder) as store:
        return Origin.of(store, named, parts, trust_run).acting_values(without=without)


def executes(folder: Path, config: Config) -> bool:
    """Whether a run executes the same as this configuration."""
    with Store.read(folder) as store:
        return read_config(store)[0].executing == config.executing


def _shown(value: object) -> str:
    return one_line(value, 200)
