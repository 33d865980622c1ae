"""Experiment trackers: watches that send a run to Weights & Biases, MLflow, or any OpenTelemetry backend.

    await practicum.learn(tasks, watch=practicum.trackers.Wandb(project="routing"))

Each tracker needs an extra of the package (such as `pip install 'practicum[wandb]'`) and follows one run at a time. An
error of a tracker never stops the run.
"""

from __future__ import annotations

from practicum.plugins.trackers.mlflow import Mlflow
from practicum.plugins.trackers.otel import Otel
from practicum.plugins.trackers.wandb import Wandb

__all__ = ["Mlflow", "Otel", "Wandb"]
