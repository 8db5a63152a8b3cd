"""A device that a ResourceClaim was given (dynamic resource allocation, KEP-4381)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """``device`` of ``pool``, which ``driver`` published, given to the ``request`` of the claim of this name.

    ``numa_node`` is None where the driver does not say.
    """

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    numa_node: int | None = None
