"""Whether pods that are on their way to a node are all admitted, whichever of them comes first.

The operator lets pods go one after another; a scheduler binds them side by side, so that the kubelet may see the later
one first, and place it where the other one was to go. And where a pod has ended, those that were on their way by then
may have been placed before its end, beside it, or after it, in its place.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.replay.admission import admit, release
from topomend.replay.fit import Fit, Standing
from topomend.watch.view import Publication

MOST_PERMUTED = 4
"""Of more pods not every order is tried, but those that are known to be bad: the largest last, the newest first."""


def admitted_in_any_order(publication: Publication, pod: Pod) -> bool:
    """Whether ``pod`` and those that are coming to the node all find their places.

    True at once where one NUMA node has room for all of them together: wherever the others go, each finds room there.
    """
    if not publication.coming:
        return True
    pods, left = (*publication.coming, pod), publication.left
    if _fit_one_numa_node(left, pods):
        return True
    return all(
        _admitted(left, order) and _admitted_beside_the_ended(publication, pod, order) for order in _orders(pods)
    )


def _admitted_beside_the_ended(publication: Publication, pod: Pod, order: Sequence[Pod]) -> bool:
    """Whether in this order all find their places however many of them came before others had ended: ``pod``, which is
    let go after that, did not."""
    if not publication.ended:
        return True
    return all(_admitted_around(publication, order[:early], order[early:]) for early in range(1, order.index(pod) + 1))


def _admitted_around(publication: Publication, early: Sequence[Pod], late: Sequence[Pod]) -> bool:
    """Whether those that came ``late`` find their places if others came ``early``, before the ends; true where these
    could not have come then."""
    state = publication.state
    for each in early:
        verdict, state = admit(state, each)
        if not verdict.admitted:
            return True
    for namespace, name in publication.ended:
        state = release(state, namespace, name)
    return _admitted(state, late)


def _fit_one_numa_node(state: NodeState, pods: Iterable[Pod]) -> bool:
    together = _together(pods)
    if together is None:
        return False
    outcome = Fit(together).outcome(state)
    return isinstance(outcome, Standing) and outcome.numa_nodes.bit_count() == 1


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
    if len(pods) <= MOST_PERMUTED:
        yield from permutations(pods)
        return
    smallest_first = sorted(pods, key=lambda each: requests_of(each).get("cpu", 0))
    yield pods
    yield pods[::-1]
    yield smallest_first
    yield smallest_first[::-1]


def _admitted(state: NodeState, pods: Iterable[Pod]) -> bool:
    for each in pods:
        verdict, state = admit(state, each)
        if not verdict.admitted:
            return False
    return True
