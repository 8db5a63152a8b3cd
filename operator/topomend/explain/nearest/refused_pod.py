"""A refused pod on its node, and replays of it with one container changed.

Where containers are admitted one by one, a replay starts at the changed container: those before it are given what they
were given. Owns what all searches for one pod share. Leaves to ``search`` what is tried.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from topomend.explain.nearest.varied_amount import VariedAmount
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import ContainerKind, Pod
from topomend.model.quantity import MilliQuantity
from topomend.replay.admission import providers_of
from topomend.replay.container_manager import ContainerManager
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import KubeletBreaks
from topomend.replay.scopes import Admission, Providers, Scope
from topomend.replay.topology.policy_names import NONE


@dataclass
class RefusedPod:
    """A refused pod on its node. The pod's QoS class is set. All searches for it keep to ``effort``."""

    node: NodeState
    kubelet: ContainerManager
    pod: Pod
    effort: Effort = UNLIMITED
    _before: list[Providers | None] = field(default_factory=list)

    @cached_property
    def policy(self) -> str:
        """The Topology Manager's policy."""
        return self.node.kubelet.topology_manager_policy

    @cached_property
    def by_container(self) -> bool:
        """Whether containers are merged one by one, or not at all."""
        return self.policy == NONE or self.node.kubelet.topology_manager_scope == "container"

    @cached_property
    def fresh(self) -> Providers:
        """The managers before the pod."""
        return providers_of(self.kubelet, self.node, None, effort=self.effort)

    def before(self, position: int) -> Providers | None:
        """The managers after the containers before ``position``; None where one of these is refused.

        In scope pod nothing is given before the merge.
        """
        if not self.by_container:
            return self.fresh
        self._before = self._before or [self.fresh]
        while len(self._before) <= position:
            self._before.append(self._after(len(self._before) - 1))
        return self._before[position]

    def _after(self, position: int) -> Providers | None:
        """The managers after the container at ``position``, None where it is refused."""
        before = self._before[position]
        if before is None:
            return None
        providers = before.copy()
        upto = replace(self.pod, containers=self.pod.containers[: position + 1])
        return providers if _admits(self._admission(upto, providers, position)) else None

    def is_admitted_with(self, amount: VariedAmount, quantity: MilliQuantity) -> bool:
        """Whether the node would admit the pod with another ``quantity`` of the amount's resource."""
        return _admits(self.admission_with(amount, quantity))

    def admission_with(self, amount: VariedAmount, quantity: MilliQuantity) -> Admission | None:
        """The admission of the pod with another ``quantity``, from the container on that asks for it.

        Only by the manager of the amount where all others admit the pod whatever the amount is. None where a container
        before it is refused, or where the kubelet crashes or hangs.
        """
        before = self.before(amount.position)
        if before is None:
            return None
        if self.policy == NONE and self.refusing_providers <= {amount.provider}:
            before = before.only(amount.provider)
        return self._admission(amount.put_into(self.pod, quantity), before.copy(), amount.position)

    def _admission(self, pod: Pod, providers: Providers, first: int) -> Admission | None:
        settings, kubelet = self.node.kubelet, self.kubelet
        scope = Scope(
            settings.topology_manager_policy,
            kubelet.numa,
            kubelet.gates,
            providers,
            kubelet.strategy,
            traces=False,
        )
        try:
            return scope.admit(pod, settings.topology_manager_scope, first)
        except KubeletBreaks:
            return None

    @cached_property
    def refusing_providers(self) -> frozenset[str]:
        """The managers that refuse the pod by themselves. Known under policy none, where they share no affinity."""
        if self.policy != NONE:
            return frozenset()
        fresh = self.fresh.copy()
        alone = {name: self._admission(self.pod, fresh.only(name), 0) for name in fresh.managers()}
        return frozenset(name for name, admission in alone.items() if not _admits(admission))

    @cached_property
    def may_take_reserved_cpus(self) -> bool:
        """Whether init containers may leave reserved CPUs to the containers after them.

        On uneven cores the kubelet takes some with their cores.
        """
        cpu = self.kubelet.cpu
        has_init = any(container.kind is ContainerKind.INIT for container in self.pod.containers)
        return cpu is not None and not cpu.topology.is_even and has_init


def _admits(admission: Admission | None) -> bool:
    return admission is not None and admission.rejection is None
