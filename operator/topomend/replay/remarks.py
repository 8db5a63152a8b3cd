"""Remarks on what replay does not model of a kubelet, of which each verdict of its node tells.

Most kubelets have none but those of their version. They are told without starting the managers, whose import takes
longer than all else of a drawing.
"""

from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay.gates import read_gates
from topomend.replay.memory.reservations import is_over_reserved, unreserved


def unmodelled(machine: Machine, settings: KubeletSettings) -> tuple[str, ...]:
    """Remarks on what replay does not model of this kubelet: those of its managers if it starts."""
    of_version = read_gates(settings).unmodelled
    if not _may_have_more(machine, settings):
        return of_version
    from topomend.replay.container_manager import start  # noqa: PLC0415

    kubelet = start(machine, settings)
    return of_version if isinstance(kubelet, str) else kubelet.unmodelled


def _may_have_more(machine: Machine, settings: KubeletSettings) -> bool:
    """Whether its managers may have remarks: on options of the Topology Manager, or on reserved memory."""
    if settings.topology_manager_policy_options:
        return True
    return any(map(is_over_reserved, unreserved(settings, machine).values()))
