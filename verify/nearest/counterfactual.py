"""Random refused pods, and whether the nearest amounts that replay names for them are true.

The check knows nothing of the search: it asks replay about the amounts themselves, one by one. Nodes and pods are those
that the comparison with the kubelet is made with, all policies, scopes and options among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from verify.oracle.cases import node_state
from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.generate import machine_of, random_case

from topomend.explain.nearest.nearest_amounts import NearestAmount
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Container, Pod, Resources
from topomend.model.quantity import value
from topomend.replay import qos
from topomend.replay.admission import admit, allocation_of, is_admitted, release
from topomend.replay.container_manager import start
from topomend.replay.topology.merge import TABLED_NODES
from topomend.replay.topology.walk_time import MAX_PERMUTATIONS
from topomend.wire.pods.pod import read_pod

MIB = 1 << 20


@dataclass(frozen=True)
class RefusedPod:
    """A pod that its node refuses, and how to make it again."""

    seed: int
    state: NodeState
    pod: Pod


def refused_pods(seed: int) -> Iterator[RefusedPod]:
    """The pods that are refused in the random case of ``seed``, up to its first restart of a kubelet."""
    return _refused(random_case(Random(seed)), seed)


def refused_on_many(seed: int) -> Iterator[RefusedPod]:
    """The same on 9 to 16 NUMA nodes, sometimes on 34, where a kubelet still answers within an hour."""
    random = Random(seed)
    count = random.choices((*range(9, 17), 34), (12, 9, 7, 6, 4, 3, 2, 3, 1))[0]
    case = random_case(random, machine_of(random, count), MAX_PERMUTATIONS)
    if count > TABLED_NODES:  # no kubelet lists so many masks; replay answers nevertheless
        case["kubelet"] |= {"topologyManagerPolicy": random.choice(("none", "single-numa-node"))}
    return _refused(case, seed)


def _refused(case: Case, seed: int) -> Iterator[RefusedPod]:
    state = node_state(case)
    for step in case["steps"]:
        if "end" in step:
            state = release(state, step["end"]["namespace"], step["end"]["name"])
        elif "admit" in step:
            pod = read_pod(step["admit"])
            verdict, after = admit(state, pod)
            if not verdict.admitted and allocation_of(state, pod.namespace, pod.name, pod.uid) is None:
                yield RefusedPod(seed, state, pod)
            state = after
        else:
            return


def faults(refused: RefusedPod, amounts: Iterable[NearestAmount], random: Random, samples: int) -> list[str]:
    """What is wrong with ``amounts`` as the nearest ones of the pod; nothing where they are true.

    Of the amounts that must be refused ``samples`` are asked about for each named amount: the one next to it, and
    random others. So are as many of each amount that is not named, anywhere.
    """
    state, pod = refused.state, refused.pod
    named = {(amount.container, amount.resource): amount for amount in amounts}
    wrong: list[str] = []
    for container in pod.containers:
        for resource in _varied(state, pod, container):
            asked = _asked(container, resource)
            amount = named.pop((container.name, resource), None)
            if amount is not None:
                changed = _with_amount(pod, container, resource, amount.admitted)
                wrong += [] if admit(state, changed)[0].admitted else [f"{amount} is refused"]
            between = _must_be_refused(state, resource, asked, amount)
            for other in _sampled(between, random, samples):
                if other != asked and is_admitted(state, _with_amount(pod, container, resource, other)):
                    wrong.append(f"{container.name} {resource}: {other} is admitted, asked {asked}, named {amount}")
    wrong += [f"{amount} is no amount of the pod" for amount in named.values()]
    return wrong


def _varied(state: NodeState, pod: Pod, container: Container) -> list[str]:
    """The resources of a container that managers look at, by name."""
    kubelet = start(state.machine, state.kubelet)
    if isinstance(kubelet, str):
        return []
    guaranteed = qos.is_guaranteed(pod, kubelet.gates)
    requests, limits = container.resources.requests, container.resources.limits
    native = [name for name in requests if "/" not in name and guaranteed and requests[name] % 1000 == 0]
    return sorted([*native, *(name for name in limits if "/" in name)])


def _asked(container: Container, resource: str) -> int:
    amounts = container.resources.limits if "/" in resource else container.resources.requests
    return value(amounts[resource])


def _must_be_refused(state: NodeState, resource: str, asked: int, amount: NearestAmount | None) -> range:
    """All amounts closer to the asked one than the named one, which itself is not among them; else all there are.

    Among them is the asked one. A pod may ask for so much that no list holds them.
    """
    step, most = _step(resource), _most(state, resource)
    least = asked % step or step
    if amount is None:
        return range(least, max(asked, most) + step, step)
    distance = abs(amount.admitted - asked)
    if amount.admitted > asked:  # of two that are equally close the smaller one is named
        return range(max(least, asked - distance), asked + distance, step)
    return range(asked - distance + step, asked + distance, step)


def _step(resource: str) -> int:
    if resource == qos.MEMORY:
        return 64 * MIB
    return {"hugepages-2Mi": 2 * MIB, "hugepages-1Gi": 1024 * MIB}.get(resource, 1)


def _most(state: NodeState, resource: str) -> int:
    if resource == qos.CPU:
        return state.machine.cpus.bit_count()
    if qos.is_memory(resource):
        return sum(node.memory for node in state.machine.numa_nodes)
    return sum(device.resource == resource for device in state.devices)


def _sampled(numbers: range, random: Random, samples: int) -> Sequence[int]:
    """All of them, or both ends and random others."""
    count = (numbers.stop - numbers.start) // numbers.step  # len fails beyond sys.maxsize
    if count <= samples:
        return numbers
    others = (numbers.start + numbers.step * random.randrange(count) for _ in range(samples - 2))
    return [numbers[0], numbers[-1], *others]


def _with_amount(pod: Pod, container: Container, resource: str, number: int) -> Pod:
    amounts = [
        {**kind, resource: number * 1000} if resource in kind else dict(kind)
        for kind in (container.resources.requests, container.resources.limits)
    ]
    changed = replace(container, resources=Resources(*amounts))
    containers = tuple(changed if other is container else other for other in pod.containers)
    return replace(pod, containers=containers)
