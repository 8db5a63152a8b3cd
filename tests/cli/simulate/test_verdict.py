"""The record that ``simulate -o json`` prints: its layout is an interface."""

from tests.builders import TWO_NUMA_NODES, node_state, pod

from topomend.cli.simulate.verdict import verdict_record
from topomend.replay.admission import admit

GPU = f"{TWO_NUMA_NODES} device:v.com/gpu@1=2"


def test_an_admission_says_what_each_container_gets_in_cpus_bytes_and_numa_nodes() -> None:
    state = node_state(GPU, memory_manager="Static")
    verdict, _ = admit(state, pod("p", "init cpu=1 memory=1Gi v.com/gpu=1", "cpu=2 memory=1Gi v.com/gpu=2"))
    record = verdict_record(verdict)
    assert {key: record[key] for key in ("namespace", "name", "admitted", "reason", "message")} == {
        "namespace": "ns",
        "name": "p",
        "admitted": True,
        "reason": "",
        "message": "",
    }
    first, second = record["containers"]
    assert (first["name"], first["init"], first["cpus"]) == ("c0", True, "4")
    assert second == {
        "name": "c1",
        "init": False,
        "affinity": [1],
        "preferred": True,
        "cpus": "4-5",
        "memory": [{"type": "memory", "numaNodes": [1], "bytes": 1 << 30}],
        "devices": {"v.com/gpu": {"count": 2, "numaNodes": [1]}},
    }


def test_no_affinity_is_null_and_the_shared_pool_has_no_cpus() -> None:
    verdict, _ = admit(node_state(), pod("p", ""))
    [container] = verdict_record(verdict)["containers"]
    assert (container["affinity"], container["cpus"], container["memory"]) == (None, "", [])


def test_a_refusal_has_the_kubelets_words_and_no_containers() -> None:
    verdict, _ = admit(node_state(), pod("p", "cpu=6 memory=1Gi"))
    record = verdict_record(verdict)
    assert (record["admitted"], record["reason"], record["containers"]) == (False, "TopologyAffinityError", [])
    assert record["message"] == verdict.message


def test_what_replay_does_not_know_is_there_only_where_there_is_something() -> None:
    known, _ = admit(node_state(), pod("p", ""))
    unknown, _ = admit(node_state(version="v1.99.0"), pod("p", ""))
    assert "unmodelled" not in verdict_record(known)
    assert verdict_record(unknown)["unmodelled"] == list(unknown.unmodelled)
