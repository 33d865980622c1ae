"""A Ray of two nodes for all tests here, in which this process is the driver."""

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

    made = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    made.add_node(**SMALL)
    ray.init(address=made.address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()
