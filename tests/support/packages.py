"""Fake installed packages, which register objects under an entry point group."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, source: str, group: str, **registered: str) -> None:
    """Write a package with one module and its entry points into a folder, which has to be on sys.path."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{key} = {value}" for key, value in registered.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
