"""Eviction thresholds.

Source: pkg/kubelet/eviction/helpers.go:ParseThresholdConfig. It takes each map in Go's random order and stops at the
first fault: of several in one map it may name any.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping

from topomend.replay.startup import quantity
from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import InvalidText, duration_of, float32
from topomend.replay.startup.quantity import InvalidQuantity, Quantity

_SIGNALS = frozenset(
    {
        "memory.available",
        "allocatableMemory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "containerfs.available",
        "containerfs.inodesFree",
        "pid.available",
    }
)


def hard_thresholds(config: Configuration) -> Iterator[str]:
    """The thresholds at which pods are evicted at once."""
    yield from _faults(config, "evictionHard", _threshold)


def thresholds(config: Configuration) -> Iterator[str]:
    """All thresholds, with the grace periods of soft ones and how much is reclaimed."""
    steps = (
        hard_thresholds(config),
        _faults(config, "evictionSoft", _threshold),
        _faults(config, "evictionSoftGracePeriod", _grace_period),
        _faults(config, "evictionMinimumReclaim", _minimum_reclaim),
        _without_grace_period(config),
    )
    for step in steps:
        faults = [*step]
        if faults:
            yield from faults
            return


def _faults(config: Configuration, field: str, check: Callable[[str, str], str]) -> Iterator[str]:
    for signal, text in config.pairs(field).items():
        if signal not in _SIGNALS:
            yield f"unsupported eviction signal {signal}"
            continue
        try:
            fault = check(signal, text)
        except (InvalidQuantity, InvalidText) as error:
            fault = str(error)
        if fault:
            yield fault


def _percentage(text: str) -> float:
    """A float32, as a fraction of 1."""
    return _rounded(_rounded(float32(text.rstrip("%"))) / 100)


def _rounded(number: float) -> float:
    """The nearest float32."""
    if math.isnan(number) or math.isinf(number):
        return number
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def _threshold(signal: str, text: str) -> str:
    if text in ("0%", "100%"):
        return ""
    if text.endswith("%"):
        percentage = _percentage(text)
        if percentage < 0:
            return f"eviction percentage threshold {signal} must be >= 0%: {text}"
        return f"eviction percentage threshold {signal} must be <= 100%: {text}" if percentage > 1 else ""
    amount = quantity.parse(text)
    return f"eviction threshold {signal} must be positive: {amount}" if amount.nano <= 0 else ""


def _grace_period(_: str, text: str) -> str:
    if duration_of(text) < 0:
        return f"invalid eviction grace period specified: {text}, must be a positive value"
    return ""


def _minimum_reclaim(signal: str, text: str) -> str:
    if text.endswith("%"):
        fault = f"eviction percentage minimum reclaim {signal} must be positive: {text}"
        return fault if _percentage(text) <= 0 else ""
    return f"negative eviction minimum reclaim specified for {signal}" if quantity.parse(text).nano < 0 else ""


def _without_grace_period(config: Configuration) -> Iterator[str]:
    periods = config.pairs("evictionSoftGracePeriod")
    for signal, text in config.pairs("evictionSoft").items():
        if text not in ("0%", "100%") and signal not in periods:
            yield f"grace period must be specified for the soft eviction threshold {signal}"


def reserved_memory(hard: Mapping[str, str], capacity: int | None) -> Quantity | None:
    """The memory below which pods are evicted, of a machine with ``capacity`` bytes.

    None for a percentage of a machine that is not known. ``hard`` has passed ``hard_thresholds``.
    Source: pkg/kubelet/cm/helpers.go:hardEvictionReservation.
    """
    text = hard.get("memory.available", "0%")
    if text in ("0%", "100%"):
        return Quantity(0)
    if not text.endswith("%"):
        return quantity.parse(text)
    if capacity is None:
        return None
    share = _percentage(text)
    return Quantity(0 if math.isnan(share) else int(float(capacity) * share) * 10**9, quantity.BINARY_SI)
