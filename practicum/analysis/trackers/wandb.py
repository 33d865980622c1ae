"""Weights & Biases: https://docs.wandb.ai."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from practicum.analysis.trackers.tracker import PATIENCE, State, Tracker, log, parameters, require
from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.playbook import export
from practicum.session.result import RunInfo

OFFLINE = ("offline", "dryrun", "disabled")
"""Modes of wandb that need no login."""


class Wandb(Tracker):
    """Sends a run to Weights & Biases, as `wandb` is configured there: by `wandb login` and the variables WANDB_*.

    `project` is WANDB_PROJECT if not given, else "practicum". Where the service cannot be reached, the run is recorded
    in ./wandb, and `wandb sync` sends it later. Raises UsageError if wandb is not installed or has no login.
    """

    service = "wandb"

    def __init__(self, project: str | None = None, *, name: str | None = None, group: str | None = None) -> None:
        super().__init__(name, group)
        require("wandb", "wandb")
        import wandb

        self.project = project or os.environ.get("WANDB_PROJECT") or "practicum"
        self._wandb: Any = None
        offline = os.environ.get("WANDB_MODE", "").lower() in OFFLINE or wandb.setup().settings.mode in OFFLINE
        if not offline and not wandb.login(prompt=False, verify=False):
            raise UsageError(
                "tracker.unusable",
                "wandb has no login: run `wandb login`, or set WANDB_MODE=offline to record without one",
            )

    def open(self, run: RunInfo, id: str | None) -> str:
        import wandb

        settings = wandb.Settings(
            console="off", silent=True, init_timeout=PATIENCE * 0.6, finish_timeout=PATIENCE,
            # The command line, a diff of the folder's repository and its code may hold texts of tasks.
            disable_git=True, disable_code=True, save_code=False, x_disable_meta=True,
        )  # fmt: skip
        # Weave, which wandb would start where it is installed, sends prompts.
        os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")
        id = id or uuid4().hex[:8]
        how: dict[str, Any] = {
            "project": self.project, "id": id, "name": self.name or run.folder.name, "group": self.group,
            "config": parameters(run), "resume": "allow", "reinit": "create_new", "settings": settings,
        }  # fmt: skip
        try:
            self._wandb = wandb.init(**how)
        except wandb.errors.CommError as error:
            # The failed call holds its id until this process ends.
            id = how["id"] = uuid4().hex[:8]
            self._wandb = wandb.init(mode="offline", **how)
            reason = str(error).partition("\n")[0]
            log.warning("wandb: %s; recorded offline, send it later: wandb sync %s", reason, self.folder)
        self._wandb.define_metric("*", step_metric="step")
        log.info("wandb: %s", self.folder if self._wandb.offline else self._wandb.url)
        return id

    @property
    def folder(self) -> str:
        """Where wandb keeps the run on this machine."""
        return str(self._wandb.settings.sync_dir)

    def send(self, values: Mapping[str, float], step: int) -> None:
        self._wandb.log({**values, "step": step})

    def save(self, context: Context, step: int, label: str) -> None:
        import wandb

        about = {"version": context.version, "entries": len(context), "step": step}
        artifact = wandb.Artifact(f"context-{self._wandb.id}", type="context", metadata=about)
        for name, text in (("context.md", export(context, "markdown")), ("context.json", export(context, "json"))):
            with artifact.new_file(name, mode="w", encoding="utf-8") as file:
                file.write(text)
        self._wandb.log_artifact(artifact, aliases=[label, f"version-{context.version}"])

    def close(self, state: State, why: str) -> None:
        self._wandb.summary.update({"state": state, **({"stopped": why} if why else {})})
        self._wandb.finish(exit_code=1 if state == "failed" else 0)
