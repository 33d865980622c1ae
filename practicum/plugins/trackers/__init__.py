"""Trackers: watches that send a run to Weights & Biases, to MLflow, or to any OpenTelemetry backend.

    await practicum.learn(tasks, watch=practicum.trackers.Wandb(project="routing"))

Each needs a package of its own (`pip install 'practicum[wandb]'`), follows one run at a time, and never stops it.
"""

from __future__ import annotations

from practicum.plugins.trackers.mlflow import Mlflow
from practicum.plugins.trackers.otel import Otel
from practicum.plugins.trackers.wandb import Wandb

__all__ = ["Mlflow", "Otel", "Wandb"]
