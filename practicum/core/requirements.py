"""What practicum requires, as its installed metadata says, so that every hint to install something works, whether
practicum itself is on a package index or not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from typing import TYPE_CHECKING

from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement


def pip_install(extra: str) -> str:
    """The command that installs what an extra of practicum requires."""
    needed = [str(r).partition(";")[0].strip() for r in _requirements("practicum", extra) if r.marker is not None]
    return shlex.join(["pip", "install", *(needed or [f"practicum[{extra}]"])])


def require(package: str, what: str) -> None:
    """Raise UsageError, which says that `what` cannot be used, if a package is missing or of another version than
    practicum needs: what is called of it would fail with an error that does not say so."""
    if unmet := unmet_requirements(package):
        raise UsageError("package.unsuitable", f"{what} cannot be used: {unmet[0]}{_held_back(package)}")


def _held_back(package: str) -> str:
    """The installed packages that want an older version of one than practicum needs; empty if none does."""
    from packaging.requirements import Requirement

    bounds = (bound for own in _requirements("practicum") if own.name == package for bound in own.specifier)
    least = next((bound.version for bound in bounds if bound.operator == ">="), "0")
    texts = ((of.name, text) for of in distributions() for text in of.requires or () if text.startswith(package))
    wanted = [(of, Requirement(text)) for of, text in texts if ";" not in text]
    others = [f"{of} wants {r}" for of, r in wanted if r.name == package and least not in r.specifier]
    return f"; {', '.join(others)}: keep the two in separate environments" if others else ""


def unmet_requirements(package: str | None = None) -> list[str]:
    """Packages that practicum needs and that are missing or of another version, each with the command that helps.

    If the name of a `package` is given, it alone is looked at, with what its extras bring: that is fast, and what it
    needs in any case came with it.
    """
    direct = [own for own in _requirements("practicum", of=package or "") if package in (None, own.name)]
    nested = [
        (part, own)
        for own in direct
        for extra in own.extras
        for part in _requirements(own.name, extra)
        if package is None or part.marker is not None
    ]
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


def _requirements(package: str, extra: str = "", of: str = "") -> Iterator[Requirement]:
    """What an installed package requires, with this extra; nothing of a package that is not installed. `of` begins the
    names of what is asked for."""
    from packaging.requirements import Requirement

    try:
        texts = requires(package) or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, (text for text in texts if text.startswith(of))):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement
