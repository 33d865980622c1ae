"""Tracker for MLflow: https://mlflow.org/docs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from practicum.core.context import Context
from practicum.core.playbook import export
from practicum.plugins.trackers.tracker import State, Tracker, log, parameters, require
from practicum.session.result import RunInfo

STATUS: dict[State, str] = {"done": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

LONGEST = 6_000
"""Maximum length (characters) of the value of a parameter in MLflow."""


class Mlflow(Tracker):
    """Tracker that sends a run to the server or database that the environment variable MLFLOW_TRACKING_URI names
    (MLflow's default: ./mlflow.db).

    `experiment` defaults to the environment variable MLFLOW_EXPERIMENT_NAME, or to "practicum". Raises UsageError if
    mlflow is not installed.
    """

    service = "mlflow"

    def __init__(self, experiment: str | None = None, *, name: str | None = None, group: str | None = None) -> None:
        super().__init__(name, group)
        # Either installation suffices: mlflow, or mlflow-skinny with alembic (MLflow needs alembic to open a database).
        require("mlflow", "mlflow", "alembic")
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "practicum"
        self._client: Any = None
        self._run_id = ""

    def open(self, run: RunInfo, id: str | None) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        self._client = MlflowClient()
        if id is not None:
            try:
                self._run_id = id
                self._client.update_run(id, status="RUNNING")
                return id
            except MlflowException as error:
                log.warning("mlflow: cannot continue the run %s, so a new run is started (%s)", id, error)
        existing = self._client.get_experiment_by_name(self.experiment)
        experiment = existing.experiment_id if existing else self._client.create_experiment(self.experiment)
        tags = {"practicum.group": self.group} if self.group else {}
        created = self._client.create_run(experiment, run_name=self.name or run.folder.name, tags=tags)
        self._run_id = str(created.info.run_id)
        values = [Param(name, str(value)[:LONGEST]) for name, value in parameters(run).items()]
        self._client.log_batch(self._run_id, params=values)
        log.info("mlflow: run %s of experiment %s", self._run_id, self.experiment)
        return self._run_id

    def send(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items() if math.isfinite(value)]
        self._client.log_batch(self._run_id, metrics=metrics)

    def save(self, context: Context, step: int, label: str) -> None:
        for name, text in (("context.md", export(context, "markdown")), ("context.json", export(context, "json"))):
            self._client.log_text(self._run_id, text, f"context/{label}/{name}")

    def close(self, state: State, reason: str) -> None:
        if reason:
            self._client.set_tag(self._run_id, "practicum.stopped", reason)
        self._client.set_terminated(self._run_id, STATUS[state])
