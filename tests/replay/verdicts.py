"""Verdicts as one line of text each, and admissions one after the other.

Numbers of cases marked "ran" were seen on the kubelet's own v1.36.3 managers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topomend.model.bitmask import format_id_list
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit
from topomend.replay.errors import MESSAGE_PREFIX

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")

REFUSED = "TopologyAffinityError: Resources cannot be allocated with Topology locality"


def unexpected(error: str) -> str:
    """The line of a refusal whose error has no reason of its own."""
    return f"UnexpectedAdmissionError: Allocate failed due to {error}, which is unexpected"


def of(cpu: int, memory: str = "1Gi", rest: str = "") -> str:
    """A container of a Guaranteed pod."""
    return f"cpu={cpu} memory={memory} {rest}"


@dataclass(frozen=True)
class Case:
    """Pods that are admitted in order, and the ``expected`` line of the verdict on the last one."""

    name: str
    state: NodeState
    pods: Sequence[Pod]
    expected: str

    def answer(self) -> str:
        """The line of the verdict on the last pod."""
        verdicts, _ = admit_all(self.state, self.pods)
        return verdict_line(verdicts[-1])


def admit_all(state: NodeState, pods: Iterable[Pod]) -> tuple[list[Verdict], NodeState]:
    """Admit or refuse one pod after the other."""
    verdicts = []
    for pod in pods:
        verdict, state = admit(state, pod)
        verdicts.append(verdict)
    return verdicts, state


def verdict_line(verdict: Verdict) -> str:
    """A refusal's reason and message; of an admission, what each container gets: ``[0] cpus 1-3 1 v.com/gpu on 0``.

    The affinity comes first, in round brackets if it is not preferred.
    """
    if not verdict.admitted:
        return f"{verdict.reason}: {verdict.message.removeprefix(MESSAGE_PREFIX)}"
    parts = []
    for container in verdict.containers:
        numa_nodes = "any" if container.affinity is None else format_id_list(container.affinity)
        words = [f"[{numa_nodes}]" if container.preferred else f"({numa_nodes})"]
        words += [f"cpus {format_id_list(container.cpus)}"] if container.cpus else []
        words += [
            f"{block.resource} {block.size >> 20}Mi on {format_id_list(block.numa_nodes)}" for block in container.memory
        ]
        words += [
            f"{devices.count} {devices.resource} on {format_id_list(devices.numa_nodes)}"
            for devices in container.devices
        ]
        parts.append(" ".join(words))
    return "; ".join(parts)
