"""Where a claim's volume is, as the objects of both say."""

from typing import Any

import pytest

from topomend.model.pods.scheduling import NodeSelectorTerm, Requirement
from topomend.wire.document import MalformedObject
from topomend.wire.volume import (
    BOUND_ANNOTATION,
    MAX_VALUES,
    ZONE_LABELS,
    is_bound,
    is_ephemeral,
    is_of_claim,
    read_volume_name,
    read_volume_terms,
)


def volume(*terms: Any, **spec: Any) -> dict[str, Any]:
    affinity = {"required": {"nodeSelectorTerms": list(terms)}} if terms else None
    return {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": affinity, **spec}}


def in_zone(*zones: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}


def test_a_claim_names_its_volume_once_it_has_one() -> None:
    assert read_volume_name({"spec": {"volumeName": "disk"}}) == "disk"
    assert read_volume_name({"spec": {}}) == ""


def test_a_claim_that_names_a_volume_is_bound_once_its_controller_says_so() -> None:
    assert is_bound({"metadata": {"annotations": {BOUND_ANNOTATION: "yes"}}})
    assert not is_bound({"metadata": {"annotations": {"other": "yes"}}})
    assert not is_bound({"metadata": {}})


@pytest.mark.parametrize(
    ("reference", "is_its"),
    [
        ({"namespace": "ns", "name": "data"}, True),
        ({"namespace": "other", "name": "data"}, False),
        ({"namespace": "ns", "name": "other"}, False),
        (None, False),
    ],
)
def test_a_volume_is_of_the_claim_that_it_names_itself(reference: dict[str, str] | None, is_its: bool) -> None:
    assert is_of_claim(volume(claimRef=reference), "ns", "data") == is_its


def test_a_claim_is_ephemeral_for_the_pod_that_controls_it_alone() -> None:
    owner = {"kind": "Pod", "uid": "1", "controller": True}
    assert is_ephemeral({"metadata": {"ownerReferences": [owner]}}, "1")
    assert not is_ephemeral({"metadata": {"ownerReferences": [owner]}}, "2")
    assert not is_ephemeral({"metadata": {"ownerReferences": [owner | {"controller": False}]}}, "1")
    assert not is_ephemeral({"metadata": {}}, "1")


def test_the_terms_of_a_volume_are_read_all() -> None:
    by_field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert read_volume_terms(volume(in_zone("a", "b"), by_field)) == (
        NodeSelectorTerm((Requirement("zone", "In", ("a", "b")),)),
        NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n",)),)),
    )


def test_a_volume_without_node_affinity_is_on_every_node() -> None:
    assert read_volume_terms(volume()) is None
    assert read_volume_terms({"metadata": {}, "spec": {"nodeAffinity": {}}}) is None


def test_a_volume_whose_affinity_has_no_term_is_on_no_node() -> None:
    assert read_volume_terms({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}}) == ()


@pytest.mark.parametrize("label", ZONE_LABELS)
def test_where_a_volume_is_that_says_so_by_labels_alone_is_not_known(label: str) -> None:
    labelled = volume() | {"metadata": {"labels": {label: "a"}}}
    with pytest.raises(MalformedObject, match="a zone without a node affinity"):
        read_volume_terms(labelled)
    assert read_volume_terms(volume(in_zone("a")) | {"metadata": labelled["metadata"]})


@pytest.mark.parametrize(
    "content",
    [
        volume(in_zone(*map(str, range(MAX_VALUES + 1)))),
        volume(*[in_zone()] * (MAX_VALUES + 1)),
        volume({"matchExpressions": "zone"}),
        volume({"matchExpressions": [{"key": 7, "operator": "In"}]}),
        {"spec": {"nodeAffinity": []}},
        {"spec": "none"},
        [],
    ],
    ids=["values", "terms", "no list", "key", "no affinity", "no spec", "no object"],
)
def test_a_volume_with_too_much_in_it_or_that_is_malformed_is_refused(content: Any) -> None:
    with pytest.raises(MalformedObject):
        read_volume_terms(content)
