"""Tracker for Weights & Biases: https://docs.wandb.ai."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.playbook import export
from practicum.plugins.trackers.tracker import PATIENCE, State, Tracker, log, parameters, require
from practicum.session.result import RunInfo

OFFLINE = ("offline", "dryrun", "disabled")
"""Modes of wandb that do not need a login."""


class Wandb(Tracker):
    """Tracker that sends a run to Weights & Biases, configured by `wandb login` and the environment variables WANDB_*.

    `project` defaults to WANDB_PROJECT, or to "practicum". If the service cannot be reached, the run is recorded in
    ./wandb; send the record later with `wandb sync`. Raises UsageError if wandb is not installed or has no login.
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
                "wandb has no login: run `wandb login`, or set WANDB_MODE=offline to record without a login",
            )

    def open(self, run: RunInfo, id: str | None) -> str:
        import wandb

        settings = wandb.Settings(
            console="off", silent=True, init_timeout=PATIENCE * 0.6, finish_timeout=PATIENCE,
            # The command line, and the diff and the code of the repository, may contain texts of tasks.
            disable_git=True, disable_code=True, save_code=False, x_disable_meta=True,
        )  # fmt: skip
        # wandb starts Weave if Weave is installed, and Weave would send prompts.
        os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")
        id = id or uuid4().hex[:8]
        options: dict[str, Any] = {
            "project": self.project, "id": id, "name": self.name or run.folder.name, "group": self.group,
            "config": parameters(run), "resume": "allow", "reinit": "create_new", "settings": settings,
        }  # fmt: skip
        try:
            self._wandb = wandb.init(**options)
        except wandb.errors.CommError as error:
            # wandb does not accept the id of the failed call again in this process.
            id = options["id"] = uuid4().hex[:8]
            self._wandb = wandb.init(mode="offline", **options)
            reason = str(error).partition("\n")[0]
            log.warning(
                "wandb: %s; the run is recorded offline: send the record later with wandb sync %s", reason, self.folder
            )
        self._wandb.define_metric("*", step_metric="step")
        log.info("wandb: %s", self.folder if self._wandb.offline else self._wandb.url)
        return id

    @property
    def folder(self) -> str:
        """Local folder in which wandb records the run."""
        return str(self._wandb.settings.sync_dir)

    def send(self, values: Mapping[str, float], step: int) -> None:
        self._wandb.log({**values, "step": step})

    def save(self, context: Context, step: int, label: str) -> None:
        import wandb

        metadata = {"version": context.version, "entries": len(context), "step": step}
        artifact = wandb.Artifact(f"context-{self._wandb.id}", type="context", metadata=metadata)
        for name, text in (("context.md", export(context, "markdown")), ("context.json", export(context, "json"))):
            with artifact.new_file(name, mode="w", encoding="utf-8") as file:
                file.write(text)
        self._wandb.log_artifact(artifact, aliases=[label, f"version-{context.version}"])

    def close(self, state: State, reason: str) -> None:
        self._wandb.summary.update({"state": state, **({"stopped": reason} if reason else {})})
        self._wandb.finish(exit_code=1 if state == "failed" else 0)
