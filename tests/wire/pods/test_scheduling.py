from collections.abc import Mapping
from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.model.nodes.node import Taint
from topomend.model.pods.scheduling import NodeSelectorTerm, Owner, Requirement, Toleration
from topomend.wire.document import MalformedObject
from topomend.wire.group import ASKS_FOR_NODE
from topomend.wire.node import read_node
from topomend.wire.pods.scheduling import (
    MAX_AFFINITY_RULES,
    MAX_AFFINITY_VALUES,
    MAX_AMOUNTS,
    MAX_CLAIMS,
    MAX_CONTAINERS,
    MAX_RULES,
    read_watched_pod,
)

NOTHING: Mapping[str, Any] = {}


def pod(metadata: Mapping[str, Any] = NOTHING, **parts: Any) -> dict[str, Any]:
    """A Pod ``train/p`` of uid u and version 7, with ``spec`` and ``status`` as given."""
    return pod_manifest(**{"namespace": "train", "uid": "u", "resourceVersion": "7", **metadata}, **parts)


def test_a_node_is_read_with_its_labels_taints_totals_and_readiness() -> None:
    node = read_node(
        {
            "metadata": {"name": "gpu-01", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "7500m"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    assert (node.name, node.labels, node.unschedulable, node.ready) == ("gpu-01", {"zone": "a"}, True, True)
    assert node.taints == (Taint("gpu", "NoSchedule"),)
    assert node.allocatable == {"cpu": 7500}


def test_a_node_without_a_ready_condition_is_not_ready() -> None:
    assert not read_node({"metadata": {"name": "gpu-01"}}).ready


def test_a_refused_pod_is_read_with_its_node_and_its_owner() -> None:
    owners = [{"kind": "Config", "name": "c", "uid": "1"}]
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "2", "controller": True}
    watched = read_watched_pod(
        pod(
            metadata={"ownerReferences": [*owners, controller], "annotations": {"topomend.io/attempt": "2"}},
            spec={"nodeName": "gpu-01"},
            status={"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"},
        )
    )
    assert (watched.phase, watched.reason, watched.node) == ("Failed", "TopologyAffinityError", "gpu-01")
    assert watched.owner == Owner("ReplicaSet", "rs", "2", api_version="apps/v1")
    assert watched.attempt == 2


def _manager(*fields: str, subresource: str = "") -> dict[str, Any]:
    """One manager of a pod's fields, as the API server writes it."""
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {field: {} for field in fields}}}
    return entry | ({"subresource": subresource} if subresource else {})


@pytest.mark.parametrize(
    ("managers", "pinned"),
    [
        ([_manager("f:containers", "f:nodeName")], True),
        ([_manager("f:containers"), _manager("f:nodeName")], True),
        ([_manager("f:containers")], False),
        ([_manager("f:nodeName", subresource="status")], False),
        ([{"manager": "none"}], False),
        ([], False),
    ],
)
def test_who_wrote_a_pods_node_is_read_from_the_managers_of_its_fields(
    managers: list[dict[str, Any]], pinned: bool
) -> None:
    content = pod(metadata={"managedFields": managers}, spec={"nodeName": "gpu-01"})
    assert read_watched_pod(content).pinned is pinned
    del content["spec"]["nodeName"]
    assert not read_watched_pod(content).pinned


def test_where_a_pod_may_go_is_read_from_selector_affinity_and_tolerations() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    spec = {"nodeSelector": {"gpu": "yes"}, "affinity": affinity, "tolerations": [{"operator": "Exists"}]}
    placement = read_watched_pod(pod(spec=spec)).placement
    assert placement.node_selector == {"gpu": "yes"}
    assert placement.terms == (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)
    assert placement.tolerations == (Toleration(operator="Exists"),)


def test_a_count_that_is_none_is_ignored() -> None:
    watched = read_watched_pod(pod(metadata={"annotations": {"topomend.io/max-attempts": "many"}}))
    assert watched.max_attempts is None


def test_a_pod_without_uid_is_refused_by_name_of_the_field() -> None:
    with pytest.raises(MalformedObject, match=r"metadata\.uid: missing"):
        read_watched_pod(pod(metadata={"uid": None}))


@pytest.mark.parametrize(("spec", "priority"), [({}, 0), ({"priority": 7}, 7), ({"priority": -(1 << 31)}, -(1 << 31))])
def test_a_pod_has_the_priority_of_its_class(spec: dict[str, Any], priority: int) -> None:
    assert read_watched_pod(pod(metadata={"name": "p"}, spec=spec)).priority == priority


TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        ({"schedulerName": "default-scheduler", "volumes": [{"name": "scratch", "emptyDir": {}}]}, ()),
        ({"affinity": {"nodeAffinity": {}}}, ()),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}, ()),
        ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}, ("affinity",)),
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}, ("affinity",)),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, ("topologySpreadConstraints",)),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]}, ("volumes",)),
        ({"volumes": [{"name": "data", "ephemeral": {}}, {"name": "disk", "csi": {"driver": "d"}}]}, ("volumes",)),
        ({"initContainers": [{"name": "i", "ports": [{"hostPort": 80}]}]}, ("hostPort",)),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 1}, {"hostPort": 80}]}]}, ("hostPort",)),
        ({"resourceClaims": [{"name": "gpu"}], "schedulerName": "volcano"}, ("resourceClaims", "schedulerName")),
    ],
)
def test_what_only_the_scheduler_judges_is_named(spec: dict[str, Any], rules: tuple[str, ...]) -> None:
    content = pod(metadata={"name": "p", "namespace": "ns", "uid": "1"}, spec=spec)
    assert read_watched_pod(content).scheduler_rules == rules


def test_a_pod_names_its_claims_those_that_are_made_for_it_too() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "keys", "secret": {"secretName": "s"}},
    ]
    read = read_watched_pod(pod(metadata={"name": "p"}, spec={"volumes": volumes}))
    assert read.claims == ("shared", "p-scratch")
    assert read.placement.volumes is None, "where these are is not known yet"
    assert read_watched_pod(pod(metadata={"name": "p"}, spec={"volumes": volumes[2:]})).placement.volumes == ()


def test_of_the_name_of_a_claim_no_more_is_kept_than_tells_that_no_claim_has_it() -> None:
    volumes = [
        {"name": f"volume-{length}", "persistentVolumeClaim": {"claimName": "x" * length}} for length in (253, 1 << 20)
    ]
    read = read_watched_pod(pod(metadata={"name": "p"}, spec={"volumes": volumes}))
    assert read.claims == ("x" * 253, "x" * 254)


def test_of_a_pod_with_a_thousand_claims_few_are_kept() -> None:
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(1_000)]
    assert len(read_watched_pod(pod(metadata={"name": "p"}, spec={"volumes": volumes})).claims) == MAX_CLAIMS + 1


RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
ENDED = {"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}


@pytest.mark.parametrize(
    ("policy", "status", "ran"),
    [
        ("Never", {}, False),
        ("Never", {"containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}, False),
        ("Never", {"containerStatuses": [RUNNING]}, True),
        ("Never", {"initContainerStatuses": [ENDED], "containerStatuses": [{"state": {"waiting": {}}}]}, True),
        ("OnFailure", {"containerStatuses": [RUNNING]}, False),
        ("Always", {"containerStatuses": [ENDED]}, False),
    ],
)
def test_a_pod_that_restarts_no_container_ran_once_one_started(policy: str, status: dict[str, Any], ran: bool) -> None:
    metadata = {"name": "p", "namespace": "ns", "uid": "1"}
    assert read_watched_pod(pod(metadata=metadata, spec={"restartPolicy": policy}, status=status)).ran is ran


@pytest.mark.parametrize(
    ("of_pod", "own", "started", "ran"),
    [
        ("Always", {"c": "Never"}, "c", True),
        ("Always", {"c": "Never"}, "d", False),
        ("Never", {"c": "Always"}, "c", False),
        ("Never", {"c": "Always"}, "d", True),
        ("OnFailure", {"i": "Never"}, "i", True),
        ("Never", {"i": "Always"}, "i", False),
    ],
)
def test_a_containers_own_restart_policy_comes_before_its_pods(
    of_pod: str, own: dict[str, str], started: str, ran: bool
) -> None:
    containers: dict[str, list[dict[str, Any]]] = {"initContainers": [{"name": "i"}]}
    containers["containers"] = [{"name": "c"}, {"name": "d"}]
    for container in (*containers["initContainers"], *containers["containers"]):
        if container["name"] in own:
            container["restartPolicy"] = own[container["name"]]
    statuses = "initContainerStatuses" if started == "i" else "containerStatuses"
    content = pod(
        metadata={"name": "p", "namespace": "ns", "uid": "1"},
        spec={"restartPolicy": of_pod} | containers,
        status={statuses: [{"name": started} | ENDED]},
    )
    assert read_watched_pod(content).ran is ran


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.mark.parametrize(
    ("status", "unschedulable"),
    [
        ({}, False),
        ({"conditions": [UNSCHEDULABLE]}, True),
        ({"conditions": [{"type": "Ready", "status": "False"}, UNSCHEDULABLE]}, True),
        ({"conditions": [UNSCHEDULABLE | {"reason": "SchedulingGated"}]}, False),
        ({"conditions": [UNSCHEDULABLE | {"status": "True"}]}, False),
        ({"conditions": [UNSCHEDULABLE], "nominatedNodeName": "a"}, False),
    ],
)
def test_a_pod_is_unschedulable_once_the_scheduler_says_so_and_preempts_nothing(
    status: dict[str, Any], unschedulable: bool
) -> None:
    metadata = {"name": "p", "namespace": "ns", "uid": "1"}
    assert read_watched_pod(pod(metadata=metadata, status=status)).unschedulable is unschedulable


def test_what_the_operator_says_itself_is_not_the_schedulers_word() -> None:
    ours = UNSCHEDULABLE | {"message": f"{ASKS_FOR_NODE} no node admits it now."}
    metadata = {"name": "p", "namespace": "ns", "uid": "1"}
    asking = read_watched_pod(pod(metadata=metadata, status={"conditions": [ours]}))
    assert (asking.asks_for_node, asking.unschedulable) == (True, False)
    tried = UNSCHEDULABLE | {"message": "0/3 nodes are available: 3 Insufficient cpu."}
    called = read_watched_pod(pod(metadata=metadata, status={"conditions": [tried]}))
    assert (called.asks_for_node, called.unschedulable) == (False, True)


HOSTS = [f"node-{index}" for index in range(MAX_AFFINITY_VALUES)]


def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def on_hosts(names: list[str]) -> dict[str, Any]:
    return with_terms({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]})


def with_containers(number: int, amounts: int = 0) -> dict[str, Any]:
    requests = {f"example.com/{index}": "1" for index in range(amounts)}
    return {"containers": [{"name": f"c{index}", "resources": {"requests": requests}} for index in range(number)]}


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": f"k{index}", "operator": "Exists"} for index in range(MAX_RULES)]},
        {"nodeSelector": {f"l{index}": "x" for index in range(MAX_RULES + 1)}},
        {"schedulingGates": [{"name": f"g{index}"} for index in range(MAX_RULES + 1)]},
        on_hosts(HOSTS),
        with_terms(*({"matchExpressions": []} for _ in range(MAX_AFFINITY_RULES))),
        with_containers(MAX_CONTAINERS + 1),
        {"initContainers": with_containers(MAX_CONTAINERS + 1)["containers"]},
        with_containers(2, amounts=MAX_AMOUNTS // 2 + 1),
    ],
    ids=["tolerations", "node selector", "gates", "hosts", "terms", "containers", "init containers", "amounts"],
)
def test_a_pod_with_more_in_it_than_is_kept_is_left_alone(spec: dict[str, Any]) -> None:
    with pytest.raises(MalformedObject, match=r"spec\.\w+(\.\w+)?: more than \d+ \w+ or \d+ \w+"):
        read_watched_pod(pod(spec=spec))


def test_a_pod_of_as_many_containers_as_are_kept_is_read() -> None:
    assert len(read_watched_pod(pod(spec=with_containers(MAX_CONTAINERS, amounts=20))).pod.containers) == MAX_CONTAINERS


def test_a_pod_that_was_narrowed_to_every_node_of_a_large_cluster_is_read() -> None:
    (term,) = read_watched_pod(pod(spec=on_hosts(HOSTS[:5_000]))).placement.terms or ()
    assert len(term.expressions[0].values) == 5_000
