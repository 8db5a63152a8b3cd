"""What is kept for the system: enforced reservations, reserved CPUs and reserved memory.

Source: pkg/kubelet/apis/config/validation/validation.go:ValidateKubeletConfiguration and validation_reserved_memory.go.
"""

from collections.abc import Iterator, Mapping

from topomend.replay.startup import quantity
from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import InvalidText, integer, quote
from topomend.replay.startup.rules.limits import INVALID

PODS, NONE = "pods", "none"
_SYSTEM, _KUBE = "system-reserved", "kube-reserved"
_COMPRESSIBLE = "-compressible"
_LIST = "enforceNodeAllocatable (--enforce-node-allocatable)"


def enforcement(config: Configuration) -> Iterator[str]:
    """Which reservations are enforced, with which cgroups."""
    named = config.texts("enforceNodeAllocatable")
    if config.minor >= 32:
        yield from _exclusive(named)
    seen: set[str] = set()
    for name in named:
        if config.minor >= 31 and name in seen:
            yield INVALID + f"duplicated enforcements {quote(name)} in {_LIST}"
        else:
            yield from _enforced(config, name, len(named))
        seen.add(name)


def _exclusive(named: list[str]) -> Iterator[str]:
    for name in (_SYSTEM, _KUBE):
        if name in named and name + _COMPRESSIBLE in named:
            yield (
                INVALID
                + f"both {quote(name)} and {quote(name + _COMPRESSIBLE)} cannot be specified together in {_LIST}"
            )


def _enforced(config: Configuration, name: str, number: int) -> Iterator[str]:
    if name == NONE:
        if number > 1:
            yield (INVALID + f"{_LIST} may not contain additional enforcements when {quote(NONE)} is specified")
        return
    if name not in _known(config.minor):
        yield INVALID + f"option {quote(name)} specified for {_LIST}. Valid options are {_options(config.minor)}"
        return
    if name != PODS:
        yield from _without_cgroup(config, name.removesuffix(_COMPRESSIBLE))
    if config.minor >= 31 and not config.flag("cgroupsPerQOS"):
        yield (
            INVALID + f"cgroupsPerQOS (--cgroups-per-qos) must be set to true when {quote(name)} contained in {_LIST}"
        )


def _known(minor: int) -> tuple[str, ...]:
    if minor < 32:
        return PODS, _SYSTEM, _KUBE
    return PODS, _SYSTEM, _SYSTEM + _COMPRESSIBLE, _KUBE, _KUBE + _COMPRESSIBLE


def _options(minor: int) -> str:
    between = ", or " if minor < 32 else " or "
    return ", ".join(map(quote, _known(minor))) + between + quote(NONE)


def _without_cgroup(config: Configuration, kind: str) -> Iterator[str]:
    field = "systemReservedCgroup" if kind == _SYSTEM else "kubeReservedCgroup"
    if config.text(field):
        return
    what = (
        f"{quote(kind)} contained" if config.minor < 32 else f"{quote(kind)} or {quote(kind + _COMPRESSIBLE)} included"
    )
    yield INVALID + f"{field} (--{kind}-cgroup) must be specified when {what} in {_LIST}"


def reserved_cpus(config: Configuration) -> Iterator[str]:
    """The list of reserved CPUs, which no cgroup of a reservation goes with."""
    cpus = config.text("reservedSystemCPUs")
    if not cpus:
        return
    if config.text("systemReservedCgroup") or config.text("kubeReservedCgroup"):
        yield (
            INVALID + "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup "
            "(--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
    if error := _not_a_list(cpus):
        yield INVALID + f"unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}"


def _not_a_list(cpus: str) -> str:
    """Why cpuset.Parse refuses the list; empty if it does not (k8s.io/utils cpuset/cpuset.go)."""
    try:
        return next((error for error in map(_not_a_range, cpus.split(",")) if error), "")
    except InvalidText as error:
        return str(error)


def _not_a_range(text: str) -> str:
    first, dash, last = text.partition("-")
    start = integer(first)
    if not dash:
        return ""
    end = integer(last)
    return f"invalid range {quote(text)} ({start} > {end})" if start > end else ""


def reserved_memory(config: Configuration) -> Iterator[str]:
    """The memory reserved on each NUMA node. The kubelet takes a reservation's resources in Go's random order."""
    reserved: set[tuple[int, str]] = set()
    for reservation in config.structs("reservedMemory"):
        node = reservation.number("numaNode")
        for resource, amount in sorted(_limits(reservation)):
            yield from _limit(node, resource, amount, (node, resource) in reserved)
            reserved.add((node, resource))


def _limits(reservation: Configuration) -> Iterator[tuple[str, quantity.Quantity]]:
    limits = reservation.content.get("limits")
    for resource, text in limits.items() if isinstance(limits, Mapping) else ():
        try:
            yield str(resource), quantity.parse(str(text))
        except quantity.InvalidQuantity:  # The loader has refused it.
            continue


def _limit(node: int, resource: str, amount: quantity.Quantity, again: bool) -> Iterator[str]:
    where = f"NUMA node {node} and resource {quote(resource)}"
    if resource != "memory" and not resource.startswith("hugepages-"):
        yield (
            INVALID + f"the limit type {quote(resource)} for NUMA node {node} is not supported, "
            "only [memory hugepages-<HugePageSize>] is accepted"
        )
    if amount.nano == 0:
        yield INVALID + f"reserved memory may not be zero for {where}"
    if again:
        yield INVALID + f"the reserved memory has a duplicate value for {where}"
