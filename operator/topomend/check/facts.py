"""The facts that the checks look at, read once: frozen values, and why some of them could not be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property

from topomend.alignment.running import RunningContainer
from topomend.cache.snapshot import Snapshot
from topomend.check.finding import Subject
from topomend.check.running_containers import judged
from topomend.model.condition import Condition
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.running_pod import RunningPod
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.replay.startup.configuration import Configuration


class Part(Enum):
    """What is read. The value is what a person calls it."""

    KINDS = "the kinds that the API server serves"
    OPERATORS = "Deployments"
    AGENTS = "DaemonSets"
    OWN_PODS = "topomend's pods"
    LEASE = "the operator's Lease"
    PARAMETERS = "Brake and Steering"
    WEBHOOKS = "webhook configurations"
    MUTATING_POLICIES = "MutatingAdmissionPolicies and their bindings"
    VALIDATING_POLICIES = "ValidatingAdmissionPolicies and their bindings"
    ROLE_BINDINGS = "ClusterRoleBindings"
    CERTIFICATE = "the webhook's certificate"
    RIGHTS = "the rights of topomend's accounts"
    NODES = "Nodes"
    TOPOLOGIES = "NodeTopologies"
    CPU_DRIVERS = "ResourceSlices"
    ADMISSION_CHECKS = "Kueue's AdmissionChecks"
    PODS = "Pods"
    GROUPS = "groups of pods"


@dataclass(frozen=True, slots=True)
class Kind:
    """One of topomend's kinds. ``lacking`` are fields of this version that the API server does not know of."""

    name: str
    served: bool = True
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """The operator's Deployment or the agents' DaemonSet.

    ``version`` is its label ``app.kubernetes.io/version``, empty without one. ``wanted``, ``ready`` and ``current``
    count pods; ``current`` are of the newest template. ``account`` is its service account. ``arguments`` are those of
    its container, and its variables as ``NAME=VALUE``.
    """

    subject: Subject
    version: str = ""
    image: str = ""
    wanted: int = 0
    ready: int = 0
    current: int = 0
    account: str = ""
    arguments: tuple[str, ...] = ()

    def value_of(self, flag: str, variable: str, default: str = "") -> str:
        """The value of a flag of its program, or of the variable that says the same; a flag counts more."""
        for prefix in (f"{flag}=", f"{variable}="):
            for argument in self.arguments:
                if argument.startswith(prefix):
                    return argument.removeprefix(prefix)
        return default


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod of topomend. ``trouble`` is why it is not ready, in words; empty where it is."""

    subject: Subject
    component: str
    node: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The operator's Lease: when it was renewed last by its holder's clock, None if never.

    ``is_alive`` is whether it was seen being renewed, which tells more than the clocks of two machines.
    """

    subject: Subject
    holder: str = ""
    renewed: datetime | None = None
    is_alive: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A Brake or a Steering: until when it is valid, None without a valid time; ``owners`` are braked controllers."""

    subject: Subject
    valid_until: datetime | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that API servers or their clients trust: until when, None where ``fault`` says why it is none."""

    subject: Subject
    until: datetime | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """An admission policy and its binding. ``parameter`` is the ClusterRoleBinding that the binding reads, or empty."""

    name: str
    bound: bool = False
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that an account of topomend should have. ``role`` is the shipped role that gives it."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""
    role: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {resource}{named}" + (f" in {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """An AdmissionCheck of Kueue that topomend is to answer, and whether its status says that it is answered."""

    subject: Subject
    active: bool = False


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """What a Node says of itself beside its amounts: its operating system, and the pool that it belongs to."""

    linux: bool = True
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """What of a NodeTopology no snapshot keeps: its conditions, and the PCI functions that matter here.

    ``numa_node_of`` is by PCI address, for functions that devices are named after. ``accelerators`` are the NUMA nodes
    of the machine's accelerators, one entry each. ``functions`` is how many PCI functions there are.
    """

    conditions: tuple[Condition, ...] = ()
    numa_node_of: Mapping[str, int] = field(default_factory=dict)
    accelerators: tuple[int, ...] = ()
    functions: int = 0

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True, slots=True)
class GroupOfPods:
    """A group in a namespace: how many pods it needs, None where nothing says so, and how many there are."""

    namespace: str
    group: PodGroup
    needed: int | None
    present: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that cannot be read, and why."""

    subject: Subject
    why: str


@dataclass(frozen=True)
class Configured:
    """A kubelet's configuration that is judged before a kubelet has it.

    ``state`` is an empty node with the machine and the settings, ``config`` the content with its defaults.
    ``refusals`` are the kubelet's sentences by which it does not start, ``passed_over`` what it leaves out in silence.
    ``is_read`` is whether every field could be read: if not, the refusals name those fields, and the settings have
    defaults in their place.
    """

    subject: Subject
    state: NodeState
    config: Configuration
    refusals: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    is_read: bool = True


@dataclass(frozen=True)
class Facts:
    """A cluster as the checks see it. ``unread``: the parts that could not be read, and why.

    ``now`` is the time by the operator's clock where that is known, or else by this machine's. ``version`` is the
    plugin's. ``webhooks`` are the webhook configurations by name and whether each has a webhook, ``mutating_policies``
    those by name and whether each is bound. ``shipped_policies`` are the validating policies of this version, each with
    the ClusterRoleBinding whose account it limits. ``denied`` are the rights that topomend's accounts lack.
    ``node_labels`` and ``published`` are by the node's name; ``cpu_drivers`` are nodes on which a DRA driver hands out
    CPUs. ``running`` are the pods that may look aligned, ``waiting`` those with a gate of topomend's. ``configured`` is
    what ``topomend lint`` judges, None for a cluster.
    """

    now: datetime
    version: str = ""
    unread: Mapping[Part, str] = field(default_factory=dict)
    malformed: tuple[Malformed, ...] = ()
    kinds: tuple[Kind, ...] = ()
    operators: tuple[Workload, ...] = ()
    agents: tuple[Workload, ...] = ()
    own_pods: tuple[OwnPod, ...] = ()
    lease: Lease | None = None
    parameters: tuple[Parameter, ...] = ()
    webhooks: Mapping[str, bool] = field(default_factory=dict)
    authorities: tuple[Authority, ...] = ()
    mutating_policies: Mapping[str, bool] = field(default_factory=dict)
    serves_mutating_policies: bool = True
    serves_claims: bool = True
    validating_policies: Mapping[str, Policy] = field(default_factory=dict)
    shipped_policies: Mapping[str, str] = field(default_factory=dict)
    role_bindings: frozenset[str] = frozenset()
    certificate: Authority | None = None
    denied: tuple[Right, ...] = ()
    snapshot: Snapshot = field(default_factory=Snapshot)
    node_labels: Mapping[str, NodeLabels] = field(default_factory=dict)
    published: Mapping[str, Publication] = field(default_factory=dict)
    cpu_drivers: frozenset[str] = frozenset()
    serves_kueue: bool = True
    admission_checks: tuple[AdmissionCheck, ...] = ()
    running: Sequence[RunningPod] = ()
    waiting: Sequence[WatchedPod] = ()
    groups: tuple[GroupOfPods, ...] = ()
    configured: Configured | None = None

    @cached_property
    def containers(self) -> tuple[tuple[NodeState, RunningContainer], ...]:
        """The running containers that several checks judge, each with its node's state."""
        return tuple(judged(self.snapshot, self.running))

    @property
    def operator(self) -> Workload | None:
        """The operator's Deployment; the first one where there are several."""
        return self.operators[0] if self.operators else None

    @property
    def observes(self) -> bool:
        """Whether the operator only observes."""
        return self.operator is not None and self.operator.value_of("--mode", "TOPOMEND_MODE") == "observe"

    def is_told(self, flag: str) -> bool:
        """Whether the operator has the flag of a component, such as ``--claims``, and its mode lets it do that."""
        return self.operator is not None and flag in self.operator.arguments and not self.observes

    @property
    def is_of_this_version(self) -> bool:
        """Whether the installation is of the plugin's version, as far as the operator's label says.

        What the manifests of another version install is not known here.
        """
        version = self.operator.version.removeprefix("v") if self.operator else ""
        return version in ("", self.version)

    @property
    def is_installed(self) -> bool:
        """Whether anything of topomend is there."""
        return any(kind.served for kind in self.kinds) or bool(self.operators or self.agents)
