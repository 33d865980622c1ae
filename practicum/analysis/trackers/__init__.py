"""Trackers: watches that send a run to Weights & Biases, to MLflow, or to any OpenTelemetry backend.

    await practicum.learn(tasks, watch=practicum.trackers.Wandb(project="routing"))

Each needs a package of its own (`pip install 'practicum[wandb]'`), follows one run at a time, and never stops it.
"""

from __future__ import annotations

from practicum.analysis.trackers.mlflow import Mlflow
from practicum.analysis.trackers.otel import Otel
from practicum.analysis.trackers.wandb import Wandb

TRACKERS: dict[str, type[Wandb | Mlflow | Otel]] = {"wandb": Wandb, "mlflow": Mlflow, "otel": Otel}
"""Trackers by the name that `--log` takes."""


__all__ = ["TRACKERS", "Mlflow", "Otel", "Wandb"]
