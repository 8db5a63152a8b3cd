"""Which publications the operator believes, by what their Nodes say and by what their replay costs.

Owns the distrust of a publication. Leaves what a Node refutes to ``contradiction``, and the silence of an agent to
``publications``.
"""

from collections.abc import Iterable
from dataclasses import replace

from topomend.cache.contradiction import contradiction
from topomend.cache.snapshot import Snapshot, including
from topomend.model.nodes.node_state import NodeState

ASIDE = "it is set aside for a while: replay of what its agent publishes takes too long"


def with_distrust(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot in which the publications of the named nodes are believed, or not, by what their Nodes say."""
    publications = snapshot.publications
    for name in names:
        publication = publications.get(name)
        if publication is not None:
            distrust = why_distrusted(snapshot, publication.state)
            if distrust != publication.distrust:
                publications = including(publications, name, replace(publication, distrust=distrust))
    return snapshot if publications is snapshot.publications else replace(snapshot, publications=publications)


def why_distrusted(snapshot: Snapshot, state: NodeState) -> str:
    """Why the operator does not believe the state; empty where it does."""
    node, set_aside = snapshot.nodes.get(state.name), snapshot.set_aside.get(state.name)
    reason = contradiction(node, state) if node else ""
    return reason or (ASIDE if set_aside and set_aside.active else "")
