"""Which of the nodes that admit a pod have free devices of its claims where its CPUs would be.

No more than a preference follows from that: the scheduler alone allocates devices, and what is known of them may be
seconds old. Leaves each node's answer to ``device_claims``, and which nodes are asked about to whoever reads devices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from topomend.cache.snapshot import Snapshot
from topomend.decide.claims.device_claims import ClaimAnswer, Sharing, claims_on
from topomend.model.devices.device_supply import DeviceSupply, Part, PodClaims
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit
from topomend.replay.effort import UNLIMITED, Effort

PartsByNode = Mapping[str, tuple[Part, ...]]
"""By node, devices that a pod's own claims may get there beside its CPUs."""

PREFERRED = (Sharing.TOGETHER, Sharing.POSSIBLE)
"""The answers for which a node is preferred, best first; only nodes of the best one that there is are."""


MOST_NAMED = 3
"""How many preferred nodes a sentence names."""


@dataclass(frozen=True)
class KnownDevices:
    """The devices of these ``nodes`` and those of every node, and the ``claims`` of pods by uid, as far as known."""

    supply: DeviceSupply
    nodes: frozenset[str]
    claims: Mapping[str, PodClaims]

    def without(self, parts: Iterable[Part]) -> "KnownDevices":
        """What is left once another pod has these."""
        return replace(self, supply=self.supply.without(parts))


def beside_devices(
    snapshot: Snapshot, pod: Pod, names: Iterable[str], known: KnownDevices, effort: Effort = UNLIMITED
) -> PartsByNode:
    """Those of the nodes that are best for the pod's claims; none where that is not known of any. Raises Overspent."""
    claims = known.claims.get(pod.uid)
    if claims is None:
        return {}
    answers = dict[str, ClaimAnswer]()
    for name in names:
        publication = snapshot.publications.get(name)
        if name not in known.nodes or publication is None:
            continue
        verdict, after = admit(publication.state_with_assumed(effort), pod, effort)
        answer = claims_on(known.supply, snapshot.nodes[name], after, pod, claims) if verdict.admitted else None
        if answer:
            answers[name] = answer
    return {name: answers[name].parts for name in preferred(answers)}


def preferred(answers: Mapping[str, ClaimAnswer]) -> tuple[str, ...]:
    """The nodes that are best for the claims of a pod that all of them admit; none where that is not known of any."""
    for sharing in PREFERRED:
        if best := tuple(name for name, answer in answers.items() if answer.sharing is sharing):
            return best
    return ()


def preference_words(answers: Mapping[str, ClaimAnswer], admitting: int) -> str:
    """What the component ``claims`` makes of the answers of so many ``admitting`` nodes.

    Empty without an answer, and where every kubelet pins none of the containers: the answers say that themselves.
    """
    if all(answer.sharing is Sharing.NOT_PINNED for answer in answers.values()):
        return ""
    best = preferred(answers)
    begin = "with the component claims, a preferred node affinity names"
    if best and len(best) < admitting:
        named = ", ".join(best[:MOST_NAMED]) + (f" and {len(best) - MOST_NAMED} more" if len(best) > MOST_NAMED else "")
        return f"{begin} {named}: free devices of its claims are beside its CPUs there"
    if best:
        return f"{begin} no node: free devices of its claims are beside its CPUs on all of them"
    if any(answer.sharing is Sharing.UNKNOWN for answer in answers.values()):
        return f"{begin} no node: where the devices of its claims would be is unknown"
    return f"{begin} no node: on none are enough free devices of its claims beside its CPUs"
