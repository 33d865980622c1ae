"""A Ray of two nodes for all tests here. This process is the driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from needs import needs

SMALL = {"num_cpus": 2, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    needs("ray")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    logging.getLogger("ray").setLevel(logging.ERROR)
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    nodes.add_node(**SMALL)
    ray.init(address=nodes.address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
    yield nodes
    ray.shutdown()
    nodes.shutdown()
