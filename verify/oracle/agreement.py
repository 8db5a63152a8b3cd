"""Plays a case on the kubelet's own managers and on topomend's replay, and says where the two part.

Both answers come into one form first: plain JSON values, lists sorted where order means nothing. Which of several
failing resources the kubelet reports is left to the order of Go's maps and differs from run to run: a case on which
the two part over such an answer is asked again, and for each step one answer that agrees is enough.
"""

import re
import signal
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import FrameType
from typing import Any, NoReturn, TypeAlias

from verify.oracle.cases import connected_node, library_node, restarted_node, with_state
from verify.oracle.kubelet_oracle import Answer, Case, KubeletOracle
from verify.oracle.merging import Merging

from topomend import library
from topomend.model.bitmask import CPUSet, format_id_list, mask_of, members, parse_id_list
from topomend.model.nodes.node_state import ContainerAllocation, MemoryBlock, NodeState, NUMANodeMemory, allocations
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.admission import shared_pool, start_refusal
from topomend.replay.devices.manager import MAX_NUMA_ID
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG
from topomend.replay.gates import not_released, read_gates
from topomend.replay.lifecycle.allocation_manager import EVICTS, NAMES_ONE, can_admit_pod
from topomend.replay.lifecycle.predicate import OUT_OF, missing_resources, rejection_of
from topomend.replay.simulation import Simulation

RETRIES = 100
"""How often a case is repeated while the two disagree: of two keys in a Go map, one comes first in 7 of 8 runs."""

REPLAY_SECONDS = 20
"""How much CPU time replay may use for a case. Wall-clock time would turn a busy machine into a disagreement."""

SHORT = "Node didn't have enough resource"
"""How a resource is reported of which the node has too little in total."""

Fact: TypeAlias = Any
"""One step in the common form, or how the node ended."""

Allocation: TypeAlias = tuple[str, list[Fact]]
"""A container's name; its CPUs, memory blocks and devices."""

NOT_REPLAYED = ({"ended": "hang"}, {"ended": "refused to restart"})
"""Ends of the kubelet that replay does not predict. A slow kubelet may still come to an end. And no admission asks
whether a kubelet could restart: it may refuse to, or crash (memorymanager/policy_static.go:validateState, for a group
of NUMA nodes of which not all have huge pages of a size)."""

SHORT_OF_MISSING = "which the Node object lacks, counts as there once too few of its devices were left"
"""Replay does not know of it: a kubelet that has restarted keeps an entry without devices of such a resource until it
is ready (devicemanager/manager.go:devicesToAllocate), and has its fit check count the resource
(sanitizeNodeAllocatable). A pod gets that far with it only if its container runs. No agent can see the entry, and the
Node object of a kubelet has every resource that a plugin has registered."""

_TOO_FEW = re.compile(r"requested number of devices unavailable for (\S+)\. ")

ENDS = ("refused to start", "crash", "hang")


@dataclass(frozen=True)
class Disagreement:
    """The first difference: the step (-1 is the start), the field, and both values.

    ``is_reached_alike`` is false if no answer of the kubelet agrees with replay in all steps before: then chance has
    led the two to nodes that hold different resources, and they may differ in any field.
    """

    step: int
    field: str
    kubelet: Fact
    replay: Fact
    is_reached_alike: bool = True

    def __str__(self) -> str:
        return f"step {self.step}, {self.field}:\n  kubelet: {self.kubelet}\n  replay:  {self.replay}"


@dataclass(frozen=True)
class Played:
    """A case's outcome: the oracle's first answer, and the disagreement if one remained after ``retries``.

    ``unmodelled`` are the features that replay does not model; the comparison ends at the step that needs one.
    """

    answer: Answer
    disagreement: Disagreement | None
    retries: int = 0
    unmodelled: tuple[str, ...] = ()


def play(case: Case, oracle: KubeletOracle, merging: Merging = Merging.TABLED) -> Played:
    """Play ``case`` on the kubelet's managers and on replay, which merges hints by ``merging``. Raises OracleFailed."""
    oracle.send(case)
    answer = oracle.receive() if any("start" in step for step in case["steps"]) else None
    with merging.used():
        replayed = _replayed(case, answer or {})
    answer = answer or oracle.receive()
    answers = [list(_facts_of(case, answer))]
    disagreement = _compare(answers, replayed)
    while disagreement is not None and len(answers) <= RETRIES and not _is_settled(disagreement):
        answers.append(list(_facts_of(case, oracle.ask(case))))
        disagreement = _compare(answers, replayed)
    return Played(answer, disagreement, len(answers) - 1, replayed[-1].get("unmodelled", ()))


def _is_settled(disagreement: Disagreement) -> bool:
    """Whether a retry is useless: only a few fields depend on the order of Go's maps.

    Which of several errors, or of several resources that the node lacks, is reported does. Before v1.32 so does the
    memory that remains of a pod with blocks both on a group and on one of the group's NUMA nodes, because its
    containers are released in any order. And a kubelet that is not ready leaves a refused pod the devices of the
    resources that it served before the one that failed.
    """
    if not disagreement.is_reached_alike:
        return False
    if disagreement.field == "reason":
        return not all(str(reason).startswith(OUT_OF) for reason in (disagreement.kubelet, disagreement.replay))
    return disagreement.field not in {"message", "why", "book", "pods", "devices"}


def _compare(answers: list[list[Fact]], replayed: list[Fact]) -> Disagreement | None:
    """The first step on which replay agrees with none of the kubelet's answers, and the nearest of these."""
    alike = set(range(len(answers)))
    for index, (ours, *theirs) in enumerate(zip_longest(replayed, *answers)):
        if theirs[0] in NOT_REPLAYED or (ours is not None and "unmodelled" in ours):
            return None
        if ours not in theirs:
            nearest = theirs[min(alike, default=0)]
            return Disagreement(index - 1, *_difference(nearest, ours), is_reached_alike=bool(alike))
        alike = {number for number in alike if theirs[number] == ours}
        if ours is not None and "ended" in ours:
            return None
    return None


def _difference(theirs: Fact, ours: Fact) -> tuple[str, Fact, Fact]:
    if theirs is None or ours is None or theirs.keys() != ours.keys():
        return next((end for end in ENDS if end in str((theirs, ours))), "exception"), theirs, ours
    field = next(key for key in theirs if theirs[key] != ours[key])
    return field, theirs[field], ours[field]


# The kubelet's side


def _facts_of(case: Case, answer: Answer) -> Iterator[Fact]:
    """The start, then each step; the last fact says how the kubelet ended, if it did."""
    if "refused" in answer:
        yield {"ended": "refused to start", "why": answer["refused"]}
        return
    yield {"started": True}
    steps = answer.get("steps", [])
    if answer.get("panic"):
        steps = steps[:-1]
    for step, result in zip(case["steps"], steps, strict=False):
        if "refused" in result:
            yield {"ended": "refused to restart"}
            return
        yield _fact_of(case, step, result)
    if answer.get("panic"):
        restarting = "restart" in case["steps"][len(steps)]
        yield {"ended": "refused to restart" if restarting else "crash"}
    if answer.get("timeout"):
        yield {"ended": "hang"}


def _fact_of(case: Case, step: Case, result: Answer) -> Fact:
    state = result["state"]
    fact: Fact = {}
    if "admit" in step:
        fact = {key: result[key] for key in ("admitted", "reason", "message")}
        fact["short"] = sorted(text for text in result.get("reasons", ()) if text.startswith(SHORT))
        fact["containers"] = (
            [_container(case, container) for container in result["containers"]] if result["admitted"] else []
        )
    fact["pods"] = _occupied(
        (name, map(_kubelet_allocation, containers or ())) for name, containers in state["pods"].items()
    )
    fact["default"] = _pool(case, parse_id_list(state["defaultCPUs"]))
    fact["book"] = [
        [node["numaNode"], node["assignments"], sorted(node["cells"]), _without_zeros(node["reserved"])]
        for node in state["memory"] or ()
    ]
    fact["devices"] = {resource: sorted(ids) for resource, ids in state["devices"].items()}
    return fact


def _container(case: Case, container: Answer) -> Fact:
    devices = {}
    for resource, ids in (container["devices"] or {}).items():
        numa_nodes = {
            node
            for device in case["devices"]
            if device["resource"] == resource and device["id"] in ids
            for node in device["numaNodes"] or ()
            if 0 <= node <= MAX_NUMA_ID  # what a mask can name
        }
        devices[resource] = [len(ids), sorted(numa_nodes)]
    name, (cpus, memory, _) = _kubelet_allocation(container)
    return [name, container["affinity"], container["preferred"], cpus, memory, devices]


def _kubelet_allocation(container: Answer) -> Allocation:
    memory = sorted([block["type"], sorted(block["numaNodes"]), block["size"]] for block in container["memory"] or ())
    devices = {resource: sorted(ids) for resource, ids in (container["devices"] or {}).items() if ids}
    return container["name"], [container["cpus"], memory, devices]


def _occupied(pods: Iterable[tuple[str, Iterable[Allocation]]]) -> Fact:
    """The resources of each container of each pod; without containers that have none."""
    allocated = {name: {container: own for container, own in containers if any(own)} for name, containers in pods}
    return {name: containers for name, containers in allocated.items() if containers}


def _pool(case: Case, cpus: CPUSet) -> str:
    """The CPU Manager's shared pool. The policy "none" has none."""
    return format_id_list(cpus) if case["kubelet"]["cpuManagerPolicy"] == "static" else ""


def _without_zeros(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


# Replay's side


class TooSlow(BaseException):
    """Replay did not finish within REPLAY_SECONDS."""


def _replayed(case: Case, answer: Answer) -> list[Fact]:
    """All facts of the replay; the last one says if it took too long or raised."""

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise TooSlow

    facts: list[Fact] = []
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, REPLAY_SECONDS)
    try:
        facts.extend(replay(case, answer))
    except TooSlow:
        facts.append({"exception": f"not finished after {REPLAY_SECONDS} s of CPU time"})
    except Exception as error:  # noqa: BLE001 - any exception of replay is a finding
        facts.append({"exception": "".join(traceback.format_exception(error)[-3:])})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return facts


def replay(case: Case, answer: Answer) -> Iterator[Fact]:
    """The case on topomend's replay, in the common form: the start, then each step.

    Nodes, pods, admissions and ends go through the library, as its users have them. Replay does not model the start of
    containers: at such a step it takes the memory from ``answer``, as an agent would read it.
    """
    node = library_node(case)
    refusal = start_refusal(node.kubelet.state)
    if refusal is not None:
        yield {"ended": "refused to start", "why": refusal}
        return
    yield {"started": True}
    pods: dict[tuple[str, str], BoundPod] = {}
    gone = set[tuple[str, str]]()
    short = set[str]()
    for index, step in enumerate(case["steps"]):
        fact: Fact = {}
        if "admit" in step:
            pod = library.pod(step["admit"])
            pods[pod.key] = pod
            missing = short.intersection(_missing(node, pod, case))
            verdict, node = _admitted(node, pod)
            short.update(_TOO_FEW.findall(verdict.message))
            if verdict.reason in {KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG}:
                yield {"ended": "crash" if verdict.reason == KUBELET_WOULD_CRASH else "hang"}
                return
            remarks = (*verdict.unmodelled, *(f"{resource}, {SHORT_OF_MISSING}" for resource in missing))
            if not all(_is_compared(remark, case) for remark in remarks):
                yield {"unmodelled": remarks}
                return
            fact = _verdict(verdict)
            (gone.discard if verdict.admitted or _is_ready(node) else gone.add)(pod.key)
        elif "start" in step:
            if index >= len(answer.get("steps", ())):
                return
            state = _with_observed_memory(node.kubelet.state, answer["steps"][index]["state"])
            node = with_state(node, state)
        elif "end" in step:
            ended = step["end"]["namespace"], step["end"]["name"]
            gone.add(ended)
            node = _not_counted(node, ended)
        else:
            node = with_state(node, _stepped(node.kubelet.state, step))
        node = _purged(node, gone, pods)
        yield {**fact, **_state(node.kubelet.state, case)}


def _admitted(node: Simulation, pod: BoundPod) -> tuple[Verdict, Simulation]:
    """The answer by the library, which binds pods to their node; a pod that is bound to another asks what it asks."""
    if pod.node in ("", node.kubelet.node.name):
        return library.admit(node, pod)
    verdict, kubelet = can_admit_pod(node.kubelet, pod)
    return verdict, replace(node, kubelet=kubelet)


def _missing(node: Simulation, pod: BoundPod, case: Case) -> list[str]:
    """The resources of the pod that the Node object lacks, as the fit check of a kubelet that is not ready sees it."""
    if _is_ready(node) or "node" not in case:
        return []
    return missing_resources(pod, node.kubelet.node.allocatable, read_gates(node.kubelet.state.kubelet))


def _purged(node: Simulation, gone: set[tuple[str, str]], pods: Mapping[tuple[str, str], BoundPod]) -> Simulation:
    """The node without what these pods held, as a kubelet that is ready drops it, and then empties ``gone``."""
    if not _is_ready(node):
        return node
    for key in sorted(gone & pods.keys()):
        node = library.release(node, pods[key])
    gone.clear()
    return node


def _is_ready(node: Simulation) -> bool:
    """Whether it drops at once what pods held that have ended or that it has refused."""
    return node.kubelet.state.initial_containers is None


def _is_compared(remark: str, case: Case) -> bool:
    """Whether the answer is compared all the same: the remark is on the fit check, or that the kubelet is ``NEXT``."""
    return remark == EVICTS or remark.endswith(NAMES_ONE) or remark == not_released(case["kubelet"].get("version", ""))


def _not_counted(node: Simulation, ended: tuple[str, str]) -> Simulation:
    """The node, whose fit check counts a pod no longer; what its managers hold for the pod stays until it is ready."""
    others = tuple(pod for pod in node.kubelet.pods if pod.key != ended)
    return replace(node, kubelet=replace(node.kubelet, pods=others))


def _stepped(state: NodeState, step: Case) -> NodeState:
    """The state after a step that is about no pod."""
    if "restart" in step:
        return restarted_node(state, step)
    if "connect" in step:
        return connected_node(state, step)
    return replace(state, initial_containers=None) if "ready" in step else state


def _with_observed_memory(node: NodeState, state: Answer) -> NodeState:
    """The node with the kubelet's own memory blocks and reservations; a container that it no longer lists has none."""
    listed = {
        (name, container["name"])
        for name, containers in state["pods"].items()
        for container in containers or ()
        if container["memory"] is not None
    }
    blocks = {
        (name, container["name"]): tuple(
            MemoryBlock(block["type"], mask_of(block["numaNodes"]), block["size"])
            for block in container["memory"] or ()
        )
        for name, containers in state["pods"].items()
        for container in containers or ()
    }
    pods = []
    for pod in node.pods:
        name = f"{pod.namespace}/{pod.name}"
        containers = (
            replace(container, memory=blocks[name, container.name])
            for container in pod.containers
            if container.cpus or container.devices or (name, container.name) in listed
        )
        pods.append(replace(pod, containers=tuple(containers)))
    book = tuple(
        NUMANodeMemory(node["numaNode"], node["assignments"], mask_of(node["cells"]), node["reserved"])
        for node in state["memory"] or ()
    )
    return replace(node, pods=tuple(pods), memory=book or None)


def _verdict(verdict: Verdict) -> Fact:
    return {
        "admitted": verdict.admitted,
        "reason": verdict.reason,
        "message": verdict.message,
        "short": sorted(rejection_of(shortage).message for shortage in verdict.shortages),
        "containers": [_placement(container) for container in verdict.containers] if verdict.admitted else [],
    }


def _placement(placed: ContainerPlacement) -> Fact:
    return [
        placed.name,
        None if placed.affinity is None else list(members(placed.affinity)),
        placed.preferred,
        format_id_list(placed.cpus),
        _blocks(placed.memory),
        {device.resource: [device.count, list(members(device.numa_nodes))] for device in placed.devices},
    ]


def _blocks(blocks: tuple[MemoryBlock, ...]) -> list[Fact]:
    return sorted([block.resource, list(members(block.numa_nodes)), block.size] for block in blocks)


def _state(node: NodeState, case: Case) -> Fact:
    device_ids: dict[str, set[str]] = {}
    for container in allocations(node.pods):
        for devices in container.devices:
            device_ids.setdefault(devices.resource, set()).update(devices.ids)
    return {
        "pods": _occupied(
            (f"{pod.namespace}/{pod.name}", map(_replay_allocation, pod.containers)) for pod in node.pods
        ),
        "default": _pool(case, shared_pool(node)),
        "book": _book(node),
        "devices": {resource: sorted(ids) for resource, ids in device_ids.items() if ids},
    }


def _book(node: NodeState) -> list[Fact]:
    """The Memory Manager's reservations of each NUMA node; at first there are none."""
    if node.memory is None and node.kubelet.memory_manager_policy == "Static":
        return [[numa_node.id, 0, [numa_node.id], {}] for numa_node in node.machine.numa_nodes]
    return [
        [
            numa_node.numa_node,
            numa_node.assignments,
            list(members(numa_node.cells)),
            _without_zeros(dict(numa_node.reserved)),
        ]
        for numa_node in node.memory or ()
    ]


def _replay_allocation(container: ContainerAllocation) -> Allocation:
    devices = {device.resource: sorted(device.ids) for device in container.devices if device.ids}
    return container.name, [format_id_list(container.cpus), _blocks(container.memory), devices]
