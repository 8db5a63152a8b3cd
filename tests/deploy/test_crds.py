import json
import random
from dataclasses import replace
from typing import Any

import pytest
from deploy.manifests import CRDS, crd_schema
from tests.deploy.api import API, path_of
from tests.deploy.random_state import monster, random_claims, random_conditions, random_state, random_summary
from tests.deploy.schema import complaints, fields, paths
from tests.seeds import SEED

from topomend.model.condition import Condition
from topomend.model.nodes.node_state import NodeState
from topomend.model.relaunch_record import NodeVerdict, Relaunch, Step
from topomend.runtime.manifests import documents
from topomend.wire.published.node_topology import HEARTBEAT, node_topology, read_node_topology, status_of
from topomend.wire.relaunch_record import MAX_TEXT, manifest_status, relaunch_object, relaunch_status

NODE_TOPOLOGY = crd_schema("nodetopologies")
BRAKE = crd_schema("brakes")
STEERING = crd_schema("steerings")
RELAUNCH = crd_schema("relaunches")
NOW = "2026-01-02T03:04:05Z"


def seeded() -> random.Random:
    return random.Random(SEED)


def published(state: NodeState, rng: random.Random) -> dict[str, Any]:
    status = status_of(state, random_summary(rng), random_conditions(rng), random_claims(rng))
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = NOW  # the writer's part
    return node_topology(state.name, status | {HEARTBEAT: NOW})  # and this


def relaunch(step: Step) -> dict[str, Any]:
    record = Relaunch(
        namespace="default",
        name="train-9-7c2f1d0e55",
        pod_name="train-9",
        pod_uid="0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11",
        refused_by="node-1",
        reason="TopologyAffinityError",
        message="é" * 2 * MAX_TEXT,
        attempt=1,
        step=step,
        new_name="train-9",
        new_uid="5f5f9e6e-7d6c-4b39-8f4e-2f9a36a3b1a1",
        candidates=tuple(f"node-{index}" for index in range(100)),
        verdicts=tuple(
            NodeVerdict(f"node-{index}", index == 0, "OutOfvendor.com/gpu", "x" * 5000) for index in range(20)
        ),
        counts={f"Reason{index}": index for index in range(100)},
        start_time=NOW,
        launched_time=NOW,
        conditions=(Condition("Succeeded", "Unknown", "UnschedulablePods", "", NOW),),
        manifest_hash="0f" * 32,
        own_name="train-9-r1",
    )
    manifest = {"metadata": {"name": "train-9"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return relaunch_object(record) | {"status": relaunch_status(record) | manifest_status(manifest)}


def test_every_node_that_is_written_is_allowed_and_every_field_allowed_is_written_by_some_node() -> None:
    rng = seeded()
    written: set[str] = set()
    for state in [random_state(rng) for _ in range(300)]:
        topology = published(state, rng)
        assert list(complaints(topology["status"], NODE_TOPOLOGY["properties"]["status"])) == []
        assert set(read_node_topology(topology).devices) == set(state.devices)
        written.update(paths(topology, NODE_TOPOLOGY))
    allowed = {path for path, _ in fields(NODE_TOPOLOGY)} - {".status.conditions[].observedGeneration"}
    assert allowed - written == set()


def test_a_monster_of_a_node_is_allowed_and_small_enough_for_etcd() -> None:
    rng = seeded()
    topology = published(monster(rng), rng)
    assert list(complaints(topology["status"], NODE_TOPOLOGY["properties"]["status"])) == []
    assert len(json.dumps(topology, separators=(",", ":"))) < 1 << 20  # etcd refuses a request of 1.5 MiB


def test_a_field_the_schema_does_not_know_is_found_out() -> None:
    rng = seeded()
    topology = published(random_state(rng), rng)
    topology["status"]["machine"]["numaNodes"][0]["color"] = "red"
    topology["status"]["summary"]["devices"] = -1
    assert list(complaints(topology["status"], NODE_TOPOLOGY["properties"]["status"], "status")) == [
        "status.summary.devices: -1 is out of range",
        "status.machine.numaNodes[].color: not in the schema",
    ]


@pytest.mark.parametrize("step", Step)
def test_every_relaunch_record_that_is_written_is_allowed(step: Step) -> None:
    assert list(complaints(relaunch(step)["spec"], RELAUNCH["properties"]["spec"])) == []
    assert list(complaints(relaunch(step)["status"], RELAUNCH["properties"]["status"])) == []


def test_every_field_of_a_relaunch_record_is_written() -> None:
    allowed = {path for path, _ in fields(RELAUNCH)} - {".status.conditions[].observedGeneration"}
    assert allowed - set(paths(relaunch(Step.LAUNCHED), RELAUNCH)) == set()


@pytest.mark.parametrize(
    "schema", [NODE_TOPOLOGY, RELAUNCH, BRAKE, STEERING], ids=["NodeTopology", "Relaunch", "Brake", "Steering"]
)
def test_everything_in_a_schema_is_bounded_and_described(schema: dict[str, Any]) -> None:
    """Unbounded lists and strings make objects that etcd refuses and rules that cost too much to estimate."""
    for path, part in fields(schema):
        if path in {".apiVersion", ".kind", ".metadata"}:
            continue
        match part["type"]:
            case "string":
                assert "maxLength" in part or "enum" in part or part.get("format") == "date-time", path
            case "array":
                assert "maxItems" in part, path
                assert "x-kubernetes-list-type" in part, path
            case "integer":
                assert "minimum" in part, path
                assert part["format"] in {"int32", "int64"}, path
            case "object" if "additionalProperties" in part:
                assert "maxProperties" in part, path
        assert part.get("description") or path.endswith(("[]", "{}")), f"{path} has no description"


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_definition_stays_far_below_what_kubectl_can_keep_in_an_annotation(path: Any) -> None:
    assert len(json.dumps(documents(path.read_text())[0])) < 64 << 10


def test_the_machine_of_an_unready_node_may_be_missing() -> None:
    rng = seeded()
    state = replace(random_state(rng), devices=(), pods=(), memory=None)
    status = published(state, rng)["status"]
    del status["machine"], status["kubelet"]
    assert list(complaints(status, NODE_TOPOLOGY["properties"]["status"])) == []


@pytest.mark.cluster  # the same check by the real API server, which knows more of the schema than ours
def test_the_api_server_keeps_every_written_node_whole(admin: API) -> None:
    rng = seeded()
    for state in [*(random_state(rng) for _ in range(50)), monster(rng)]:
        topology = published(state, rng)
        topology["metadata"]["name"] = "deploy-tests-node"
        path = path_of(topology)
        assert admin.create(path.rpartition("/")[0], topology).allowed
        written = admin.patch(f"{path}/status", {"status": topology["status"]})
        assert written.allowed, written.message
        assert admin.get(path).content["status"] == topology["status"]
        assert admin.delete(path).allowed


@pytest.mark.cluster
def test_the_api_server_keeps_every_written_relaunch_record_whole(admin: API) -> None:
    for step in Step:
        record = relaunch(step)
        path = path_of(record)
        assert admin.create(path.rpartition("/")[0], record).allowed
        written = admin.patch(f"{path}/status", {"status": record["status"]})
        assert written.allowed, written.message
        stored = admin.get(path).content
        assert (stored["spec"], stored["status"]) == (record["spec"], record["status"])
        assert admin.delete(path).allowed


@pytest.mark.cluster
def test_the_api_server_refuses_a_field_that_no_schema_knows(admin: API) -> None:
    answer = admin.create(
        "/apis/topomend.io/v1alpha1/nodetopologies", node_topology("deploy-tests-node", {"color": "red"})
    )
    assert (answer.code, "unknown field" in answer.message) == (400, True)
