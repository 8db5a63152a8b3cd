"""A kubelet's admission as a library, for simulators: ``node``, ``pod``, ``admit``, ``release`` and ``explain``.

Nodes are values: an answer comes with the node after it, and the node before stays as it was. Nothing here reads files
or asks anybody, and no package but topomend's own is imported. The names stand in this module because ``topomend``
itself has a room ``explain``. Owns what users of Python may rely on. Leaves the rules to ``replay``.

>>> settings = KubeletSettings(
...     topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=0b1
... )
>>> empty = node("numa:2 cores:4 memory:8Gi", kubelet=settings)
>>> def requesting(name, cpus):
...     limits = {"cpu": cpus, "memory": "1Gi"}
...     container = {"name": "main", "resources": {"limits": limits}}
...     return pod({"metadata": {"name": name}, "spec": {"containers": [container]}})
>>> verdict, filled = admit(empty, requesting("web", 3))
>>> verdict.admitted, verdict.containers[0].cpus == 0b1110
(True, True)
>>> verdict, filled = admit(filled, requesting("db", 4))
>>> verdict.admitted
True
>>> refused, after = admit(filled, requesting("job", 1))
>>> refused.admitted, refused.reason
(False, 'TopologyAffinityError')
>>> after == filled
True
>>> verdict, after = admit(release(filled, requesting("web", 3)), requesting("job", 1))
>>> verdict.admitted
True
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topomend.explain import explanation
from topomend.explain.remedy import remedy_in
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.shapes.shape import InvalidShape, parse_shape
from topomend.model.verdict import Verdict
from topomend.replay.simulation import Simulation, simulation_of, with_reserved_cpus, with_settings
from topomend.wire.document import Document, MalformedObject
from topomend.wire.node import read_node
from topomend.wire.pods.bound_pod import read_bound_pod
from topomend.wire.published.node_topology import read_node_topology, why_not_started

__all__ = [
    "BoundPod",
    "InvalidShape",
    "KubeletSettings",
    "MalformedObject",
    "MemoryReservation",
    "Simulation",
    "Verdict",
    "admit",
    "explain",
    "node",
    "pod",
    "release",
]


def node(
    described: str | Mapping[str, Any],
    *,
    name: str = "node",
    kubelet: KubeletSettings | None = None,
    node_object: Mapping[str, Any] | None = None,
    pods: Iterable[Mapping[str, Any]] | None = None,
) -> Simulation:
    """The kubelet of a node: of a machine by its shape or its known name, or of a NodeTopology object.

    - ``name`` is that of a node by its shape. A NodeTopology has its own.
    - ``kubelet`` are the settings that the kubelet was started with. Without them a shape has the default ones, which
      align nothing, and a NodeTopology its own.
    - ``node_object`` is the Node object: labels, taints and totals. Without it those of a shape follow from machine and
      settings, and of a NodeTopology no more is checked than it tells (``Simulation.not_checked``).
    - ``pods`` are the Pod objects of all pods on the node. Without them a shape has none, and of those on the node of a
      NodeTopology only what they hold exclusively counts.

    A NodeTopology is believed whether or not its condition Ready is true. Raises InvalidShape, MalformedObject.

    >>> node("p5.48xlarge", name="gpu-01").kubelet.state.machine.cpus.bit_count()
    192
    >>> node("numa:2 cores:many")
    Traceback (most recent call last):
        ...
    topomend.model.shapes.shape.InvalidShape: 'cores:many' needs a whole number of at least 1
    >>> node({"kind": "Node"})
    Traceback (most recent call last):
        ...
    topomend.wire.document.MalformedObject: kind: 'Node' where NodeTopology belongs
    >>> node("numa:2 cores:4", kubelet=KubeletSettings(reserved_cpus="0,2"))
    Traceback (most recent call last):
        ...
    topomend.wire.document.MalformedObject: kubelet.reserved_cpus: '0,2' where a bit mask, 0b101 for the CPUs 0 \
and 2, belongs
    """
    state, problem = _of_shape(described, name) if isinstance(described, str) else _published(described)
    if kubelet is not None:
        _check_settings(kubelet)
        state, problem = with_settings(state, kubelet), ""
    known = None if node_object is None else read_node(_plain(node_object))
    if known and kubelet is not None:
        known = with_reserved_cpus(known, state)
    assumed = () if isinstance(described, str) else None
    return simulation_of(state, known, assumed if pods is None else map(pod, pods), problem)


def pod(manifest: Mapping[str, Any]) -> BoundPod:
    """The pod of a Pod object, as the API server stores it or as a user wrote it.

    Its namespace and name tell it from others; a node has one pod of each name. So one that the API server would name
    (``generateName``) is to be given a name. Raises MalformedObject.

    >>> pod({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main"}]}}).key
    ('default', 'web')
    >>> pod({"metadata": {"name": "web"}, "spec": {"containers": [{"name": 7}]}})
    Traceback (most recent call last):
        ...
    topomend.wire.document.MalformedObject: spec.containers[0].name: 7 where a string belongs
    """
    content = _plain(manifest)
    bound = read_bound_pod(content)
    name = Document(content)["metadata"]["name"]
    if not name.text(default=""):
        raise name.wrong("a name")
    return bound


def admit(node: Simulation, pod: BoundPod) -> tuple[Verdict, Simulation]:
    """The kubelet's answer to a pod that is bound to the node, and the node after it.

    The answer has the kubelet's own reason and message, and where each container is placed. CPUs and NUMA nodes are bit
    masks. Every pod gets an answer: a kubelet that would not start refuses with ``KubeletWouldNotStart``. A pod that is
    on the node already is admitted again, as after a restart of the kubelet.

    >>> verdict, _ = admit(node("numa:2 cores:4"), pod({"metadata": {"name": "p"}, "spec": {"containers": [
    ...     {"name": "main", "resources": {"requests": {"cpu": 9}}}]}}))
    >>> verdict.message
    "Pod was rejected: Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000"
    """
    return node.answer(pod)


def release(node: Simulation, pod: BoundPod) -> Simulation:
    """The node after the pod has ended, by its namespace and name. A pod that is not on it changes nothing.

    >>> empty = node("numa:2 cores:4")
    >>> web = pod({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main"}]}})
    >>> release(admit(empty, web)[1], web) == empty
    True
    """
    return node.after(*pod.key)


def explain(node: Simulation, pod: BoundPod) -> str:
    """Why the node refuses the pod and what would be admitted instead, or where it admits it; one sentence.

    It may try many pods by replay, and so take longer than ``admit``.

    >>> settings = KubeletSettings(
    ...     topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=0b1
    ... )
    >>> print(explain(node("numa:2 cores:4", kubelet=settings), pod({"metadata": {"name": "web"}, "spec": {"containers":
    ...     [{"name": "main", "resources": {"limits": {"cpu": 5, "memory": "1Gi"}}}]}})))
    node refuses container main: cpu requests 5 and fits no NUMA node: free 3 on NUMA 0, 4 on NUMA 1, lacks 1; \
even empty no NUMA node has more than 4 (single-numa-node); would be admitted with 4 CPUs
    """
    verdict, _ = node.answer(pod)
    words = "" if verdict.admitted else remedy_in(node, pod, verdict).words
    left_out = ", ".join(node.not_checked(pod))
    sentence = explanation.explain(verdict, node.kubelet.state, pod.pod)
    return "; ".join(filter(None, (sentence, words, left_out and f"not checked: {left_out}")))


def _check_settings(kubelet: KubeletSettings) -> None:
    """Whether each setting is of its type, which Python does not see to. Raises MalformedObject.

    What it says is checked by replay: a kubelet may not start with it.
    """
    if not isinstance(kubelet, KubeletSettings):
        raise Document(kubelet, "kubelet").wrong("KubeletSettings")
    for name, (is_right, expected) in _SETTINGS.items():
        value = getattr(kubelet, name)
        if not is_right(value):
            raise Document(value, f"kubelet.{name}").wrong(expected)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_reservation(value: object) -> bool:
    return (
        isinstance(value, MemoryReservation)
        and _is_amount(value.numa_node)
        and _is_text(value.resource)
        and _is_amount(value.size)
    )


def _is_map_of(kind: type) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, Mapping) and all(_is_text(key) and isinstance(each, kind) for key, each in value.items())
    )


_TEXT = _is_text, "a string"
_OPTIONS = _is_map_of(str), "a map of strings to strings"
_SETTINGS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "version": _TEXT,
    "topology_manager_policy": _TEXT,
    "topology_manager_scope": _TEXT,
    "topology_manager_policy_options": _OPTIONS,
    "cpu_manager_policy": _TEXT,
    "cpu_manager_policy_options": _OPTIONS,
    "memory_manager_policy": _TEXT,
    "reserved_cpus": (
        lambda value: value is None or _is_amount(value),
        "a bit mask, 0b101 for the CPUs 0 and 2,",
    ),
    "reserved_cpu_millis": (_is_amount, "a whole number of thousandths of a CPU"),
    "reserved_memory": (
        lambda value: isinstance(value, tuple) and all(map(_is_reservation, value)),
        "a tuple of MemoryReservation, in bytes,",
    ),
    "feature_gates": (_is_map_of(bool), "a map of strings to True or False"),
}
"""Whether a value is of the setting's type, and what belongs there."""


def _of_shape(text: str, name: str) -> tuple[NodeState, str]:
    shape = parse_shape(text)
    return NodeState(name, shape.machine(), devices=shape.offered_devices()), ""


def _published(content: Mapping[str, Any]) -> tuple[NodeState, str]:
    """The state that a NodeTopology has, and why its kubelet does not start with its configuration."""
    plain = _plain(content)
    return read_node_topology(plain), why_not_started(plain)


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise Document(content).wrong("an object")
    return dict(content)
