"""What topomend would change on a cluster if it were installed: before it is, and without changing anything.

Owns what is told. Leaves which component cures which distribution to its caller, and what is done about a refused pod
to ``decide``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topomend.check.finding import NAMES_SHOWN
from topomend.decide.eligibility import REASONS, Eligibility, Limits, Treatment, eligibility
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.pods.scheduling import WatchedPod, is_refusal
from topomend.replay.gates import minor_of, read_gates

CONFIGZ_MINOR = 33
"""Kubelets of this minor version on tell their configuration to whoever has the right nodes/configz (KEP-2862)."""

TOLD = "their kubelets tell their settings, if the gate KubeletFineGrainedAuthz is on as by default"

TO_PODS = (
    "every pod that a kubelet refuses for its topology is explained in an Event",
    "refused bare pods are deleted and created again, and those of ReplicaSets and ReplicationControllers deleted",
    "after a refusal the controller's next pods wait gated; so do all in namespaces labelled topomend.io/steer=enabled",
    "preemption is on: pods of lower priority are evicted, within their budgets, for a gated pod that finds no node",
    "no running pod is moved, and no failed pod of a Job, DaemonSet or StatefulSet is deleted",
)
"""What the manifests switch on."""

TO_HAVE_NONE = (
    "to have only the Events, add the component observe (chart: mode=observe); docs/run/effects.md has the rest"
)


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A Node: the release of its kubelet, its image of an operating system, whether that is Linux.

    ``cure`` is what to do if its kubelet does not tell its settings.
    """

    name: str
    release: str
    os_image: str = ""
    linux: bool = True
    cure: str = ""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes of one release and image, and how an agent would learn their kubelets' settings."""

    release: str
    os_image: str
    nodes: tuple[str, ...]
    settings: str

    @property
    def is_read(self) -> bool:
        """Whether the base suffices."""
        return self.settings == TOLD


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A pod that a kubelet has refused for its topology, and what would have been done about it."""

    namespace: str
    name: str
    reason: str
    treatment: Treatment
    why: str


def kinds_of(nodes: Iterable[KnownNode]) -> tuple[NodeKind, ...]:
    """The nodes by kind, the most frequent first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        groups.setdefault((node.release, node.os_image, _settings_of(node)), []).append(node.name)
    kinds = [NodeKind(release, image, tuple(names), how) for (release, image, how), names in groups.items()]
    return tuple(sorted(kinds, key=lambda kind: -len(kind.nodes)))


def _settings_of(node: KnownNode) -> str:
    if not node.linux:
        return "no agent runs there: it is not Linux"
    unknown = read_gates(KubeletSettings(version=node.release)).unmodelled
    if unknown:
        return f"replay is not exact: {unknown[0]}"
    is_told = minor_of(node.release) >= CONFIGZ_MINOR
    return TOLD if is_told else f"their kubelets do not tell their settings: {node.cure}"


def refused_pods(pods: Iterable[WatchedPod]) -> tuple[RefusedPod, ...]:
    """Those of ``pods`` that a kubelet refused for their topology, by name. Annotations of namespaces do not count."""
    refused = [pod for pod in pods if is_refusal(pod) and pod.reason in REASONS]
    ordered = sorted(refused, key=lambda pod: (pod.namespace, pod.name))
    return tuple(_refused(pod, eligibility(pod, Limits())) for pod in ordered)


def _refused(pod: WatchedPod, its: Eligibility) -> RefusedPod:
    return RefusedPod(pod.namespace, pod.name, pod.reason, its.treatment, its.reason)


_TREATMENTS = {
    Treatment.RELAUNCH: "would be relaunched on a node that admits it",
    Treatment.CLEAR: "would be deleted for its controller, whose next pods would wait gated",
    Treatment.LEAVE: "would be explained and left alone",
}


def lines(
    release: str,
    kinds: Sequence[NodeKind],
    refused: Sequence[RefusedPod],
    objects: Mapping[str, int],
    *,
    policies: bool,
) -> Iterator[str]:
    """The whole answer for people."""
    by = "MutatingAdmissionPolicies, and webhooks beside two of them" if policies else "webhooks, which fail open"
    yield f"Kubernetes {release}; new pods would be gated and stamped by {by}"
    yield "Nodes:"
    for kind in kinds:
        shown = ", ".join(kind.nodes[:NAMES_SHOWN]) + (", ..." if len(kind.nodes) > NAMES_SHOWN else "")
        yield f"  {len(kind.nodes)} of {kind.release}, {kind.os_image or 'unknown system'} ({shown}): {kind.settings}"
    yield f"Objects: {', '.join(f'{count} {kind}' for kind, count in sorted(objects.items()))}"
    yield "To pods:"
    yield from (f"  {text}" for text in TO_PODS)
    yield f"Refused pods that are still there: {len(refused)}"
    for pod in refused:
        yield f"  {pod.namespace}/{pod.name} ({pod.reason}): {_TREATMENTS[pod.treatment]}: {pod.why}"
    yield TO_HAVE_NONE


def counted(documents: Iterable[Mapping[str, object]]) -> dict[str, int]:
    """How many objects of each kind are installed."""
    return dict(Counter(str(document.get("kind")) for document in documents))
