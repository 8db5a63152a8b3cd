"""Each release knows its own feature gates."""

import pytest

from topomend.replay.startup.feature_gates import FeatureGates, known_in, refusals


def test_a_gate_that_is_gone_is_unrecognized_by_the_kubelet_that_dropped_it() -> None:
    given = {"CPUManager": True}
    assert [*refusals(FeatureGates(30, given))] == []
    assert [*refusals(FeatureGates(37, given))] == ["unrecognized feature gate: CPUManager"]


def test_a_locked_gate_may_be_set_to_its_default_alone() -> None:
    assert [*refusals(FeatureGates(37, {"NodeSwap": True}))] == []
    assert [*refusals(FeatureGates(37, {"NodeSwap": False}))] == [
        "cannot set feature gate NodeSwap to false, feature is locked to true"
    ]


def test_a_gate_needs_those_it_depends_on_since_1_35() -> None:
    given = {"GracefulNodeShutdown": False}
    assert [*refusals(FeatureGates(34, given))] == []
    assert "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: " in " ".join(
        refusals(FeatureGates(37, given))
    )


def test_all_alpha_turns_on_what_is_not_set_itself() -> None:
    gates = FeatureGates(34, {"AllAlpha": True, "CustomCPUCFSQuotaPeriod": False})
    assert not gates.enabled("CustomCPUCFSQuotaPeriod")
    assert gates.enabled("KubeletCrashLoopBackOffMax")
    assert not gates.enabled("NoGateOfThisName")


@pytest.mark.parametrize("minor", range(30, 38))
def test_every_release_has_gates_of_its_own(minor: int) -> None:
    assert len(known_in(minor)) > 150
    assert {"AllAlpha", "AllBeta"} <= known_in(minor).keys()
