"""What a kubelet refuses after its configuration is valid, as far as settings alone decide it.

Source: cmd/kubelet/app/server.go:run and auth.go:BuildAuthz, pkg/kubelet/kubelet.go:NewMainKubelet,
pkg/kubelet/cm/container_manager.go:ParseQOSReserved, memorymanager/memory_manager.go:validateReservedMemory. What needs
the machine is in ``replay.container_manager``, state files are in ``state``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from topomend.replay.startup import quantity
from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import InvalidText, integer, quote
from topomend.replay.startup.quantity import InvalidQuantity, Quantity
from topomend.replay.startup.rules.eviction import hard_thresholds, reserved_memory, thresholds
from topomend.replay.startup.rules.pods import is_namespaced, normal_sysctl
from topomend.replay.startup.rules.tls import http2, tls

MEMORY = "memory"
_RESERVABLE = ("cpu", MEMORY, "ephemeral-storage", "pid")


STARTED_ONCE = "Started kubelet as runonce"
"""What a kubelet says that runs once."""


def runs_once(minor: int, content: Mapping[str, Any]) -> bool:
    """Whether a kubelet of 1.``minor`` starts the pods of its files, and ends. Since 1.32 it refuses to.

    Source: cmd/kubelet/app/server.go:run, pkg/kubelet/runonce.go (until 1.31).
    """
    return minor < 32 and content.get("runOnce") is True


def refusals(config: Configuration) -> tuple[str, ...]:
    """The sentences of the first check that fails.

    Where a check goes through a Go map, the kubelet names one of them.
    """
    checks = (
        tls(config),
        _authorization(config),
        _reserved(config, "kubeReserved", "--kube-reserved"),
        _reserved(config, "systemReserved", "--system-reserved"),
        hard_thresholds(config),
        _qos_reserved(config),
        _swap(config),
        _memory_manager(config),
        _sync_frequency(config),
        thresholds(config),
        _change_detection(config),
        _container_logs(config),
        _unsafe_sysctls(config),
        http2(config),
        _system_container(config),
    )
    return next((found for check in checks if (found := tuple(check))), ())


def _authorization(config: Configuration) -> Iterator[str]:
    mode = config.struct("authorization").text("mode")
    if mode not in ("", "Webhook", "AlwaysAllow"):
        yield f"unknown authorization mode {mode}"


def _reserved(config: Configuration, field: str, flag: str) -> Iterator[str]:
    """parseResourceList of what is reserved for the system."""
    for resource, text in _reservations(config, field).items():
        if fault := _fault_of(resource, text):
            yield f"{flag} value failed to parse: {fault}"


def _reservations(config: Configuration, field: str) -> dict[str, str]:
    """A list of reserved CPUs overrides the amounts, which are then not looked at."""
    reservations = config.pairs(field)
    if config.text("reservedSystemCPUs"):
        reservations.pop("cpu", None)
    return reservations


def _fault_of(resource: str, text: str) -> str:
    if resource not in _RESERVABLE:
        return f"cannot reserve {quote(resource)} resource"
    try:
        amount = quantity.parse(text)
    except InvalidQuantity as error:
        return f"failed to parse quantity {quote(text)} for {quote(resource)} resource: {error}"
    return f"resource quantity for {quote(resource)} cannot be negative: {text}" if amount.nano < 0 else ""


def _qos_reserved(config: Configuration) -> Iterator[str]:
    for resource, text in config.pairs("qosReserved").items():
        if resource != MEMORY:
            yield f"--qos-reserved value failed to parse: cannot reserve {quote(resource)} resource"
        elif fault := _not_a_percentage(text):
            yield (
                f"--qos-reserved value failed to parse: failed to parse percentage {quote(text)} for "
                f'"{MEMORY}" resource: {fault}'
            )


def _not_a_percentage(text: str) -> str:
    if not text.endswith("%"):
        return f"percentage expected, got '{text}'"
    try:
        percentage = integer(text.rstrip("%"))
    except InvalidText:
        return f"invalid number in percentage '{text}'"
    return "" if 0 <= percentage <= 100 else "percentage must be between 0 and 100"


def _swap(config: Configuration) -> Iterator[str]:
    limited = config.struct("memorySwap").text("swapBehavior") == "LimitedSwap"
    if config.host.cgroup_v1 and limited and config.enabled("NodeSwap"):
        yield "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"


def _memory_manager(config: Configuration) -> Iterator[str]:
    """What is reserved on NUMA nodes is what Node Allocatable keeps, for each kind of memory."""
    if config.text("memoryManagerPolicy") != "Static" or (config.minor < 32 and not config.enabled("MemoryManager")):
        return
    yield from [*_differences(config)] or _not_int64(config)


def _not_int64(config: Configuration) -> list[str]:
    """memory_manager.go:convertReserved."""
    limits = (
        limit for reservation in config.structs("reservedMemory") for limit in reservation.pairs("limits").values()
    )
    wrong = any(quantity.parse(limit).int64 is None for limit in limits)
    return ["could not covert a variable of type Quantity to int64"] if wrong else []


def _differences(config: Configuration) -> Iterator[str]:
    kept = kept_memory(config)
    reserved = _on_numa_nodes(config)
    for resource in sorted({*reserved, *([MEMORY] if kept is None or kept.nano else [])}):
        total, own = reserved.get(resource, Quantity(0)), kept if resource == MEMORY else Quantity(0)
        if own is not None and own.nano != total.nano:
            yield (
                f"the total amount {quote(str(total))} of type {quote(resource)} is not equal to the value "
                f"{quote(str(own))} determined by Node Allocatable feature"
            )


def kept_memory(config: Configuration) -> Quantity | None:
    """The memory that pods do not get; None if that depends on a machine that is not known.

    Raises InvalidQuantity or InvalidText where an amount is none, which an earlier check refuses.
    """
    eviction = reserved_memory(config.pairs("evictionHard"), config.host.memory)
    if eviction is None:
        return None
    amounts = (quantity.parse(config.pairs(field).get(MEMORY, "0")) for field in ("systemReserved", "kubeReserved"))
    return sum((*amounts, eviction), start=Quantity(0))


def _on_numa_nodes(config: Configuration) -> dict[str, Quantity]:
    totals: dict[str, Quantity] = {}
    for reservation in config.structs("reservedMemory"):
        for resource, text in reservation.pairs("limits").items():
            totals[resource] = quantity.parse(text) + totals.get(resource, Quantity(0))
    return totals


def _sync_frequency(config: Configuration) -> Iterator[str]:
    if config.number("syncFrequency") <= 0:
        yield f"invalid sync frequency {config.number('syncFrequency')}"


def _change_detection(config: Configuration) -> Iterator[str]:
    strategy = config.text("configMapAndSecretChangeDetectionStrategy")
    if strategy not in ("Watch", "Cache", "Get"):
        yield f"unknown configmap and secret manager mode: {strategy}"


def _container_logs(config: Configuration) -> Iterator[str]:
    failed = "failed to initialize container log manager: "
    files, size = config.number("containerLogMaxFiles"), config.text("containerLogMaxSize")
    if files <= 1:
        yield f"{failed}invalid MaxFiles {files}, must be > 1"
        return
    try:
        amount = quantity.parse(size)
    except InvalidQuantity as error:
        yield f"{failed}failed to parse container log max size {quote(size)}: {error}"
        return
    if amount.int64 is None:
        yield f"{failed}failed to parse container log max size {quote(size)}: invalid max log size"


_SEGMENT = "[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?"
_PATTERN = re.compile(rf"(?:{_SEGMENT}[./])*(?:[a-z0-9][-_a-z0-9]*)?[a-z0-9*]")
_PATTERN_IN_GO = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]"
_MAX_SYSCTL = 253


def _unsafe_sysctls(config: Configuration) -> Iterator[str]:
    """pkg/kubelet/sysctl/allowlist.go:NewAllowlist, which stops at the first fault."""
    for pattern in config.texts("allowedUnsafeSysctls"):
        if len(pattern) > _MAX_SYSCTL or not _PATTERN.fullmatch(pattern):
            yield (
                f"sysctl {quote(pattern)} must have at most {_MAX_SYSCTL} characters and match regex {_PATTERN_IN_GO}"
            )
            return
        prefix = normal_sysctl(pattern).partition("*")[0]
        if not is_namespaced(prefix, config.minor):
            yield f"the sysctls {quote(prefix)} are not known to be namespaced"
            return


def _system_container(config: Configuration) -> Iterator[str]:
    if config.text("systemCgroups") == "/":
        yield 'system container cannot be root ("/")'
