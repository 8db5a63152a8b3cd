"""On which nodes the volume of a PersistentVolumeClaim is: the claim and its volume, each by name.

Owns the two requests. Leaves how they are made, and what follows where they fail, to its caller.
"""

from collections.abc import Callable

from topomend.kube.resources import CLAIMS, VOLUMES, Resource
from topomend.model.pods.scheduling import NodeSelectorTerm
from topomend.wire.volume import is_bound, is_ephemeral, is_of_claim, read_volume_name, read_volume_terms

Terms = tuple[NodeSelectorTerm, ...]

Get = Callable[[Resource, str, str], object]
"""Gets an object of this name in this namespace. Raises APIError."""


class NoVolume(Exception):
    """The claim has no volume yet: the scheduler chooses one, or the node on which one is made."""


class NotItsVolume(Exception):
    """The volume is another claim's, or nobody's yet, or the claim is not bound to it yet."""


def read_terms_of(get: Get, namespace: str, claim: str, *, replaced: str = "", bound: bool = False) -> Terms | None:
    """The terms of the volume's node affinity, of which a node must match one; None where every node has it.

    ``replaced`` is the uid of a pod that is about to be replaced: a claim that ends with it holds its next pod nowhere.
    ``bound`` is that a claim is to be bound, as kube-scheduler wants it, and not only to name its volume.
    Raises NoVolume, NotItsVolume, MalformedObject and APIError.
    """
    content = get(CLAIMS, claim, namespace)
    if replaced and is_ephemeral(content, replaced):
        return None
    name = read_volume_name(content)
    if not name:
        raise NoVolume(claim)
    if bound and not is_bound(content):
        raise NotItsVolume(claim)
    volume = get(VOLUMES, name, "")
    if not is_of_claim(volume, namespace, claim):
        raise NotItsVolume(claim)
    return read_volume_terms(volume)
