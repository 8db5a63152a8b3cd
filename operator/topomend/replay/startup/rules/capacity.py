"""What is kept for the system is no more than the machine has.

Source: pkg/kubelet/cm/node_container_manager_linux.go:validateNodeAllocatable, which is asked when the container
manager starts, after all else here. The kubelet's sentence shows each amount as Go prints the struct; here it is the
amount as a configuration has it. Storage and process ids are left out: no machine here says how much it has.
"""

from collections.abc import Iterator

from topomend.replay.startup import quantity
from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.quantity import BINARY_SI, Quantity
from topomend.replay.startup.rules.run import kept_memory

_NANO = 10**9


def over_capacity(config: Configuration, cpus: int) -> str:
    """The kubelet's sentence on a machine with this many online CPUs and the host's memory; empty if it starts.

    The configuration has passed every check before.
    """
    amounts = [("cpu", _kept_cpus(config), Quantity(cpus * _NANO))]
    kept = kept_memory(config)
    if kept is not None and config.host.memory is not None:
        amounts.append(("memory", kept, Quantity(config.host.memory * _NANO, BINARY_SI)))
    wrong = " ".join(_exceeded(amounts))
    return f"invalid Node Allocatable configuration. {wrong}" if wrong else ""


def _exceeded(amounts: list[tuple[str, Quantity, Quantity]]) -> Iterator[str]:
    for resource, kept, capacity in amounts:
        if kept.nano > capacity.nano:
            yield (
                f'Resource "{resource}" has a reservation of {kept} but capacity of {capacity}. '
                "Expected capacity >= reservation."
            )


def _kept_cpus(config: Configuration) -> Quantity:
    """A list of reserved CPUs overrides the amounts, and has no CPU that the machine lacks."""
    if config.text("reservedSystemCPUs"):
        return Quantity(0)
    fields = ("systemReserved", "kubeReserved")
    return sum((quantity.parse(config.pairs(field).get("cpu", "0")) for field in fields), start=Quantity(0))
