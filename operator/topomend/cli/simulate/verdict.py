"""Convert a verdict to the record that ``topomend simulate -o json`` prints, one a pod.

Owns the record's layout. Leaves printing to ``simulate``.
"""

from typing import Any

from topomend.model.bitmask import format_id_list, members
from topomend.model.verdict import ContainerPlacement, Verdict


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """The record of one pod, as JSON values. Sizes are bytes.

    ``affinity`` null means no affinity, and ``cpus`` "" the shared pool. ``unmodelled`` is there only where replay does
    not know everything about the node.
    """
    record: dict[str, Any] = {
        "namespace": verdict.namespace,
        "name": verdict.name,
        "admitted": verdict.admitted,
        "reason": verdict.reason,
        "message": verdict.message,
        "containers": [_container_record(container) for container in verdict.containers],
    }
    if verdict.unmodelled:
        record["unmodelled"] = list(verdict.unmodelled)
    return record


def _container_record(container: ContainerPlacement) -> dict[str, Any]:
    return {
        "name": container.name,
        "init": container.init,
        "affinity": None if container.affinity is None else list(members(container.affinity)),
        "preferred": container.preferred,
        "cpus": format_id_list(container.cpus),
        "memory": [
            {"type": block.resource, "numaNodes": list(members(block.numa_nodes)), "bytes": block.size}
            for block in container.memory
        ],
        "devices": {
            device.resource: {"count": device.count, "numaNodes": list(members(device.numa_nodes))}
            for device in container.devices
        },
    }
