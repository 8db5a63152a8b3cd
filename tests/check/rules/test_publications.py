"""Each fault of what an agent publishes is named by its code and by no other."""

import pytest
from tests.builders import node_state
from tests.check.cluster import READY, codes, condition, facts_of, findings, node_object, published, seen


def test_a_node_without_a_publication_is_named() -> None:
    state = node_state()
    assert codes(facts_of([node_object(state)]), "TM2") == {"TM201": ["a"]}
    empty = {"metadata": {"name": "a", "resourceVersion": "1"}}
    assert codes(facts_of([node_object(state)], [empty]), "TM2") == {"TM201": ["a"]}


def test_a_node_of_another_system_needs_no_agent() -> None:
    windows = node_object(node_state(), {"kubernetes.io/os": "windows"})
    assert codes(facts_of([windows]), "TM2") == {}


def test_a_publication_that_cannot_be_read_is_named_with_the_field() -> None:
    broken = published(node_state())
    broken["status"]["kubelet"]["topologyManagerPolicy"] = 7
    (finding,) = findings(facts_of([node_object(node_state())], [broken]), "TM2")
    assert finding.code == "TM202"
    assert "status.kubelet.topologyManagerPolicy" in finding.message


def test_an_agent_that_is_silent_is_named() -> None:
    facts = seen(node_state(), heartbeatTime="2026-01-01T10:00:00Z")
    assert codes(facts, "TM2") == {"TM203": ["a"]}


def test_a_publication_that_claims_more_than_its_node_has_is_named() -> None:
    facts = facts_of([node_object(node_state("cores:2"))], [published(node_state())])
    assert codes(facts, "TM2") == {"TM204": ["a"]}


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("TM205", "HostDiscovered", "HostUnreadable"),
        ("TM206", "KubeletConfigRead", "NotGiven"),
        ("TM207", "AllocationsRead", "PodResourcesUnavailable"),
    ],
)
def test_what_an_agent_could_not_read_is_named_with_its_own_words(code: str, kind: str, reason: str) -> None:
    not_ready = condition("Ready", "False", reason)
    facts = seen(node_state(), conditions=[not_ready, condition(kind, "False", reason, "apply deploy/components/x")])
    (finding,) = findings(facts, "TM2")
    assert (finding.code, finding.message) == (code, f"{reason}: apply deploy/components/x")


def test_an_agent_that_gives_another_reason_is_named_with_that() -> None:
    (finding,) = findings(seen(node_state(), conditions=[condition("Ready", "False", "New", "some day")]), "TM2")
    assert (finding.code, finding.message) == ("TM222", "its agent says New: some day")


def test_two_writers_of_zones_are_named() -> None:
    other = condition("NodeResourceTopologyPublished", "False", "OtherWriter", "nfd-worker writes it")
    (finding,) = findings(seen(node_state(), conditions=[READY, other]), "TM2")
    assert (finding.code, finding.message) == ("TM219", "nfd-worker writes it")


@pytest.mark.parametrize("kind", ["NodeResourceTopologyPublished", "NodeFeaturePublished"])
def test_a_component_that_publishes_nothing_is_named(kind: str) -> None:
    refused = condition(kind, "False", "KindNotInstalled", "the cluster has no such kind")
    (finding,) = findings(seen(node_state(), conditions=[READY, refused]), "TM2")
    assert (finding.code, finding.message) == ("TM223", "the cluster has no such kind")
