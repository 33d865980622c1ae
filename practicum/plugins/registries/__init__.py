"""Prompt registries: MLflow and Langfuse."""
