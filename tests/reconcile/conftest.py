"""The cluster tests of this room run on the cluster, and with the operator, of ``tests/controller``."""

from tests.controller.conftest import agents, brake, fragmented, start_operator, two_nodes

__all__ = ["agents", "brake", "fragmented", "start_operator", "two_nodes"]
