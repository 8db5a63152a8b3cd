"""Whether a node admits all pods assumed there, in any order of arrival.

The operator ungates pods one after another, but the scheduler binds them concurrently: the kubelet may see the later
one first and give it the CPUs meant for the other. And where a pod of the node has ended, an assumed pod may have been
admitted before or after that end, and so for each of several that ended.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import factorial, prod

from topomend.alignment.requested import is_aligned
from topomend.cache.snapshot import PodKey, Publication
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, container_requests, requests_of
from topomend.replay.admission import admit, may_allocate, release
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import FastAdmission, FastPlacement

MAX_ORDERS = 30
"""Up to so many orders of different pods all are tried, such as those of any four pods, or of five of which two and two
are alike; of more only the worst ones: the largest last, the newest first."""

MAX_INTERLEAVED = 6
"""Up to so many pods and ends every interleaving is tried; of more none: the agent publishes within a second."""


def admitted_in_any_order(publication: Publication, pod: Pod, effort: Effort = UNLIMITED) -> bool:
    """Whether the node admits ``pod`` and all pods assumed there, in every order.

    True at once where one NUMA node has room for all of them together: that always remains possible. Pods that hold
    nothing exclusively take nothing from any other, whenever they come. Raises Overspent.
    """
    assumed = [other for other in publication.assumed_pods if _counts(publication.state, other)]
    if not assumed:
        return True
    pods, ended = (*assumed, pod), tuple(publication.ended)
    # Case: one NUMA node has room for all of them together, whatever the order.
    if _fit_one_numa_node(publication.remaining, pods):
        return True
    # Case: too many orders to try. An agent publishes within a second, and then there are fewer.
    if ended and len(pods) + len(ended) > MAX_INTERLEAVED:
        return False
    aligned = _aligned_in_turn(publication.remaining, pods, effort)
    orders = _orders(pods, aligned, pod if ended else None)
    return all(_admitted(publication.state, ended, order, aligned, effort, last=pod) for order in orders)


def _counts(state: NodeState, pod: Pod) -> bool:
    return pod.single_numa_node or may_allocate(state, pod)


def _aligned_in_turn(state: NodeState, pods: Sequence[Pod], effort: Effort) -> Sequence[Pod]:
    """The pods that ask for alignment and get it if they arrive in this order, in which they were ungated; the last.

    One that somebody else sent here gets none perhaps, and keeps no other from the node.
    """
    aligned = list[Pod]()
    if not any(pod.single_numa_node for pod in pods):
        return aligned
    for other in pods[:-1]:
        state = admit(state, other, effort)[1]
        if other.single_numa_node and is_aligned(state, other):
            aligned.append(other)
    return [*aligned, pods[-1]]


def _admitted(  # noqa: PLR0913  what an order depends on
    state: NodeState,
    ended: Sequence[PodKey],
    pods: Sequence[Pod],
    aligned: Sequence[Pod],
    effort: Effort,
    *,
    last: Pod,
) -> bool:
    """Whether all are admitted in this order, with any ends of other pods between them, and these ``aligned``.

    ``last`` comes after every end, for it is ungated after them. A pod that is not admitted before an end must have
    come after it.
    """
    if not pods:
        return True
    # Case: the next event is an end. The pods that are left have to be admitted after it as well.
    if ended and not _admitted(release(state, *ended[0]), ended[1:], pods, aligned, effort, last=last):
        return False
    # Case: the next event is an arrival. The last pod arrives after all ends, so that branch has just been tried.
    if ended and pods[0] is last:
        return True
    verdict, after = admit(state, pods[0], effort)
    # A pod that was refused before an end cannot have come then: it was ungated for the room that the end made.
    if not verdict.admitted:
        return bool(ended)
    if pods[0] in aligned and not is_aligned(after, pods[0]):
        return False
    return _admitted(after, ended, pods[1:], aligned, effort, last=last)


def _fit_one_numa_node(state: NodeState, pods: Iterable[Pod]) -> bool:
    total = _summed(pods)
    if total is None:
        return False
    outcome = FastAdmission(total).outcome(state)
    return isinstance(outcome, FastPlacement) and outcome.numa_nodes.bit_count() == 1


def _summed(pods: Iterable[Pod]) -> Pod | None:
    """One container that requests the sum of the pods' requests; None where they have more than requests."""
    asked: dict[str, int] = {}
    for pod in pods:
        if pod.resources is not None or any(container.kind is not ContainerKind.APP for container in pod.containers):
            return None
        if any(container.resources.requests != container.resources.limits for container in pod.containers):
            return None
        for resource, amount in container_requests(pod).items():
            asked[resource] = asked.get(resource, 0) + amount
    return Pod("", "sum", "", (Container("all", ContainerKind.APP, Resources(asked, asked)),))


def _orders(pods: Sequence[Pod], aligned: Sequence[Pod], last: Pod | None) -> Iterator[Sequence[Pod]]:
    """The orders to try. Pods of one kind are the same to a kubelet, but for ``last``, which comes after all ends."""
    kinds = [(FastAdmission(pod).shape, pod in aligned, pod is last) for pod in pods]
    if factorial(len(pods)) // prod(map(factorial, Counter(kinds).values())) <= MAX_ORDERS:
        yield from _distinct_orders(list(zip(kinds, pods, strict=True)))
        return
    smallest_first = sorted(pods, key=lambda pod: requests_of(pod).get("cpu", 0))
    yield pods
    yield pods[::-1]
    yield smallest_first
    yield smallest_first[::-1]


def _distinct_orders(pods: Sequence[tuple[Hashable, Pod]]) -> Iterator[tuple[Pod, ...]]:
    """The orders of ``pods``, each beside its kind, that differ by more than which of a kind comes first."""
    if not pods:
        yield ()
    for position, (kind, pod) in enumerate(pods):
        if all(kind != earlier for earlier, _ in pods[:position]):
            for order in _distinct_orders([*pods[:position], *pods[position + 1 :]]):
                yield (pod, *order)
