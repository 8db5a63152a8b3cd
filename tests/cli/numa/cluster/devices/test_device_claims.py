"""``fit`` and ``explain`` of a pod with claims: nodes come first that have the devices where the CPUs would be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import TWO_NUMA_NODES, node_state, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of

from topomend.cli.kubectl_numa import numa
from topomend.cli.output.failures import NO, YES
from topomend.replay.admission import admit
from topomend.wire.pods.pod import read_pod

GPU, RESOURCE = "gpu.example.com", "example.com/gpu"
TEMPLATE = {
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": GPU}}]}}},
}
CLASS = {
    "metadata": {"name": GPU},
    "spec": {"extendedResourceName": RESOURCE, "selectors": [{"cel": {"expression": f"device.driver == '{GPU}'"}}]},
}


def slice_of(node: str, *numa_nodes: int) -> dict[str, Any]:
    devices = [
        {"name": f"gpu-{number}", "attributes": {"resource.kubernetes.io/numaNode": {"int": numa_node}}}
        for number, numa_node in enumerate(numa_nodes)
    ]
    spec = {"driver": GPU, "nodeName": node, "pool": {"name": node}, "devices": devices}
    return {"metadata": {"name": f"{node}-gpu"}, "spec": spec}


def train(**fields: Any) -> dict[str, Any]:
    content = pod_manifest(
        "train", "cpu=2 memory=1Mi", namespace="default", uid="train", status={"phase": "Pending"}, **fields
    )
    content["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return content


def three_nodes(*pods: dict[str, Any]) -> ServedLists:
    """Every kubelet would place the pod on NUMA node 0: a has no device, b has one elsewhere, c has one there."""
    cluster = cluster_of([node_state(TWO_NUMA_NODES, name=name) for name in "abc"], pods)
    cluster.items |= {
        "resourceslices": [slice_of("b", 1), slice_of("c", 0)],
        "deviceclasses": [CLASS],
        "resourceclaimtemplates": [TEMPLATE],
        "resourceclaims": [],
        **{plural: [] for plural in ("relaunches", "events", "namespaces")},
    }
    return cluster


APART = f"container c0 on NUMA 0; too few free devices of {GPU} are there: these would be apart"

CLAIMS_PREFERS = "with the component claims, a preferred node affinity names"

Ask = Callable[..., Result]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def asked(cluster: ServedLists, *arguments: str, documents: list[Any] | None = None) -> Result:
        file = tmp_path / "pod.yaml"
        file.write_text(yaml.safe_dump_all(documents or [train()]))
        words = [str(file) if argument == "FILE" else argument for argument in arguments]
        with kubeconfig_of(cluster, tmp_path) as kubeconfig:
            return CliRunner().invoke(numa, [*words, "--kubeconfig", str(kubeconfig)], catch_exceptions=False)

    return asked


def test_fit_counts_devices_and_begins_with_the_node_that_has_one_where_the_cpus_would_be(ask: Ask) -> None:
    answer = ask(three_nodes(), "fit", "-f", "FILE", "--replicas", "2", "-o", "json")
    nodes = json.loads(answer.stdout)["nodes"]
    assert [(each["node"], each["replicas"], each["bySharing"], each["limitedBy"]) for each in nodes] == [
        ("c", 1, {"together": 1}, "claims"),
        ("b", 1, {"apart": 1}, "claims"),
        ("a", 0, {}, "claims"),
    ]
    assert answer.exit_code == YES


def test_fit_says_so_in_words(ask: Ask) -> None:
    lines = ask(three_nodes(), "fit", "-f", "FILE").stdout.splitlines()
    assert lines[0].split() == ["NODE", "REPLICAS", "NUMA", "CLAIMS", "LIMITED-BY"]
    assert lines[1].split() == ["c", "1", "0:1", "together:1", "-"]
    assert lines[4:] == [
        f"c: its kubelet would place container c0 on NUMA 0; all free devices of {GPU} are there too",
        f"b: its kubelet would place {APART}",
        f"a: 0 of 0 devices of {GPU} are free, and request one needs 1",
        f"{CLAIMS_PREFERS} c: free devices of its claims are beside its CPUs there",
        "overall: 1 of 1 fit now",
    ]


def test_the_template_may_be_in_the_file_and_the_device_may_be_an_extended_resource(ask: Ask) -> None:
    cluster = three_nodes()
    cluster.items["resourceclaimtemplates"] = []
    missing = json.loads(ask(cluster, "fit", "-f", "FILE", "-o", "json").stdout)["nodes"]
    assert {tuple(each["bySharing"]) for each in missing} == {("unknown",)}
    answer = ask(cluster, "fit", "-f", "FILE", "-o", "name", documents=[TEMPLATE, train()])
    assert answer.stdout.split() == ["node/c", "node/b"]
    assert "passed over" not in answer.stderr
    extended = pod_manifest("train", f"cpu=2 memory=1Mi {RESOURCE}=1", namespace="default")
    assert ask(cluster, "fit", "-f", "FILE", "-o", "name", documents=[extended]).stdout.split() == ["node/c", "node/b"]


def test_a_device_that_another_claim_has_is_not_free(ask: Ask) -> None:
    cluster = three_nodes()
    result = {"request": "one", "driver": GPU, "pool": "c", "device": "gpu-0"}
    cluster.items["resourceclaims"] = [
        {"metadata": {"name": "other", "namespace": "x"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    ]
    assert ask(cluster, "fit", "-f", "FILE", "-o", "name").stdout.split() == ["node/b"]


def test_a_device_that_a_rule_taints_is_not_free(ask: Ask) -> None:
    cluster = three_nodes()
    spec = {"deviceSelector": {"pool": "c"}, "taint": {"key": "broken", "effect": "NoSchedule"}}
    cluster.items["devicetaintrules"] = [{"metadata": {"name": "broken"}, "spec": spec}]
    assert ask(cluster, "fit", "-f", "FILE", "-o", "name").stdout.split() == ["node/b"]


def test_a_slice_that_cannot_be_read_makes_its_own_devices_unknown_alone(ask: Ask) -> None:
    cluster = three_nodes()
    cluster.items["resourceslices"][0]["spec"]["devices"][0]["attributes"] = {"numaNode": {"int": "one"}}
    nodes = json.loads(ask(cluster, "fit", "-f", "FILE", "-o", "json").stdout)["nodes"]
    assert {each["node"]: tuple(each["bySharing"]) for each in nodes} == {
        "a": (),
        "b": ("unknown",),
        "c": ("together",),
    }
    said = ask(cluster, "fit", "-f", "FILE").stdout
    assert f"b: where the devices of its claims would be is unknown: {GPU}: its ResourceSlice b-gpu cannot be" in said


def sharings(ask: Ask, cluster: ServedLists) -> dict[str, tuple[str, ...]]:
    nodes = json.loads(ask(cluster, "fit", "-f", "FILE", "-o", "json").stdout)["nodes"]
    return {each["node"]: tuple(each["bySharing"]) for each in nodes}


KNOWN = {"a": (), "b": ("apart",), "c": ("together",)}

OF_OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "DeviceClass other": ("deviceclasses", {"spec": {"selectors": "all"}}),
    "DeviceClass other of nothing": ("deviceclasses", {"spec": {"selectors": [7], "extendedResourceName": 7}}),
    "DeviceTaintRule other": (
        "devicetaintrules",
        {"spec": {"deviceSelector": {"driver": "other.com"}, "taint": {"key": 7}}},
    ),
    "DeviceTaintRule other of nothing": ("devicetaintrules", {"spec": {"deviceSelector": "all", "taint": {}}}),
    "ResourceSlice other": (
        "resourceslices",
        {"spec": {"driver": "other.com", "nodeName": "c", "pool": {"name": "c", "generation": "new"}, "devices": 7}},
    ),
    "ResourceSlice other of nothing": ("resourceslices", {"spec": {"driver": 7, "pool": [], "devices": []}}),
    "ResourceClaim other": (
        "resourceclaims",
        {"status": {"allocation": {"devices": {"results": [{"driver": 7, "pool": "c", "device": "gpu-0"}]}}}},
    ),
}
"""A broken object by its kind and name, its plural, and what it says; none of it is about the pod's devices."""


@pytest.mark.parametrize("named", OF_OTHERS)
def test_a_broken_object_is_named_and_loses_nothing_else(named: str, ask: Ask) -> None:
    cluster, (plural, content) = three_nodes(), OF_OTHERS[named]
    cluster.items[plural] = [*cluster.items.get(plural, ()), {"metadata": {"name": "other"}, **content}]
    assert sharings(ask, cluster) == KNOWN
    assert f"{named.removesuffix(' of nothing')} cannot be read: " in ask(cluster, "fit", "-f", "FILE").stderr


def test_a_class_that_cannot_be_read_is_named_where_its_claims_are_unknown(ask: Ask) -> None:
    cluster = three_nodes()
    cluster.items["deviceclasses"] = [CLASS | {"spec": {"selectors": [{"cel": {"expression": 7}}]}}]
    assert set(sharings(ask, cluster).values()) == {("unknown",)}
    assert f"is unknown: DeviceClass {GPU} cannot be read: " in ask(cluster, "fit", "-f", "FILE").stdout


def test_a_rule_whose_taint_cannot_be_read_makes_the_devices_unknown_that_it_selects(ask: Ask) -> None:
    cluster = three_nodes()
    spec = {"deviceSelector": {"pool": "c"}, "taint": {"key": 7, "effect": "NoSchedule"}}
    cluster.items["devicetaintrules"] = [{"metadata": {"name": "broken"}, "spec": spec}]
    assert sharings(ask, cluster) == KNOWN | {"c": ("unknown",)}
    assert "DeviceTaintRule broken cannot be read: " in ask(cluster, "fit", "-f", "FILE").stdout


@pytest.mark.parametrize("field", ["generation", "resourceSliceCount"])
def test_a_slice_of_an_unreadable_pool_makes_that_pool_unknown_alone(field: str, ask: Ask) -> None:
    cluster = three_nodes()
    cluster.items["resourceslices"][1]["spec"]["pool"][field] = "many"
    assert sharings(ask, cluster) == KNOWN | {"c": ("unknown",)}


def test_a_claim_that_cannot_be_read_makes_its_own_device_alone_not_free(ask: Ask) -> None:
    cluster = three_nodes()
    result = {"request": "one", "driver": GPU, "pool": "c", "device": "gpu-0", "consumedCapacity": {"memory": "many"}}
    cluster.items["resourceclaims"] = [
        {"metadata": {"name": "other", "namespace": "x"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    ]
    assert ask(cluster, "fit", "-f", "FILE", "-o", "name").stdout.split() == ["node/b"]
    cluster.items["resourceslices"][1]["spec"]["devices"][0] |= {"allowMultipleAllocations": True}
    nodes = json.loads(ask(cluster, "fit", "-f", "FILE", "-o", "json").stdout)["nodes"]
    assert {each["node"]: tuple(each["bySharing"]) for each in nodes} == {"a": (), "b": ("apart",), "c": ("unknown",)}


def test_a_user_who_may_not_list_claims_is_told_that_nothing_is_known_of_free_devices(ask: Ask) -> None:
    cluster = three_nodes()
    cluster.forbidden = {"resourceclaims"}
    answer = ask(cluster, "fit", "-f", "FILE", "-o", "json")
    nodes = json.loads(answer.stdout)["nodes"]
    assert {(each["replicas"], tuple(each["bySharing"])) for each in nodes} == {(1, ("unknown",))}
    assert "which devices are free cannot be read: 403" in nodes[0]["claims"]


def test_explain_names_the_best_node_first_and_none_without_a_device(ask: Ask) -> None:
    answer = ask(three_nodes(train()), "explain", "pod/train")
    assert answer.exit_code == YES
    assert answer.stdout.splitlines()[:5] == [
        "c NUMA 0, b NUMA 0 would admit it now",
        f"  c: its kubelet would place container c0 on NUMA 0; all free devices of {GPU} are there too",
        f"  b: its kubelet would place {APART}",
        f"  a: 0 of 0 devices of {GPU} are free, and request one needs 1",
        f"  {CLAIMS_PREFERS} c: free devices of its claims are beside its CPUs there",
    ]
    record = json.loads(ask(three_nodes(train()), "explain", "pod/train", "-o", "json").stdout)
    assert [(each["node"], each["claims"]["sharing"]) for each in record["nodes"]] == [
        ("c", "together"),
        ("b", "apart"),
        ("a", "noDevice"),
    ]


def test_explain_says_no_where_no_node_has_a_device(ask: Ask) -> None:
    cluster = three_nodes(train())
    cluster.items["resourceslices"] = []
    answer = ask(cluster, "explain", "pod/train")
    assert answer.exit_code == NO
    assert answer.stdout.splitlines()[0] == "no node that would admit it has the devices of its claims"
    assert ask(cluster, "explain", "pod/train", "--node", "a").exit_code == NO


def test_explain_leaves_to_the_scheduler_what_only_it_can_judge(ask: Ask) -> None:
    cluster = three_nodes(train())
    selectors = [{"cel": {"expression": f"device.driver != '{GPU}'"}}]
    cluster.items["deviceclasses"] = [CLASS | {"spec": {"selectors": selectors}}]
    lines = ask(cluster, "explain", "pod/train").stdout.splitlines()
    assert "  which of these can have its claims is for the scheduler to say" in lines
    assert any(f"only the scheduler evaluates the selectors of {GPU} and one" in line for line in lines)


@pytest.mark.parametrize("verb", [("explain", "pod/train"), ("fit", "-f", "FILE")], ids=lambda verb: verb[0])
def test_where_nothing_is_known_of_the_devices_it_is_said_that_no_node_is_preferred(
    verb: tuple[str, ...], ask: Ask
) -> None:
    unreadable, without_numa = three_nodes(train()), three_nodes(train())
    unreadable.forbidden = {"resourceslices"}
    without_numa.items["resourceslices"] = [slice_of("c", 0)]
    del without_numa.items["resourceslices"][0]["spec"]["devices"][0]["attributes"]
    for cluster in (unreadable, without_numa):
        said = ask(cluster, *verb).stdout
        assert f"{CLAIMS_PREFERS} no node: where the devices of its claims would be is unknown" in said


def running(**asked: str) -> dict[str, Any]:
    content = train(node="c")
    content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu", **asked}]
    content["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "c0", "state": {"running": {}}}],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu"}],
    }
    return content


def aligned(ask: Ask, pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What ``aligned`` tells of a container with CPUs on NUMA node 0 and a claim for devices on NUMA nodes 1 and 0."""
    state = admit(node_state(TWO_NUMA_NODES, name="c"), read_pod(pod))[1]
    cluster = cluster_of([state], [pod])
    results = [
        {"request": request, "driver": GPU, "pool": "c", "device": f"gpu-{number}"}
        for number, request in enumerate(("far", "near"))
    ]
    claim = {
        "metadata": {"name": "train-gpu", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    cluster.items |= {"resourceslices": [slice_of("c", 1, 0)], "resourceclaims": [claim], **fields.pop("items", {})}
    cluster.forbidden = fields.pop("forbidden", set())
    (container,) = json.loads(ask(cluster, "aligned", "-o", "json").stdout)["containers"]
    return dict(container)


def test_aligned_counts_the_devices_of_claims_by_the_requests_that_a_container_names(ask: Ask) -> None:
    whole = aligned(ask, running())
    assert (whole["alignment"], whole["numaNodes"]) == ("split", [0, 1])
    assert [held for held in whole["holds"] if held["claimed"]] == [
        {"resource": GPU, "numaNodes": [0, 1], "devices": ["gpu-0", "gpu-1"], "claimed": True}
    ]
    near = aligned(ask, running(request="near"))
    assert (near["alignment"], near["numaNodes"]) == ("numa-node", [0])


def test_aligned_says_why_it_does_not_know_a_container_with_claims(ask: Ask) -> None:
    def why(**fields: Any) -> str:
        container = aligned(ask, running(), **fields)
        assert container["alignment"] == "unknown"
        return str(container["unknown"]["message"])

    assert why(forbidden={"resourceclaims"}).startswith("resource claims cannot be read: 403")
    assert why(forbidden={"resourceslices"}).startswith("on which NUMA nodes the devices of claims are is unknown: 403")
    assert why(items={"resourceclaims": []}) == "the resource claim train-gpu does not exist"
