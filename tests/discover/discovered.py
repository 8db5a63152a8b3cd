"""A discovery as the API object that ``topomend discover`` prints."""

from typing import Any

from topomend.discover.assemble import Discovery
from topomend.wire.published.node_topology import node_topology, status_of


def object_of(discovery: Discovery) -> dict[str, Any]:
    """The NodeTopology of a discovery, not cut to any size."""
    return node_topology(discovery.state.name, status_of(discovery.state, discovery.summary, discovery.conditions))
