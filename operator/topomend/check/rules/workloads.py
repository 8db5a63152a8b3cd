"""TM3xx: pods that are not aligned though they look it, and pods that wait for what does not come."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from topomend.alignment.container import Alignment, ContainerAlignment
from topomend.alignment.pinning import NOT_GUARANTEED
from topomend.alignment.requested import wrong_value as wrong_alignment
from topomend.check.check import check
from topomend.check.facts import Facts, Part
from topomend.check.finding import Found, Severity, Subject
from topomend.check.running_containers import asks_for_whole_cpus
from topomend.decide.eligibility import wrong_value
from topomend.explain.trace_text import numa_text
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import WatchedPod
from topomend.replay.admission import reserved_cpus
from topomend.wire.group import FIT_GATE, RELAUNCH_ANNOTATION, RELAUNCH_GATE

LONG = timedelta(minutes=15)
"""A pod that has waited gated for longer is reported."""


def _pod(pod: Pod) -> Subject:
    return Subject("Pod", pod.name, pod.namespace)


@check(
    "TM301",
    Severity.WARNING,
    "A pod looks pinned and is not",
    Part.NODES,
    Part.TOPOLOGIES,
    Part.PODS,
    why="Its containers run on CPUs of any NUMA node, beside everything else.",
    cure="Give every container of the pod equal requests and limits of cpu and memory.",
)
def whole_cpus_are_exclusive(facts: Facts) -> Iterator[Found]:
    """A container has a whole number of CPUs as request and limit, and no exclusive CPUs: its pod is not Guaranteed."""
    for _, running in facts.containers:
        why = running.shared_cpus
        if why and why.reason == NOT_GUARANTEED and asks_for_whole_cpus(running.container):
            message = f"container {running.container.name} looks pinned and shares its CPUs: {why.message}"
            yield Found(_pod(running.pod.pod), message, "give all of its containers equal requests and limits")


@check(
    "TM302",
    Severity.WARNING,
    "A container with devices shares its CPUs",
    Part.NODES,
    Part.TOPOLOGIES,
    Part.PODS,
    why="Its threads run far from its devices as often as near them.",
    cure="Ask for whole CPUs with equal requests and limits, so that the container gets its own.",
)
def devices_come_with_cpus(facts: Facts) -> Iterator[Found]:
    """A container has devices with NUMA nodes, and its CPUs are a shared pool that spans other NUMA nodes."""
    for _, running in facts.containers:
        if running.aligned.alignment is Alignment.FLOATING and _devices(running.aligned):
            why = f": {running.shared_cpus.message}" if running.shared_cpus else ""
            message = f"container {running.container.name} has {_devices(running.aligned)} and shares its CPUs{why}"
            yield Found(_pod(running.pod.pod), message, "ask for whole CPUs with equal requests and limits")


def _devices(aligned: ContainerAlignment) -> str:
    named = [resource for resource in aligned.allocated if resource.devices and resource.numa_nodes]
    return ", ".join(f"{resource.resource} on {numa_text(resource.numa_nodes)}" for resource in named)


@check(
    "TM303",
    Severity.INFO,
    "A container spans NUMA nodes though it fits one",
    Part.NODES,
    Part.TOPOLOGIES,
    Part.PODS,
    why="It reads memory and devices of another NUMA node. When it was admitted, none had enough left.",
    cure="Delete the pod once a NUMA node has room, and annotate it with topomend.io/alignment=single-numa-node.",
)
def containers_are_together(facts: Facts) -> Iterator[Found]:
    """A container's exclusive CPUs, memory and devices are on several NUMA nodes, and its CPUs would fit on one."""
    for state, running in facts.containers:
        if running.aligned.alignment not in (Alignment.SOCKET, Alignment.SPLIT):
            continue
        reserved = reserved_cpus(state)
        widest = max(((cpus & ~reserved).bit_count() for cpus in state.machine.cpus_of_numa_node.values()), default=0)
        if running.aligned.cpus.bit_count() <= widest:
            places = numa_text(running.aligned.numa_nodes)
            message = f"container {running.container.name} spans {places}, and its CPUs would fit on one NUMA node"
            yield Found(_pod(running.pod.pod), message, "annotate it with topomend.io/alignment=single-numa-node")


@check(
    "TM304",
    Severity.WARNING,
    "A pod has waited gated for long",
    Part.PODS,
    why="It needs a node with room, a person who changes it, or an operator that works.",
    cure="`kubectl numa explain pod/NAME` says which nodes refuse it, and what would help.",
)
def pods_are_let_go(facts: Facts) -> Iterator[Found]:
    """A pod still has a gate of topomend's, and of nobody else's, 15 minutes after its creation."""
    for pod in facts.waiting:
        age = _age(facts, pod)
        if age is not None and age > LONG and {FIT_GATE, RELAUNCH_GATE}.issuperset(pod.gates):
            cure = f"kubectl numa explain pod/{pod.name} -n {pod.namespace}"
            yield Found(_pod(pod.pod), "it has waited gated for more than 15 minutes", cure)


def _age(facts: Facts, pod: WatchedPod) -> timedelta | None:
    try:
        return facts.now - datetime.fromisoformat(pod.creation_time)
    except (TypeError, ValueError):
        return None


@check(
    "TM305",
    Severity.WARNING,
    "A group of pods is not complete",
    Part.PODS,
    Part.GROUPS,
    why="The pods of a group are let go all together, so those that have come wait for the others.",
    cure="See why the others were not created: quota, the controller, or a wrong size of the group.",
)
def groups_are_complete(facts: Facts) -> Iterator[Found]:
    """Fewer pods of a group exist than it needs, and those that exist wait gated."""
    for group in facts.groups:
        if group.needed is not None and group.present < group.needed:
            subject = Subject("PodGroup", group.group.name, group.namespace)
            message = f"{group.present} of its {group.needed} pods have come; they wait gated for the others"
            yield Found(subject, message, f"kubectl get pods,events -n {group.namespace}")


@check(
    "TM306",
    Severity.WARNING,
    "An annotation has a value that is none",
    Part.PODS,
    why="A wrong value of topomend.io/relaunch counts as false, one of topomend.io/alignment is ignored.",
    cure="Correct the value. The reference lists the annotations and their values.",
)
def annotations_mean_something(facts: Facts) -> Iterator[Found]:
    """A waiting pod has an annotation of topomend's with a value that is none, such as `"no"` for relaunch."""
    for pod in facts.waiting:
        if wrong := wrong_value(pod.relaunch):
            yield Found(_pod(pod.pod), wrong, f"annotate it with {RELAUNCH_ANNOTATION}=false or =true")
        if wrong := wrong_alignment(pod.pod):
            yield Found(_pod(pod.pod), wrong, "create the pod anew with the right value")
