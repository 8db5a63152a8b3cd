"""Convert the devices that containers have by claims to and from ``status.claims`` of a NodeTopology.

Owns the layout of this list. Leaves the rest of the object to ``node_topology``, and ResourceClaims themselves to
``resource_claim``.
"""

from typing import Any

from topomend.model.devices.claimed_device import ContainerClaim
from topomend.wire.document import Document, without_empty


def claim_fields(claim: ContainerClaim) -> dict[str, Any]:
    """One entry of ``status.claims``."""
    return without_empty(
        {
            "namespace": claim.namespace,
            "pod": claim.pod,
            "container": claim.container,
            "claim": claim.claim,
            "driver": claim.driver,
            "pool": claim.pool,
            "devices": list(claim.devices),
        }
    )


def read_container_claims(content: Any) -> tuple[ContainerClaim, ...]:
    """The devices by claims of a NodeTopology object; none of an agent that does not know them.

    Raises MalformedObject.
    """
    return tuple(
        ContainerClaim(
            namespace=entry["namespace"].text("default"),
            pod=entry["pod"].text(),
            container=entry["container"].text(),
            claim=entry["claim"].text(""),
            driver=entry["driver"].text(""),
            pool=entry["pool"].text(""),
            devices=tuple(device.text() for device in entry["devices"]),
        )
        for entry in Document(content)["status"]["claims"]
    )
