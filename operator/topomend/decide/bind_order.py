"""Whether pods that are on their way to a node are all admitted, whichever of them comes first.

The operator lets pods go one after another; a scheduler binds them side by side, so that the kubelet may see the later
one first, and place it where the other one was to go. And where a pod has ended, those that were on their way by then
may have been placed before its end, beside it, or after it, in its place; and so for each of several that have ended.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from topomend.cache.snapshot import PodKey, Publication
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.replay.admission import admit, release
from topomend.replay.fast_path.admission import FastAdmission, FastPlacement

MAX_PERMUTED = 4
"""Of more pods not every order is tried, but those that are known to be bad: the largest last, the newest first."""

MAX_INTERLEAVED = 6
"""Of more pods and ends it is not worked out which may have come before which: within a second the agent tells."""


def admitted_in_any_order(publication: Publication, pod: Pod) -> bool:
    """Whether ``pod`` and those that are coming to the node all find their places.

    True at once where one NUMA node has room for all of them together: wherever the others go, each finds room there.
    """
    if not publication.assumed_pods:
        return True
    pods, ended = (*publication.assumed_pods, pod), tuple(publication.ended)
    if _fit_one_numa_node(publication.remaining, pods):
        return True
    if ended and len(pods) + len(ended) > MAX_INTERLEAVED:
        return False
    return all(_admitted(publication.state, ended, order, last=pod) for order in _orders(pods))


def _admitted(state: NodeState, ended: Sequence[PodKey], pods: Sequence[Pod], *, last: Pod) -> bool:
    """Whether in this order all find their places, however many of them came before how many of the others ended:
    ``last``, which is let go after that, did not. Who finds none before an end came after it."""
    if not pods:
        return True
    if ended and not _admitted(release(state, *ended[0]), ended[1:], pods, last=last):
        return False
    if ended and pods[0] is last:
        return True
    verdict, after = admit(state, pods[0])
    return _admitted(after, ended, pods[1:], last=last) if verdict.admitted else bool(ended)


def _fit_one_numa_node(state: NodeState, pods: Iterable[Pod]) -> bool:
    together = _together(pods)
    if together is None:
        return False
    outcome = FastAdmission(together).outcome(state)
    return isinstance(outcome, FastPlacement) and outcome.numa_nodes.bit_count() == 1


def _together(pods: Iterable[Pod]) -> Pod | None:
    """One container that asks for all that the pods ask for; None where that is not all there is to them."""
    asked: dict[str, int] = {}
    for pod in pods:
        if pod.resources is not None or any(each.kind is not ContainerKind.APP for each in pod.containers):
            return None
        if any(each.resources.requests != each.resources.limits for each in pod.containers):
            return None
        for resource, amount in requests_of(pod).items():
            asked[resource] = asked.get(resource, 0) + amount
    return Pod("", "together", "", (Container("all", ContainerKind.APP, Resources(asked, asked)),))


def _orders(pods: tuple[Pod, ...]) -> Iterator[Sequence[Pod]]:
    if len(pods) <= MAX_PERMUTED:
        yield from permutations(pods)
        return
    smallest_first = sorted(pods, key=lambda each: requests_of(each).get("cpu", 0))
    yield pods
    yield pods[::-1]
    yield smallest_first
    yield smallest_first[::-1]
