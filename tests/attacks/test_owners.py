"""References to owners that strangers write brake nobody, fill no list and delay nobody, on a real API server."""

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.clusters import SYSTEM, Cluster, pod

from topomend.kube.errors import AlreadyExists, Invalid
from topomend.kube.resources import BRAKES, NAMESPACES, Resource
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.reconcile.refused import brake as brakes
from topomend.reconcile.refused.brake import MOST, Brake
from topomend.wire.group import BRAKE_NAME
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("brake_of_module")]

REPLICA_SETS = Resource("apps/v1", "replicasets")
CONFIG_MAPS = Resource("v1", "configmaps")
LABELS = {"app": "owners"}


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """An empty list."""
    with suppress(AlreadyExists):
        content = {"apiVersion": BRAKES.api_version, "kind": "Brake", "metadata": {"name": BRAKE_NAME}}
        two_nodes.client.create(BRAKES, content, SYSTEM)
    two_nodes.client.merge(BRAKES, BRAKE_NAME, {"owners": None}, SYSTEM)
    yield two_nodes
    two_nodes.client.merge(BRAKES, BRAKE_NAME, {"owners": None}, SYSTEM)


@pytest.fixture
def brake(cluster: Cluster) -> Brake:
    return Brake(cluster.client, SYSTEM, lambda: "")


@pytest.fixture
def victim(cluster: Cluster) -> Iterator[Owner]:
    """A ReplicaSet of the namespace default."""
    spec = {"replicas": 0, "selector": {"matchLabels": LABELS}}
    template = {"metadata": {"labels": LABELS}, "spec": pod("", 1)["spec"]}
    content = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "victim"}}
    made = cluster.client.create(REPLICA_SETS, content | {"spec": spec | {"template": template}}, "default")
    uid = made["metadata"]["uid"]
    yield Owner("ReplicaSet", "victim", uid, api_version="apps/v1")
    cluster.client.delete(REPLICA_SETS, "victim", "default", uid=uid)


def refused(owner: Owner, namespace: str = "default", **spec: Any) -> WatchedPod:
    """A refused pod with a reference to ``owner``, as its author wrote it."""
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    content = pod("p", 1, ownerReferences=[reference | {"controller": True}])
    content["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": namespace}
    content["spec"] |= spec
    return read_watched_pod(content)


def listed(cluster: Cluster) -> dict[str, str]:
    owners: dict[str, str] = cluster.client.get(BRAKES, BRAKE_NAME, SYSTEM).get("owners") or {}
    return owners


def test_a_controller_that_exists_is_braked(cluster: Cluster, brake: Brake, victim: Owner) -> None:
    assert brake.engage(refused(victim)) == ""
    assert listed(cluster) == {victim.uid: "default/ReplicaSet/victim"}


def test_namespaces_that_fill_the_list_together_keep_no_other_from_it(
    cluster: Cluster, brake: Brake, victim: Owner
) -> None:
    quiet = _braked_after(brake, victim)
    filled = {f"uid-{number}": f"evil-{number % 25}/ReplicaSet/r" for number in range(MOST)}
    cluster.client.merge(BRAKES, BRAKE_NAME, {"owners": None}, SYSTEM)
    cluster.client.merge(BRAKES, BRAKE_NAME, {"owners": filled}, SYSTEM)
    beside = _braked_after(Brake(cluster.client, SYSTEM, lambda: ""), victim)
    print(f"\nbraked after {beside:.3f} s beside {MOST} controllers of others, after {quiet:.3f} s beside none")
    now = listed(cluster)
    assert now[victim.uid] == "default/ReplicaSet/victim"
    assert len(now) == MOST
    assert len(filled.keys() - now.keys()) == 1


def _braked_after(brake: Brake, victim: Owner) -> float:
    began = time.monotonic()
    assert brake.engage(refused(victim)) == ""
    return time.monotonic() - began


def test_a_forged_reference_brakes_nobody(cluster: Cluster, brake: Brake, victim: Owner) -> None:
    forged = {
        "another namespace": refused(victim, "evil"),
        "another kind": refused(replace(victim, kind="StatefulSet")),
        "another group": refused(replace(victim, api_version="extensions.example.com/v1")),
        "a kind that is in no namespace": refused(Owner("Node", "numa-a", _uid(cluster), api_version="v1")),
        "another name": refused(replace(victim, name="other")),
        "another uid": refused(replace(victim, uid=str(uuid.uuid4()))),
        "no uid": refused(replace(victim, uid="x" * 400_000)),
        "a version that leads elsewhere": refused(replace(victim, api_version="../v1")),
    }
    for forgery, refused_pod in forged.items():
        assert (forgery, brake.engage(refused_pod), listed(cluster)) == (forgery, "", {})


def _uid(cluster: Cluster) -> str:
    return str(cluster.client.get(Resource("v1", "nodes", namespaced=False), "numa-a")["metadata"]["uid"])


def test_a_victim_that_is_braked_is_not_kept_braked_from_another_namespace(
    cluster: Cluster, brake: Brake, victim: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    brake.engage(refused(victim))
    monkeypatch.setattr(brakes, "QUIET_SECONDS", -1.0)
    brake.engage(refused(victim, "evil"))
    brake.release(())
    assert listed(cluster) == {}


@pytest.mark.parametrize("namespace", ["kube-system", "topomend-agent", "topomend-system"])
def test_what_topomend_needs_is_never_braked(cluster: Cluster, brake: Brake, victim: Owner, namespace: str) -> None:
    assert brake.engage(refused(victim, namespace)) == ""
    assert listed(cluster) == {}


@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_a_controller_of_pods_that_the_cluster_needs_is_never_braked(
    cluster: Cluster, brake: Brake, victim: Owner, name: str
) -> None:
    assert brake.engage(refused(victim, priorityClassName=name)) == ""
    assert listed(cluster) == {}


def test_a_namespace_cannot_crowd_out_anothers_controllers(
    cluster: Cluster, brake: Brake, victim: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brakes, "MOST_OF_A_NAMESPACE", 2)
    with suppress(AlreadyExists):
        cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}})
    problems = []
    for number in range(3):
        content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"owner-{number}"}}
        made = cluster.client.create(CONFIG_MAPS, content, "evil")["metadata"]
        owner = Owner("ConfigMap", made["name"], made["uid"], api_version="v1")
        problems.append(brake.engage(refused(owner, "evil")))
        cluster.client.delete(CONFIG_MAPS, made["name"], "evil", uid=made["uid"])
    assert problems == ["", "", "2 controllers of namespace evil are braked, which is the most"]
    assert brake.engage(refused(victim)) == ""
    assert len(listed(cluster)) == 3


def test_the_api_server_takes_no_list_that_outgrows_one_object(cluster: Cluster) -> None:
    for owners in (
        {"x" * 37: "ns/ReplicaSet/r"},
        {str(uuid.uuid4()): "x" * 401},
        {str(uuid.uuid4()): "" for _ in range(2_501)},
    ):
        with pytest.raises(Invalid):
            cluster.client.merge(BRAKES, BRAKE_NAME, {"owners": owners}, SYSTEM)
    full = {str(uuid.uuid4()): "x" * 400 for _ in range(2_500)}
    cluster.client.merge(BRAKES, BRAKE_NAME, {"owners": full}, SYSTEM)
