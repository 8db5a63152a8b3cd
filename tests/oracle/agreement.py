"""Plays a case on the kubelet's own managers and on topomend's replay, and says where the two part.

Both answers come into one form first: plain JSON values, lists sorted where order means nothing. Which of several
failing resources the kubelet reports is left to the order of Go's maps and differs from run to run: a case on which
the two part over such an answer is asked again, and for each step one answer that agrees is enough.
"""

import signal
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import FrameType
from typing import Any, NoReturn, TypeAlias

from tests.merging import Merging
from tests.oracle.cases import node_state
from tests.oracle.kubelet_oracle import Answer, Case, KubeletOracle

from topomend.model.bitmask import CPUSet, format_id_list, mask_of, members, parse_id_list
from topomend.model.node_state import ContainerAllocation, MemoryBlock, NodeState, NUMANodeMemory, allocations
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.admission import admit, release, shared_pool, start_refusal
from topomend.replay.devices.manager import MAX_NUMA_ID
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG
from topomend.wire.pod import read_pod

ASKED_AGAIN = 100
"""How often a case on which the two part is asked again: of two names in a map of Go's one comes first in 7 of 8."""

REPLAY_SECONDS = 20
"""How long replay may compute on a case: time of the CPU, so that a busy machine makes no disagreement."""

Fact: TypeAlias = Any
"""One step in the common form, or how the node ended."""

Held: TypeAlias = tuple[str, list[Fact]]
"""A container's name; its CPUs, memory blocks and devices."""

NOT_REPLAYED = ({"ended": "hang"}, {"ended": "refused to restart"})
"""What takes the kubelet too long may yet have an end, and no admission asks whether a kubelet could start again: it
may refuse to, or crash (memorymanager/policy_static.go:validateState, for a group of NUMA nodes of which not all have
huge pages of a size)."""

ENDS = ("refused to start", "crash", "hang")


@dataclass(frozen=True)
class Disagreement:
    """Where the two part first: the step (-1 is the start), the field, and what each says."""

    step: int
    field: str
    kubelet: Fact
    replay: Fact

    def __str__(self) -> str:
        return f"step {self.step}, {self.field}:\n  kubelet: {self.kubelet}\n  replay:  {self.replay}"


@dataclass(frozen=True)
class Played:
    """A case's outcome: the oracle's first answer, the disagreement if one stayed, how often it was asked again,
    and what replay said it does not model, where it said so and the comparison ended.
    """

    answer: Answer
    disagreement: Disagreement | None
    asked_again: int = 0
    unmodelled: tuple[str, ...] = ()


def play(case: Case, oracle: KubeletOracle, merging: Merging = Merging.TABLED) -> Played:
    """Play ``case`` on both, replay merging hints one way or another. Raises OracleFailed."""
    oracle.send(case)
    answer = oracle.receive() if any("start" in step for step in case["steps"]) else None
    with merging.used():
        replayed = _replayed(case, answer or {})
    answer = answer or oracle.receive()
    answers = [list(_facts_of(case, answer))]
    found = _compare(answers, replayed)
    while found is not None and len(answers) <= ASKED_AGAIN and not _is_settled(found):
        answers.append(list(_facts_of(case, oracle.ask(case))))
        found = _compare(answers, replayed)
    return Played(answer, found, len(answers) - 1, replayed[-1].get("unmodelled", ()))


def _is_settled(found: Disagreement) -> bool:
    """Whether asking again would be in vain: only some answers depend on the order of Go's maps.

    Which of several errors is told does and, before v1.32, what is left of the memory of a pod whose blocks lay both on
    a group and on one of its NUMA nodes: its containers are released in any order.
    """
    return found.field not in {"message", "why", "book"}


def _compare(answers: list[list[Fact]], replayed: list[Fact]) -> Disagreement | None:
    """The first step on which replay agrees with none of the kubelet's answers, which differ in messages at most."""
    for index, (ours, *theirs) in enumerate(zip_longest(replayed, *answers)):
        if theirs[0] in NOT_REPLAYED or (ours is not None and "unmodelled" in ours):
            return None
        if ours not in theirs:
            return Disagreement(index - 1, *_difference(theirs[0], ours))
        if ours is not None and "ended" in ours:
            return None
    return None


def _difference(theirs: Fact, ours: Fact) -> tuple[str, Fact, Fact]:
    if theirs is None or ours is None or theirs.keys() != ours.keys():
        return next((each for each in ENDS if each in str((theirs, ours))), "exception"), theirs, ours
    field = next(each for each in theirs if theirs[each] != ours[each])
    return field, theirs[field], ours[field]


# The kubelet's side


def _facts_of(case: Case, answer: Answer) -> Iterator[Fact]:
    """The start and then each step; the last one says how the node ended where it did."""
    if "refused" in answer:
        yield {"ended": "refused to start", "why": answer["refused"]}
        return
    yield {"started": True}
    steps = answer.get("steps", [])
    if answer.get("panic"):
        steps = steps[:-1]
    for asked, said in zip(case["steps"], steps, strict=False):
        if "refused" in said:
            yield {"ended": "refused to restart"}
            return
        yield _fact_of(case, asked, said)
    if answer.get("panic"):
        restarting = "restart" in case["steps"][len(steps)]
        yield {"ended": "refused to restart" if restarting else "crash"}
    if answer.get("timeout"):
        yield {"ended": "hang"}


def _fact_of(case: Case, asked: Case, said: Answer) -> Fact:
    state = said["state"]
    fact: Fact = {}
    if "admit" in asked:
        fact = {key: said[key] for key in ("admitted", "reason", "message")}
        fact["containers"] = [_container(case, each) for each in said["containers"]] if said["admitted"] else []
    fact["pods"] = _occupied((name, map(_held, containers or ())) for name, containers in state["pods"].items())
    fact["default"] = _pool(case, parse_id_list(state["defaultCPUs"]))
    fact["book"] = [
        [node["numaNode"], node["assignments"], sorted(node["cells"]), _without_zeros(node["reserved"])]
        for node in state["memory"] or ()
    ]
    fact["devices"] = {resource: sorted(ids) for resource, ids in state["devices"].items()}
    return fact


def _container(case: Case, said: Answer) -> Fact:
    devices = {}
    for resource, ids in (said["devices"] or {}).items():
        numa_nodes = {
            node
            for device in case["devices"]
            if device["resource"] == resource and device["id"] in ids
            for node in device["numaNodes"] or ()
            if 0 <= node <= MAX_NUMA_ID  # what a mask can name
        }
        devices[resource] = [len(ids), sorted(numa_nodes)]
    name, (cpus, memory, _) = _held(said)
    return [name, said["affinity"], said["preferred"], cpus, memory, devices]


def _held(said: Answer) -> Held:
    memory = sorted([each["type"], sorted(each["numaNodes"]), each["size"]] for each in said["memory"] or ())
    devices = {resource: sorted(ids) for resource, ids in (said["devices"] or {}).items() if ids}
    return said["name"], [said["cpus"], memory, devices]


def _occupied(pods: Iterable[tuple[str, Iterable[Held]]]) -> Fact:
    """What each container of each pod holds; who holds nothing is left out."""
    held = {name: {each: what for each, what in containers if any(what)} for name, containers in pods}
    return {name: containers for name, containers in held.items() if containers}


def _pool(case: Case, cpus: CPUSet) -> str:
    """The CPU Manager's shared pool, which the policy "none" does not keep."""
    return format_id_list(cpus) if case["kubelet"]["cpuManagerPolicy"] == "static" else ""


def _without_zeros(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


# Replay's side


class TooSlow(BaseException):
    """Replay did not come to an end in REPLAY_SECONDS."""


def _replayed(case: Case, answer: Answer) -> list[Fact]:
    """All facts of the replay; the last one says so where it took too long or raised."""

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise TooSlow

    facts: list[Fact] = []
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, REPLAY_SECONDS)
    try:
        facts.extend(replay(case, answer))
    except TooSlow:
        facts.append({"exception": f"no end within {REPLAY_SECONDS} s"})
    except Exception as error:  # noqa: BLE001 - whatever replay raises is what is being looked for
        facts.append({"exception": "".join(traceback.format_exception(error)[-3:])})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return facts


def replay(case: Case, answer: Answer) -> Iterator[Fact]:
    """The case on topomend's replay, in the common form: the start, then each step.

    Replay knows of no started containers: it is told the memory that ``answer`` shows then, as an agent would read it.
    """
    node = node_state(case)
    refusal = start_refusal(node)
    if refusal is not None:
        yield {"ended": "refused to start", "why": refusal}
        return
    yield {"started": True}
    for index, step in enumerate(case["steps"]):
        fact: Fact = {}
        if "admit" in step:
            verdict, node = admit(node, read_pod(step["admit"]))
            if verdict.reason in {KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG}:
                yield {"ended": "crash" if verdict.reason == KUBELET_WOULD_CRASH else "hang"}
                return
            if verdict.unmodelled:
                yield {"unmodelled": verdict.unmodelled}
                return
            fact = _verdict(verdict)
        elif "start" in step:
            if index >= len(answer.get("steps", ())):
                return
            node = _with_observed_memory(node, answer["steps"][index]["state"])
        elif "end" in step:
            node = release(node, step["end"]["namespace"], step["end"]["name"])
        yield {**fact, **_state(node, case)}


def _with_observed_memory(node: NodeState, state: Answer) -> NodeState:
    """The node with the blocks and the book that the kubelet shows; a container that it no longer lists holds none."""
    listed = {
        (name, container["name"])
        for name, containers in state["pods"].items()
        for container in containers or ()
        if container["memory"] is not None
    }
    blocks = {
        (name, container["name"]): tuple(
            MemoryBlock(each["type"], mask_of(each["numaNodes"]), each["size"]) for each in container["memory"] or ()
        )
        for name, containers in state["pods"].items()
        for container in containers or ()
    }
    pods = []
    for pod in node.pods:
        name = f"{pod.namespace}/{pod.name}"
        held = (
            replace(each, memory=blocks[name, each.name])
            for each in pod.containers
            if each.cpus or each.devices or (name, each.name) in listed
        )
        pods.append(replace(pod, containers=tuple(held)))
    book = tuple(
        NUMANodeMemory(each["numaNode"], each["assignments"], mask_of(each["cells"]), each["reserved"])
        for each in state["memory"] or ()
    )
    return replace(node, pods=tuple(pods), memory=book or None)


def _verdict(verdict: Verdict) -> Fact:
    return {
        "admitted": verdict.admitted,
        "reason": verdict.reason,
        "message": verdict.message,
        "containers": [_placement(each) for each in verdict.containers] if verdict.admitted else [],
    }


def _placement(placed: ContainerPlacement) -> Fact:
    return [
        placed.name,
        None if placed.affinity is None else list(members(placed.affinity)),
        placed.preferred,
        format_id_list(placed.cpus),
        _blocks(placed.memory),
        {each.resource: [each.count, list(members(each.numa_nodes))] for each in placed.devices},
    ]


def _blocks(blocks: tuple[MemoryBlock, ...]) -> list[Fact]:
    return sorted([each.resource, list(members(each.numa_nodes)), each.size] for each in blocks)


def _state(node: NodeState, case: Case) -> Fact:
    held: dict[str, set[str]] = {}
    for container in allocations(node.pods):
        for each in container.devices:
            held.setdefault(each.resource, set()).update(each.ids)
    return {
        "pods": _occupied((f"{pod.namespace}/{pod.name}", map(_allocation, pod.containers)) for pod in node.pods),
        "default": _pool(case, shared_pool(node)),
        "book": _book(node),
        "devices": {resource: sorted(ids) for resource, ids in held.items() if ids},
    }


def _book(node: NodeState) -> list[Fact]:
    """The Memory Manager's book; a state without one has yet to write the first line."""
    if node.memory is None and node.kubelet.memory_manager_policy == "Static":
        return [[each.id, 0, [each.id], {}] for each in node.machine.numa_nodes]
    return [
        [each.numa_node, each.assignments, list(members(each.cells)), _without_zeros(dict(each.reserved))]
        for each in node.memory or ()
    ]


def _allocation(held: ContainerAllocation) -> Held:
    devices = {each.resource: sorted(each.ids) for each in held.devices if each.ids}
    return held.name, [format_id_list(held.cpus), _blocks(held.memory), devices]
