"""The cluster of all tests: one node of four NUMA nodes, of which the third one has the GPU."""

from topomend_sandbox import NodeSpec
from topomend_sandbox.fixtures import sandbox_fixture

cluster = sandbox_fixture(
    NodeSpec.of_shape(
        "worker",
        "numa:4 cores:4 memory:4Gi device:vendor.com/gpu@2=1",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
    )
)
