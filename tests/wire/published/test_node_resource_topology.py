import pytest

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.zone import Zone, ZoneResource
from topomend.wire.published.node_resource_topology import FINGERPRINT, node_resource_topology

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
ZONES = [Zone(0, {0: 10, 2: 21}, (ZoneResource("memory", 98327445504, 97000000000, 5),)), Zone(2, {0: 21, 2: 10}, ())]


def attributes(settings: KubeletSettings) -> dict[str, str]:
    made = node_resource_topology("n1", OWNER, settings, ZONES, {FINGERPRINT: "pfp0v001ef46db3751d8e999"})
    return {attribute["name"]: attribute["value"] for attribute in made["attributes"]}


def test_zones_carry_the_names_and_units_that_consumers_parse() -> None:
    made = node_resource_topology("n1", OWNER, KubeletSettings(), ZONES, {})
    assert made["metadata"] == {"name": "n1", "ownerReferences": [OWNER]}
    assert made["zones"] == [
        {
            "name": "node-0",
            "type": "Node",
            "costs": [{"name": "node-0", "value": 10}, {"name": "node-2", "value": 21}],
            "resources": [
                {"name": "memory", "capacity": "98327445504", "allocatable": "97000000000", "available": "5"}
            ],
        },
        {
            "name": "node-2",
            "type": "Node",
            "costs": [{"name": "node-0", "value": 21}, {"name": "node-2", "value": 10}],
            "resources": [],
        },
    ]


def test_settings_are_attributes_under_the_kubelets_own_names() -> None:
    settings = KubeletSettings(
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "12"},
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        memory_manager_policy="Static",
    )
    assert attributes(settings) == {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "topologyManagerMaxNUMANodes": "12",
        "topologyManagerOptionPreferClosestNumaNodes": "true",
        "topologyManagerOptionMaxAllowableNumaNodes": "12",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptionFullPcpusOnly": "true",
        "memoryManagerPolicy": "Static",
        "nodeTopologyPodsFingerprint": "pfp0v001ef46db3751d8e999",
    }


@pytest.mark.parametrize(
    ("policy", "scope", "word"),
    [
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
        ("restricted", "container", "RestrictedContainerLevel"),
        ("best-effort", "pod", "BestEffortPodLevel"),
        ("none", "container", "None"),
    ],
)
def test_older_consumers_read_policy_and_scope_in_one_word(policy: str, scope: str, word: str) -> None:
    settings = KubeletSettings(topology_manager_policy=policy, topology_manager_scope=scope)
    assert node_resource_topology("n1", OWNER, settings, ZONES, {})["topologyPolicies"] == [word]
