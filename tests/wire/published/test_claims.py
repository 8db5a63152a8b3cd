"""The devices that containers have by claims, in a NodeTopology."""

import json
from typing import Any

import pytest
from tests.builders import node_state

from topomend.model.condition import Summary
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.wire.document import MalformedObject
from topomend.wire.published.claims import read_container_claims
from topomend.wire.published.node_topology import node_topology, read_node_topology, status_of

CLAIMS = (
    ContainerClaim("train", "p", "main", "gpu", "gpu.example.com", "node-1", ("gpu-0", "gpu-1")),
    ContainerClaim("train", "p", "side", "", "", "", ()),
)


def published(claims: tuple[ContainerClaim, ...]) -> Any:
    state = node_state()
    return json.loads(json.dumps(node_topology(state.name, status_of(state, Summary(), (), claims))))


def test_claims_survive_being_published_and_read() -> None:
    assert read_container_claims(published(CLAIMS)) == CLAIMS


def test_a_node_is_the_same_to_replay_with_claims_as_without() -> None:
    assert read_node_topology(published(CLAIMS)) == read_node_topology(published(()))


def test_an_agent_that_knows_no_claims_publishes_none() -> None:
    assert "claims" not in published(())["status"]
    assert read_container_claims(published(())) == ()


def test_a_malformed_claim_is_reported_with_its_path() -> None:
    content = published(CLAIMS)
    content["status"]["claims"][1]["pod"] = 3
    with pytest.raises(MalformedObject, match=r"status.claims\[1\].pod: 3 where a string belongs"):
        read_container_claims(content)
