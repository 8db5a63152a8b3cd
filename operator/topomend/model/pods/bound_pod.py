"""A pod that is bound to a node, with all that the kubelet's fit check reads of it."""

from dataclasses import dataclass, field

from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container takes. An empty ``ip`` is every address, an empty ``protocol`` TCP.

    ``sidecar`` is whether the container is one.
    """

    port: int
    ip: str = ""
    protocol: str = ""
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on its node.

    - ``node``: ``spec.nodeName``; empty where none is written.
    - ``host_ports``: of sidecars and app containers.
    - ``os``: ``spec.os.name``; ``os_label`` is the pod's own label ``kubernetes.io/os``, None without one.
    - ``strict_groups``: its ``supplementalGroupsPolicy`` is Strict.
    - ``static``: it comes from a file or URL and not from the API server.
    - ``critical``: the kubelet evicts others for it (pkg/kubelet/types:IsCriticalPod).
    - ``by_claim``: containers and extended resources that a claim provides in the place of a device plugin.
    """

    pod: Pod
    placement: Placement = field(default_factory=Placement)
    node: str = ""
    host_ports: tuple[HostPort, ...] = ()
    os: str = ""
    os_label: str | None = None
    strict_groups: bool = False
    static: bool = False
    critical: bool = False
    by_claim: frozenset[tuple[str, str]] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.pod.namespace, self.pod.name
