"""No file of the package imports itself by way of others. import-linter does not see circles through a package's
`__init__`."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest


def test_no_file_imports_itself_by_way_of_others() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("practicum", cache_dir=None)
    # Raises CycleError, which names the files.
    TopologicalSorter({file: graph.find_modules_directly_imported_by(file) for file in graph.modules}).prepare()
