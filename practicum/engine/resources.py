"""Resources that an attempt takes on a machine of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

LOCAL = "local"
"""Name of the engine that uses no cluster and makes attempts in this process."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", re.IGNORECASE)


class Resources(BaseModel):
    """Resources that one attempt takes: processors, accelerators, memory (bytes), the container image that the attempt
    runs in, and resources with names that the cluster defines. Attempts that take less than one processor share a
    process, so that a node can make many such attempts concurrently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu: float = Field(default=1.0, gt=0)
    gpu: float = Field(default=0.0, ge=0)
    memory: int = Field(default=0, ge=0)
    image: str = ""
    other: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """Parse a text such as "cpu=2,gpu=0.5,memory=4gb", or accept a mapping with the same names."""
        if isinstance(value, str):
            pairs = [part.partition("=") for part in value.split(",") if part.strip()]
            if bad := [name for name, equals, text in pairs if not (name.strip() and equals and text.strip())]:
                raise ValueError(
                    f"{bad[0]!r} has no value: write NAME=VALUE, as in cpu=2,gpu=0.5,memory=4gb,image=NAME"
                )
            value = {name.strip(): text.strip() for name, _, text in pairs}
        if not isinstance(value, Mapping):
            return value
        read = dict(value)
        if isinstance(size := read.get("memory"), str):
            if (size_parts := _SIZE.fullmatch(size.strip())) is None:
                raise ValueError(f"memory={size} is not a size: write a number and a unit, as in memory=4gb")
            read["memory"] = int(float(size_parts[1]) * _UNITS[size_parts[2].lower()])
        own = {name: read.pop(name) for name in [*read] if name not in cls.model_fields}
        return {**read, "other": {**read.get("other", {}), **own}} if own else read

    @property
    def at_once(self) -> int:
        """Number of attempts that share a process."""
        return max(1, int(1 / self.cpu + 1e-9))

    @property
    def demand(self) -> dict[str, float]:
        """Ray's name of a resource → amount that one process takes. A process makes `at_once` attempts concurrently."""
        share = self.at_once
        own = {"CPU": self.cpu, "GPU": self.gpu, "memory": float(self.memory), **self.other}
        return {name: amount * share for name, amount in own.items() if amount}

    def __str__(self) -> str:
        return shown(self.demand)


def shown(amounts: Mapping[str, float]) -> str:
    """Format resources: `2 CPU, 4.0 GB memory`."""
    texts = [
        f"{amount / 1e9:.1f} GB {name}" if name in ("memory", "object_store_memory") else f"{amount:g} {name}"
        for name, amount in amounts.items()
    ]
    return ", ".join(texts) or "nothing"
