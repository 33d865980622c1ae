"""What practicum requires, as its installed metadata says, so that every hint to install something works, whether
practicum itself is on a package index or not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def pip_install(extra: str) -> str:
    """The command that installs what an extra of practicum requires."""
    needed = [str(r).partition(";")[0].strip() for r in _requirements("practicum", extra) if r.marker is not None]
    return shlex.join(["pip", "install", *(needed or [f"practicum[{extra}]"])])


def unmet_requirements() -> list[str]:
    """Packages that practicum needs and that are missing or of another version, each with the command that helps."""
    direct = list(_requirements("practicum"))
    nested = [(part, own) for own in direct for extra in own.extras for part in _requirements(own.name, extra)]
    found: dict[str, str] = {}
    for part, own in [*((own, own) for own in direct), *nested]:
        try:
            installed = version(part.name)
        except PackageNotFoundError:
            problem = f"{part.name} is not installed"
        else:
            if part.specifier.contains(installed, prereleases=True):
                continue
            problem = f"{part.name} {installed} is installed, practicum needs {part.specifier}"
        found.setdefault(part.name, f"{problem}: {shlex.join(['pip', 'install', '-U', str(own)])}")
    return list(found.values())


def _requirements(package: str, extra: str = "") -> Iterator[Requirement]:
    """What an installed package requires, with this extra; nothing of a package that is not installed."""
    from packaging.requirements import Requirement

    try:
        texts = requires(package) or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
