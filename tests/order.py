"""In which order the processes of ``make test`` take the groups of tests: the last ones end together, no CPU is idle.

A group is all tests of one sandbox, or of one file. Those with a sandbox wait half of their time, for kubelets and for
the clocks of Kubernetes; the others compute. So one that computes runs beside those that wait, from the first to the
last minute, and the longest begin first.
"""

from collections.abc import Mapping, Sequence

LONGEST = (
    "cluster",
    "two_nodes of controller",
    "two_nodes of others",
    "tests/drain/test_uninstall.py",
    "lopsided",
    "tests/live/test_selftest.py",
    "tests/sandbox/test_topomend.py",
    "tests/controller/test_never_worse.py",
    "messages of the kernel",
    "tests/drain/test_gone_for_good.py",
    "tests/gating/test_installer.py",
    "tests/check/test_seeded_faults.py",
    "tests/verify/differential/test_differential.py",
    "tests/live/test_agreement.py",
    "tests/verify/soak/test_soak.py",
    "tests/sandbox/test_teardown.py",
    "tests/gating/test_before_policies.py",
    "tests/deploy/components/test_components.py",
    "tests/sandbox/test_ordinary_user.py",
    "tests/examples/test_examples.py",
    "tests/agent/test_life.py",
    "tests/relaunch/test_protocol.py",
    "tests/verify/oracle/test_agreement.py",
    "tests/deploy/image/test_sbom.py",
    "tests/verify/oracle/random_cases/test_recorded.py",
    "tests/verify/oracle/test_fit.py",
    "tests/discover/test_fuzz.py",
    "tests/decide/diagnosis/test_feasibility.py",
    "tests/cli/numa/selftest/test_trials.py",
    "tests/deploy/release/kubectl_plugin/test_licences.py",
    "tests/replay/test_properties.py",
)
"""The groups that take more than ten seconds, the longest first: those with a sandbox, then the others."""


def in_turn(waits: Mapping[str, bool]) -> list[str]:
    """The names in the order in which to begin; ``waits`` tells of each group whether its tests have a sandbox."""
    by_length = sorted(waits, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    waiting = [name for name in by_length if waits[name]]
    computing = [name for name in by_length if not waits[name]]
    places = _spread(waiting, 0.0) | _spread(computing, 0.5)
    return sorted(places, key=places.__getitem__)


def _spread(names: Sequence[str], first: float) -> dict[str, float]:
    """Where each of them is on the way from 0 to 1. ``first`` is the part of a step before the first."""
    return {name: (number + first) / len(names) for number, name in enumerate(names)}
