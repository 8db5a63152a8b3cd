"""The kubelet's tests that replay cannot answer, each with the reason. Any other failure fails the run."""

import re
from dataclasses import dataclass

from verify.kubelet_tests.overlay import DEVICE, MEMORY, Function
from verify.kubelet_tests.run import Case


@dataclass(frozen=True)
class NotApplicable:
    """A case of a ``package``, and the only ``complaints`` that it may have: a pattern for each line of errors.

    It holds in the minor versions ``since`` to ``until``.
    """

    package: str
    case: str
    complaints: str
    reason: str
    since: int = 0
    until: int = 99


_PREFERENCE = "the plugin says which devices it prefers; replay asks no plugin, and takes the lowest ids"

NOT_APPLICABLE = (
    NotApplicable(DEVICE, "TestTopologyAlignedAllocation", ".* expected preferred allocation: .*", _PREFERENCE),
    NotApplicable(
        DEVICE,
        "TestGetPreferredAllocationParameters",
        ".* expected (available|mustInclude|size): .* but got: .*",
        _PREFERENCE,
    ),
    NotApplicable(
        DEVICE,
        "TestDevicesToAllocateRevalidatesPreferredDevices",
        "timed out waiting for the first GetPreferredAllocation call",
        _PREFERENCE,
        since=38,
    ),
    NotApplicable(
        MEMORY,
        "TestBestEffortPolicyAllocateFollowsCPUManager/has_exclusive_CPUs:_follows_CPU_manager,_no_hint_extension",
        r"expected memory block on NUMA nodes \[0\], got \[0 1\]",
        "the option skipExtend of policy BestEffort, which only kubelets on Windows have",
        since=37,
    ),
)

UNASKED = {
    "guaranteedCPUs": (35, "its callers are replaced too"),
    "memorymanager.GetPodTopologyHints": (33, "the kubelet has no test of it"),
}
"""The functions that no test calls up to a minor version, and why."""

_COMPLAINT = re.compile(r"\s+\w+_test\.go:\d+: (.*)\n")


def why_unasked(function: Function, minor: int) -> str:
    """Why no test of this minor version asks the function; empty if tests should."""
    until, reason = UNASKED.get(function.question, (0, ""))
    return reason if minor <= until else ""


def entry_for(case: Case, minor: int) -> NotApplicable | None:
    """The entry that says of the case that it fails; None if it must pass."""
    for entry in NOT_APPLICABLE:
        if (case.package, case.name) == (entry.package, entry.case) and entry.since <= minor <= entry.until:
            return entry
    return None


def reason_for(case: Case, minor: int) -> str:
    """Why the case need not pass; empty if it must, or if it has any other complaint."""
    entry = entry_for(case, minor)
    complaints = [found[1] for found in map(_COMPLAINT.fullmatch, case.output) if found]
    if entry is None or not complaints or not all(re.fullmatch(entry.complaints, each) for each in complaints):
        return ""
    return entry.reason
