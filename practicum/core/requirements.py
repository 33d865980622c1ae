"""Requirements of practicum, read from its installed metadata. Install commands in messages name these required
packages, so the commands also work if practicum is not on a package index."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from typing import TYPE_CHECKING

from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def pip_install(extra: str) -> str:
    """Return the command that installs the requirements of an extra of practicum."""
    needed = [str(r).partition(";")[0].strip() for r in _requirements("practicum", extra) if r.marker is not None]
    return shlex.join(["pip", "install", *(needed or [f"practicum[{extra}]"])])


_SUITABLE: set[str] = set()
"""Packages whose check succeeded in this process. They are not checked again, because a check takes about 10 ms."""


def require(package: str, feature: str) -> None:
    """Raise UsageError, which says that `feature` cannot be used, if a package is missing or of an unsuitable version.
    Without this check, an unsuitable version would fail with an unclear error."""
    if package in _SUITABLE:
        return
    if unmet := unmet_requirements(package):
        raise UsageError("package.unsuitable", f"{feature} cannot be used: {unmet[0]}{_held_back(package)}")
    _SUITABLE.add(package)


def _held_back(package: str) -> str:
    """Return the end of a message: the names of the installed packages that need an older version of `package` than
    practicum needs. Return an empty text if no installed package does."""
    from packaging.requirements import Requirement

    bounds = (bound for part in _requirements("practicum") if part.name == package for bound in part.specifier)
    least = next((bound.version for bound in bounds if bound.operator == ">="), "0")
    texts = ((other.name, text) for other in distributions() for text in other.requires or ())
    requirements = [(name, Requirement(text)) for name, text in texts if text.startswith(package) and ";" not in text]
    others = [f"{name} needs {r}" for name, r in requirements if r.name == package and least not in r.specifier]
    return f"; {', '.join(others)}: install them and practicum in separate environments" if others else ""


def unmet_requirements(package: str | None = None) -> list[str]:
    """Return the packages that practicum needs and that are missing or of an unsuitable version, each with the command
    that installs it.

    With `package`, only this package and the requirements of its extras are checked, which is fast. The other
    requirements of the package are not checked, because they were installed with the package.
    """
    direct = [
        requirement
        for requirement in _requirements("practicum", prefix=package or "")
        if package in (None, requirement.name)
    ]
    nested = [
        (part, requirement)
        for requirement in direct
        for extra in requirement.extras
        for part in _requirements(requirement.name, extra)
        if package is None or part.marker is not None
    ]
    problems: dict[str, str] = {}
    for part, requirement in [*((requirement, requirement) for requirement in direct), *nested]:
        try:
            installed = version(part.name)
        except PackageNotFoundError:
            problem = f"{part.name} is not installed"
        else:
            if part.specifier.contains(installed, prereleases=True):
                continue
            problem = f"{part.name} {installed} is installed, but practicum needs {part.specifier}"
        problems.setdefault(part.name, f"{problem}: {shlex.join(['pip', 'install', '-U', str(requirement)])}")
    return list(problems.values())


def _requirements(package: str, extra: str = "", prefix: str = "") -> Iterator[Requirement]:
    """Yield the requirements of a package with this extra, limited to requirements whose names begin with `prefix`.
    Yield nothing if the package is not installed."""
    from packaging.requirements import Requirement

    try:
        texts = requires(package) or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, (text for text in texts if text.startswith(prefix))):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
