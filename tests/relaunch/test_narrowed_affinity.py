"""The operator's node affinity is distinguished from the user's."""

from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement, Toleration
from topomend.relaunch.manifest import launch
from topomend.relaunch.narrowed_affinity import as_asked, is_narrowed, narrowing_of, preferred_hosts
from topomend.wire.group import NARROWED, RELEASED_ANNOTATION
from topomend.wire.pods.scheduling import read_watched_pod

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def narrowed(user_terms: list[dict[str, Any]], *hosts: str) -> dict[str, Any]:
    """The node affinity of a pod with these terms once the operator has ungated it for these hosts."""
    return affinity_of(user_terms, Narrowing(hosts))


def affinity_of(user_terms: list[dict[str, Any]], narrowing: Narrowing) -> dict[str, Any]:
    """The same for any narrowing."""
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": user_terms}}} if user_terms else {}
    pod = read_watched_pod(pod_manifest("p", spec={"affinity": affinity}, namespace="ns", uid="1", resourceVersion="7"))
    node_affinity: dict[str, Any] = launch(pod, narrowing)["spec"]["affinity"]["nodeAffinity"]
    return node_affinity


@pytest.mark.parametrize("user_terms", [[], [{"matchExpressions": [ZONE]}]], ids=["no affinity", "a zone"])
@pytest.mark.parametrize("hosts", [("b",), ("b", "c", "d")], ids=["one host", "three hosts"])
def test_the_hosts_that_the_operator_named_are_found_and_taken_off(
    user_terms: list[dict[str, Any]], hosts: tuple[str, ...]
) -> None:
    node_affinity = narrowed(user_terms, *hosts)
    assert narrowing_of(node_affinity).hosts == hosts
    tolerations = (Toleration("gpu", "Exists"),)
    by_user = (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),) if user_terms else None
    assert as_asked(Placement({"disk": "ssd"}, None, tolerations), node_affinity) == Placement(
        {"disk": "ssd"}, by_user, tolerations
    )


@pytest.mark.parametrize("user_terms", [[], [{"matchExpressions": [ZONE]}]], ids=["no affinity", "a zone"])
@pytest.mark.parametrize("best", [(), ("b",)], ids=["no node known", "a best node"])
def test_the_hosts_that_the_operator_excluded_are_found_and_taken_off(
    user_terms: list[dict[str, Any]], best: tuple[str, ...]
) -> None:
    node_affinity = affinity_of(user_terms, Narrowing(best, ("c", "d")))
    narrowing = narrowing_of(node_affinity)
    assert (narrowing.hosts, narrowing.excluded) == ((), ("c", "d"))
    assert [narrowing.allows(host) for host in "bcde"] == [True, False, False, True]
    assert narrowing_of(node_affinity).hosts == ()
    by_user = (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),) if user_terms else None
    assert as_asked(Placement(), node_affinity) == Placement({}, by_user)


def test_an_affinity_of_the_user_names_no_hosts() -> None:
    assert narrowing_of({}).hosts == ()
    assert narrowing_of({REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}).hosts == ()


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [({RELEASED_ANNOTATION: NARROWED}, True), ({RELEASED_ANNOTATION: "x"}, False), (None, False)],
)
def test_only_a_pod_that_is_annotated_so_is_narrowed(annotations: dict[str, str] | None, expected: bool) -> None:
    assert is_narrowed(pod_manifest("p", annotations=annotations)) is expected


@pytest.mark.parametrize("preferred", [0, 1, 2])
def test_the_hosts_that_a_narrowed_pod_prefers_are_found(preferred: int) -> None:
    affinity = affinity_of([], Narrowing(("b", "c", "d"), preferred=preferred))
    assert preferred_hosts(affinity) == ("b", "c", "d")[: preferred or 1]
    assert preferred_hosts(narrowed([], "b")) == ()
