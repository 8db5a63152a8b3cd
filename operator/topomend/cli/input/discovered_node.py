"""What a NodeTopology of ``topomend discover`` lacks, which no agent wrote: the kubelet's settings, or its pods."""

from collections.abc import Mapping
from typing import Any

from topomend.wire.published.node_topology import HEARTBEAT, read_conditions

SETTINGS_UNKNOWN, PODS_UNKNOWN = "NotGiven", "PodResourcesNotGiven"
"""The reasons of its conditions."""


def lacks(content: Mapping[str, Any]) -> frozenset[str]:
    """SETTINGS_UNKNOWN and PODS_UNKNOWN, as far as they are why the object is not Ready.

    None of them where an agent wrote it, or where there is another reason. Raises MalformedObject.
    """
    missing = frozenset(each.reason for each in read_conditions(content) if each.status != "True")
    is_discovered = content["status"].get(HEARTBEAT) is None and missing <= {SETTINGS_UNKNOWN, PODS_UNKNOWN}
    return missing if is_discovered else frozenset()
