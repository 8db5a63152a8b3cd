"""How a kubelet is configured: what admission depends on arrives, and nothing leaves loopback."""

from topomend.model.bitmask import mask_of
from topomend.model.nodes.kubelet import MemoryReservation
from topomend.sandbox.node.kubelet import kubelet_config, kubelet_flags
from topomend.sandbox.node.node_spec import NodeSpec

SHAPE = "sockets:1 numa:2 cores:4 memory:4Gi"


def test_the_managers_settings_are_the_nodes() -> None:
    spec = NodeSpec.of_shape(
        "a",
        SHAPE,
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_cpus=mask_of([0, 4, 5]),
    )
    config = kubelet_config(spec, port=20000, user_namespace=False)
    assert config["topologyManagerPolicy"] == "restricted"
    assert config["topologyManagerScope"] == "pod"
    assert config["topologyManagerPolicyOptions"] == {"prefer-closest-numa-nodes": "true"}
    assert config["cpuManagerPolicy"] == "static"
    assert config["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    assert config["reservedSystemCPUs"] == "0,4-5"


def test_a_named_option_brings_its_gates_and_the_nodes_own_gates_win() -> None:
    options = {"distribute-cpus-across-numa": "true"}
    gates = {"CPUManagerPolicyBetaOptions": False, "PodLevelResources": True}
    spec = NodeSpec.of_shape("a", SHAPE, cpu_manager_policy_options=options, feature_gates=gates)
    assert kubelet_config(spec, port=20000, user_namespace=True)["featureGates"] == {
        "CPUManagerPolicyAlphaOptions": True,
        "CPUManagerPolicyBetaOptions": False,
        "KubeletInUserNamespace": True,
        "PodLevelResources": True,
    }


def test_reserved_memory_sums_to_what_the_kubelet_reserves() -> None:
    reserved = (MemoryReservation(0, "memory", 512 << 20), MemoryReservation(1, "memory", 256 << 20))
    config = kubelet_config(NodeSpec.of_shape("a", SHAPE, reserved_memory=reserved), port=20000, user_namespace=False)
    assert config["kubeReserved"] == {"memory": str(768 << 20)}
    assert config["reservedMemory"] == [
        {"numaNode": 0, "limits": {"memory": str(512 << 20)}},
        {"numaNode": 1, "limits": {"memory": str(256 << 20)}},
    ]
    assert set(config["evictionHard"].values()) == {"0%"}


def test_a_memory_manager_that_is_off_has_no_reservations() -> None:
    config = kubelet_config(
        NodeSpec.of_shape("a", SHAPE, memory_manager_policy="None"), port=20000, user_namespace=False
    )
    assert "reservedMemory" not in config
    assert "kubeReserved" not in config


def test_millis_stand_where_no_cpus_are_named() -> None:
    spec = NodeSpec.of_shape("a", SHAPE, reserved_cpu_millis=1500)
    config = kubelet_config(spec, port=20000, user_namespace=False)
    assert "reservedSystemCPUs" not in config
    assert config["kubeReserved"]["cpu"] == "1500m"


def test_the_kubelet_listens_on_loopback_and_lets_nobody_in_unasked() -> None:
    config = kubelet_config(NodeSpec.of_shape("a", SHAPE), port=20001, user_namespace=False)
    assert (config["address"], config["port"]) == ("127.0.0.1", 20001)
    assert (config["readOnlyPort"], config["healthzPort"]) == (0, 0)
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}


def test_the_node_has_its_own_name_whatever_the_host_is_called() -> None:
    assert "--hostname-override=a" in kubelet_flags(NodeSpec.of_shape("a", SHAPE))
