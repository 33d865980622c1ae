"""Undirected and directed graphs, as mappings from each node to its neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

N = TypeVar("N")


def distances(start: N, neighbours: Mapping[N, Iterable[N]]) -> dict[N, int]:
    """Return the nodes that can be reached from `start`, including `start`, each with the number of links on the
    shortest path from `start`."""
    links, waiting = {start: 0}, deque([start])
    while waiting:
        node = waiting.popleft()
        for other in neighbours[node]:
            if other not in links:
                links[other] = links[node] + 1
                waiting.append(other)
    return links


def components(neighbours: Mapping[N, Iterable[N]]) -> list[set[N]]:
    """Return the connected components of an undirected graph, in the order of their first nodes."""
    parts: list[set[N]] = []
    seen: set[N] = set()
    for node in neighbours:
        if node not in seen:
            parts.append({*distances(node, neighbours)})
            seen |= parts[-1]
    return parts
