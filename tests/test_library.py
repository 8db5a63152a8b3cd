"""The library: its documented names answer as ``topomend simulate`` does, its examples run, and it brings nothing."""

import doctest
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.builders import node_state, node_topology_object, pod_manifest

from topomend import library
from topomend.cli.main import main
from topomend.cli.simulate.verdict import verdict_record
from topomend.model.nodes.kubelet import KubeletSettings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "library.md"
SHAPE = "numa:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1"
SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=0b10001
)
FLAGS = ("--topology-manager-policy=single-numa-node", "--cpu-manager-policy=static", "--reserved-cpus=0,4")
GUARANTEED = "memory=1Mi cpu="

IMPORT = """
import sys
before = set(sys.modules)
import topomend.library
print(*sorted({module.partition(".")[0] for module in set(sys.modules) - before}))
"""


def simulated(folder: Path, node: str, pods: list[dict[str, Any]], *flags: str) -> list[dict[str, Any]]:
    """What ``topomend simulate`` answers."""
    file = folder / "pods.yaml"
    file.write_text(yaml.safe_dump_all(pods))
    result = CliRunner().invoke(main, ["simulate", "--node", node, "--pods", str(file), "-o", "json", *flags])
    answers: list[dict[str, Any]] = json.loads(result.stdout)
    return answers


def test_the_names_that_are_documented_are_there_and_say_what_they_do() -> None:
    names = {name for name in library.__all__ if name.islower()}
    assert names == {"node", "pod", "admit", "release", "explain"}
    assert [name for name in library.__all__ if not getattr(library, name).__doc__] == []
    text = PAGE.read_text()
    assert [name for name in library.__all__ if f"`{name}" not in text] == []


def test_the_examples_of_the_module_run() -> None:
    failed, tried = doctest.testmod(library)
    assert failed == 0
    assert tried > len(library.__all__)


def test_the_examples_of_the_page_run() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert failed == 0
    assert tried > 5


def test_importing_it_imports_topomend_and_python_alone() -> None:
    command = [sys.executable, "-S", "-c", IMPORT]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "operator")}, capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "topomend" in imported
    assert imported - {"topomend"} <= sys.stdlib_module_names
    assert not imported & {"asyncio", "ssl", "socket", "subprocess", "logging"}


@pytest.mark.parametrize(
    "containers",
    [
        (f"{GUARANTEED}2",),
        (f"{GUARANTEED}3", f"init {GUARANTEED}2"),
        (f"{GUARANTEED}4",),
        (f"{GUARANTEED}7",),
        (f"{GUARANTEED}1 vendor.com/gpu=1",),
        (f"{GUARANTEED}1 vendor.com/gpu=2",),
        ("",),
    ],
)
def test_it_answers_and_explains_as_simulate_does(containers: tuple[str, ...], tmp_path: Path) -> None:
    manifests = [pod_manifest("before", f"{GUARANTEED}1"), pod_manifest("p", *containers)]
    *_, expected = simulated(tmp_path, SHAPE, manifests, *FLAGS)
    before, asked = map(library.pod, manifests)
    _, node = library.admit(library.node(SHAPE, kubelet=SETTINGS), before)
    verdict, _ = library.admit(node, asked)
    assert verdict_record(verdict).items() <= expected.items()
    sentence = library.explain(node, asked)
    if verdict.admitted:
        assert sentence.startswith("node admits p")
    else:
        assert expected["cause"]["sentence"] in sentence
        assert expected["remedy"] in sentence


def test_a_node_topology_is_the_node_that_simulate_reads(tmp_path: Path) -> None:
    state = node_state(pods=[library.pod(pod_manifest("held", f"{GUARANTEED}3")).pod])
    topology = node_topology_object(state)
    file = tmp_path / "node.json"
    file.write_text(json.dumps(topology))
    asked = pod_manifest("p", f"{GUARANTEED}4")
    (expected,) = simulated(tmp_path, str(file), [asked])
    node, pod = library.node(topology, name="left aside"), library.pod(asked)
    verdict, _ = library.admit(node, pod)
    assert verdict_record(verdict).items() <= expected.items()
    assert node.kubelet.state == state
    assert f"not checked: {', '.join(expected['notChecked'])}" in library.explain(node, pod)


def test_with_the_node_object_and_all_pods_nothing_is_left_unchecked() -> None:
    state = node_state()
    node_object = {
        "metadata": {"name": "a"},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {"allocatable": {"cpu": "7", "memory": "8Gi", "pods": "110"}},
    }
    other = pod_manifest("other", "cpu=6")
    node = library.node(node_topology_object(state), node_object=node_object, pods=[other])
    tolerating = pod_manifest("p", "cpu=2", spec={"tolerations": [{"operator": "Exists"}]})
    assert list(node.not_checked(library.pod(tolerating))) == []
    assert library.admit(node, library.pod(pod_manifest("p", "cpu=1")))[0].reason == "TaintToleration"
    assert library.admit(node, library.pod(tolerating))[0].reason == "OutOfcpu"
    emptied = library.release(node, library.pod(other))
    assert library.admit(emptied, library.pod(tolerating))[0].admitted


def test_other_settings_are_those_of_a_kubelet_that_was_started_with_them() -> None:
    topology = node_topology_object(node_state(policy="none", reserved_cpus="0"))
    node_object = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "7", "memory": "8Gi", "pods": "110"}}}
    pod = library.pod(pod_manifest("p", f"{GUARANTEED}7"))
    assert library.admit(library.node(topology, node_object=node_object), pod)[0].admitted
    refused, _ = library.admit(library.node(topology, kubelet=SETTINGS), pod)
    assert refused.reason == "TopologyAffinityError"
    relaxed = KubeletSettings(cpu_manager_policy="static", reserved_cpus=0b11)
    burstable = library.pod(pod_manifest("p", "cpu=7"))
    fewer, _ = library.admit(library.node(topology, kubelet=relaxed, node_object=node_object), burstable)
    assert fewer.message.endswith("cpu, requested: 7000, used: 0, capacity: 6000")


def test_a_kubelet_that_does_not_start_refuses_every_pod() -> None:
    condition = {"type": "KubeletConfigRead", "status": "False", "reason": "Invalid", "message": "unknown field"}
    topology = node_topology_object(node_state(), conditions=[condition])
    pod = library.pod(pod_manifest("p", "cpu=1"))
    verdict, _ = library.admit(library.node(topology), pod)
    assert (verdict.reason, verdict.message) == ("KubeletWouldNotStart", "unknown field")
    assert library.admit(library.node(topology, kubelet=SETTINGS), pod)[0].admitted


def test_a_node_stays_as_it_was() -> None:
    node = library.node(SHAPE, kubelet=SETTINGS)
    pod = library.pod(pod_manifest("p", f"{GUARANTEED}3"))
    _, filled = library.admit(node, pod)
    assert filled != node
    assert node == library.node(SHAPE, kubelet=SETTINGS)
    assert library.release(filled, pod) == node
    assert library.release(node, pod) == node


@pytest.mark.parametrize(
    ("read", "error", "text"),
    [
        (lambda: library.node("cores:0"), library.InvalidShape, "'cores:0' needs a whole number of at least 1"),
        (lambda: library.node("Vega"), library.InvalidShape, "nor one of the"),
        (lambda: library.node({}), library.MalformedObject, "kind: missing"),
        (lambda: library.node(SHAPE, node_object={}), library.MalformedObject, "metadata.name: missing"),
        (lambda: library.node(SHAPE, pods=[{}]), library.MalformedObject, "spec.containers: missing"),
        (lambda: library.pod({"kind": "Job"}), library.MalformedObject, "kind: 'Job' where Pod belongs"),
        (lambda: library.pod(pod_manifest("")), library.MalformedObject, "metadata.name: '' where a name belongs"),
        (
            lambda: library.pod({**pod_manifest(""), "metadata": {"generateName": "x-"}}),
            library.MalformedObject,
            "metadata.name: missing where a name belongs",
        ),
    ],
)
def test_what_is_malformed_is_named(read: Callable[[], object], error: type[ValueError], text: str) -> None:
    with pytest.raises(error) as raised:
        read()
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"reserved_cpus": "0,2"}, "kubelet.reserved_cpus: '0,2' where a bit mask, 0b101"),
        ({"reserved_cpus": -1}, "kubelet.reserved_cpus: -1 where a bit mask"),
        ({"reserved_cpu_millis": "500m"}, "kubelet.reserved_cpu_millis: '500m' where a whole number"),
        ({"feature_gates": None}, "kubelet.feature_gates: missing where a map of strings to True or False"),
        ({"feature_gates": {"CPUManager": "true"}}, "where a map of strings to True or False belongs"),
        ({"cpu_manager_policy_options": {"full-pcpus-only": True}}, "where a map of strings to strings belongs"),
        ({"topology_manager_policy_options": None}, "kubelet.topology_manager_policy_options: missing where"),
        ({"reserved_memory": ({"numaNode": 0},)}, "where a tuple of MemoryReservation"),
        ({"reserved_memory": (library.MemoryReservation(0, "memory", "1Gi"),)}, "tuple of MemoryReservation, in bytes"),  # type: ignore[arg-type]
        ({"version": 1.37}, "kubelet.version: 1.37 where a string belongs"),
    ],
)
def test_a_setting_of_another_type_is_named(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(library.MalformedObject) as raised:
        library.node(SHAPE, kubelet=library.KubeletSettings(**settings))
    assert text in str(raised.value)


def test_every_setting_has_its_type_checked() -> None:
    for setting in fields(library.KubeletSettings):
        with pytest.raises(library.MalformedObject, match=f"kubelet.{setting.name}: "):
            library.node(SHAPE, kubelet=library.KubeletSettings(**{setting.name: object()}))  # type: ignore[arg-type]
    settings: Any = {"reserved_cpus": 1}
    with pytest.raises(library.MalformedObject, match=r"kubelet: .* where KubeletSettings belongs"):
        library.node(SHAPE, kubelet=settings)


def test_what_is_no_object_is_named() -> None:
    content: Any = ["a pod"]
    with pytest.raises(library.MalformedObject, match="an object belongs"):
        library.pod(content)
    with pytest.raises(library.MalformedObject, match="an object belongs"):
        library.node(content)
