"""The devices that containers have by resource claims, in the kubelet's answer (``dynamic_resources``, KEP-3695).

Their names are those that a DRA driver answered when it prepared the claim; the kubelet checks nothing of them
(cm/dra/manager.go:prepareResources). Replay does not need them. Therefore this module escapes and cuts what no driver
should answer, and says so in a remark, where any other impossible answer makes the node's allocations unknown.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from topomend.base.natural_order import natural_key
from topomend.base.plain_text import plain
from topomend.discover import podresources_pb2 as messages
from topomend.discover.bounds import MAX_NAME, MAX_NAMESPACE
from topomend.model.devices.claimed_device import ContainerClaim

MAX_CONTAINER_CLAIMS, MAX_CLAIM_DEVICES = 64, 64
"""The most that is read of one container and of one claim. A claim has at most 32 devices
(api/resource/v1:AllocationResultsMaxSize)."""

MAX_NODE_CLAIMS = 1024
"""The most entries of a node; the kind's schema allows no more."""

MAX_CLAIM, MAX_DRIVER, MAX_POOL, MAX_DEVICE = MAX_NAME, 63, 253, 63
"""Letters: the API's limits for these names."""


@dataclass(frozen=True)
class ListedClaims:
    """What is shown, and the number of claims and devices that are left out."""

    claims: tuple[ContainerClaim, ...] = ()
    omitted: int = 0

    @property
    def remark(self) -> str:
        """What is left out, in words; empty if nothing is."""
        what = "claim or device of a claim is" if self.omitted == 1 else "claims and devices of claims are"
        return f"{self.omitted} {what} left out: a DRA driver names more than any claim has" if self.omitted else ""


def read_claims(pod: messages.PodResources) -> ListedClaims:
    """The devices by claims of one pod's containers. Raises DecodeError."""
    listed = [_of_container(pod, container) for container in pod.containers if container.dynamic_resources]
    return _together(listed)


def joined_claims(pods: Iterable[ListedClaims]) -> ListedClaims:
    """Those of all pods in an order that does not change, as many as a NodeTopology may have."""
    together = _together(pods)
    claims = sorted(together.claims, key=_order)
    return ListedClaims(tuple(claims[:MAX_NODE_CLAIMS]), together.omitted + len(claims[MAX_NODE_CLAIMS:]))


def _of_container(pod: messages.PodResources, container: messages.ContainerResources) -> ListedClaims:
    omitted = max(0, len(container.dynamic_resources) - MAX_CONTAINER_CLAIMS)
    devices: dict[tuple[str, str, str], dict[str, None]] = {}
    for content in container.dynamic_resources[:MAX_CONTAINER_CLAIMS]:
        claim = messages.DynamicResource.FromString(content)
        omitted += max(0, len(claim.claim_resources) - MAX_CLAIM_DEVICES)
        for driver, pool, device in _devices(claim):
            devices.setdefault((plain(claim.claim_name, MAX_CLAIM), driver, pool), {})[device] = None
    names = plain(pod.namespace, MAX_NAMESPACE), plain(pod.name, MAX_NAME), plain(container.name, MAX_NAME)
    claims = tuple(ContainerClaim(*names, *key, tuple(sorted(ids, key=natural_key))) for key, ids in devices.items())
    return ListedClaims(claims, omitted)


def _devices(claim: messages.DynamicResource) -> Iterator[tuple[str, str, str]]:
    """Driver, pool and name of each device. Another kind of resource would have no device name."""
    for content in claim.claim_resources[:MAX_CLAIM_DEVICES]:
        resource = messages.ClaimResource.FromString(content)
        yield (
            plain(resource.driver_name, MAX_DRIVER),
            plain(resource.pool_name, MAX_POOL),
            plain(resource.device_name, MAX_DEVICE),
        )


def _together(listed: Iterable[ListedClaims]) -> ListedClaims:
    every = list(listed)
    return ListedClaims(tuple(claim for one in every for claim in one.claims), sum(one.omitted for one in every))


def _order(claim: ContainerClaim) -> tuple[str, ...]:
    return (claim.namespace, claim.pod, claim.container, claim.claim, claim.driver, claim.pool)
