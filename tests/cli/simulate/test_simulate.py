import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.closed_folder import closed
from tests.publish.test_bounded import monster, written

from topomend.cli.main import main
from topomend.model.condition import Summary
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine
from topomend.wire.published.node_topology import node_topology, status_of

SHAPE = "sockets:1 numa:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"
SINGLE = ["--topology-manager-policy", "single-numa-node", "--cpu-manager-policy", "static"]


def pod(name: str, cpu: str = "2", **limits: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": cpu, "memory": "1Gi", **limits}}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def end(name: str) -> dict[str, Any]:
    return {"kind": "PodEnd", "metadata": {"name": name}}


def simulate(tmp_path: Path, *documents: Any, node: str = SHAPE, flags: list[str] | None = None) -> Result:
    trace = tmp_path / "pods.yaml"
    trace.write_text(yaml.safe_dump_all(documents))
    arguments = ["simulate", "--node", node, "--pods", str(trace), "-o", "json", *(SINGLE if flags is None else flags)]
    return CliRunner().invoke(main, arguments)


def test_pods_are_admitted_in_order_with_the_record_that_is_promised(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a", **{"vendor.com/gpu": "1"}), pod("b", cpu="500m"))
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {
            "namespace": "default",
            "name": "a",
            "admitted": True,
            "reason": "",
            "message": "",
            "containers": [
                {
                    "name": "c",
                    "init": False,
                    "affinity": [0],
                    "preferred": True,
                    "cpus": "1-2",
                    "memory": [],
                    "devices": {"vendor.com/gpu": {"count": 1, "numaNodes": [0]}},
                }
            ],
        },
        {
            "namespace": "default",
            "name": "b",
            "admitted": True,
            "reason": "",
            "message": "",
            "containers": [
                {
                    "name": "c",
                    "init": False,
                    "affinity": None,
                    "preferred": True,
                    "cpus": "",
                    "memory": [],
                    "devices": {},
                }
            ],
        },
    ]


def test_a_refused_pod_has_the_words_of_the_kubelet_and_the_answer_is_no(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a", cpu="5"))
    assert result.exit_code == 1
    [record] = json.loads(result.stdout)
    assert (record["admitted"], record["reason"], record["message"]) == (
        False,
        "TopologyAffinityError",
        "Pod was rejected: Resources cannot be allocated with Topology locality",
    )


def test_a_pod_that_ended_leaves_its_cpus_to_the_next(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a", "4"), pod("b", "4"), end("a"), pod("c", "4"))
    assert [(record["name"], record["admitted"]) for record in json.loads(result.stdout)] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def workload(kind: str, replicas: int) -> dict[str, Any]:
    count = {"parallelism" if kind == "Job" else "replicas": replicas}
    return {"kind": kind, "metadata": {"name": "web"}, "spec": {"template": {"spec": pod("")["spec"]}, **count}}


def admitted(result: Result) -> dict[str, bool]:
    return {answer["name"]: answer["admitted"] for answer in json.loads(result.stdout)}


def test_the_pods_of_several_workloads_of_one_name_are_pods_of_their_own(tmp_path: Path) -> None:
    result = simulate(tmp_path, workload("Deployment", 2), workload("StatefulSet", 2), workload("Job", 1))
    assert admitted(result) == {
        "web-0": True,
        "web-1": True,
        "web-statefulset-0": True,
        "web-statefulset-1": False,
        "web-job-0": False,
    }
    assert result.exit_code == 1


def test_pods_that_the_api_server_would_name_are_pods_of_their_own(tmp_path: Path) -> None:
    nameless = {**pod("", cpu="3"), "metadata": {"generateName": "x-"}}
    assert admitted(simulate(tmp_path, *[nameless] * 3)) == {"x-0": True, "x-1": True, "x-2": False}


def test_two_pods_of_one_name_are_bad_input_unless_the_first_has_ended_or_was_refused(tmp_path: Path) -> None:
    twice = simulate(tmp_path, pod("a"), pod("a", cpu="1"))
    assert twice.exit_code == 2
    words = "2 pods are called default/a; give each its own metadata.name"
    assert twice.stderr == f"Error: --pods {tmp_path / 'pods.yaml'}: {words}\n"
    assert simulate(tmp_path, pod("a"), end("a"), pod("a")).exit_code == 0
    again = simulate(tmp_path, pod("a", cpu="9"), pod("a"))
    assert [answer["admitted"] for answer in json.loads(again.stdout)] == [False, True]


def test_the_end_of_a_pod_that_is_none_is_warned_of(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a"), end("b"), end("a"), end("a"))
    where = f"warning: --pods {tmp_path / 'pods.yaml'}: PodEnd default"
    assert result.stderr.splitlines()[:2] == [f"{where}/b ends no pod", f"{where}/a ends no pod"]
    assert result.exit_code == 0
    assert "ends no pod" not in simulate(tmp_path, pod("a", cpu="9"), end("a")).stderr


def test_objects_of_other_kinds_beside_the_pods_are_passed_over_in_one_line(tmp_path: Path) -> None:
    others = {"kind": "PriorityClass", "metadata": {"name": "high"}}, {"kind": "Service", "metadata": {"name": "web"}}
    result = simulate(tmp_path, others[0], pod("a"), others[1])
    assert (result.exit_code, admitted(result)) == (0, {"a": True})
    where = f"--pods {tmp_path / 'pods.yaml'}"
    words = "passed over, as no pods are read from them: PriorityClass high, Service web"
    assert result.stderr.splitlines()[0] == f"{where}: {words}"
    alone = simulate(tmp_path, *others)
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert alone.stderr == f"Error: {where}: PriorityClass high, Service web, and no pod; give at least one\n"


def test_reserved_cpus_and_memory_come_from_the_flags(tmp_path: Path) -> None:
    flags = [*SINGLE, "--memory-manager-policy", "Static", "--reserved-cpus", "0,4"]
    flags += ["--reserved-memory", "0:memory=512Mi;1:memory=256Mi"]
    [record] = json.loads(simulate(tmp_path, pod("a"), flags=flags).stdout)
    [container] = record["containers"]
    assert container["cpus"] == "1-2"
    assert container["memory"] == [{"type": "memory", "numaNodes": [0], "bytes": 1 << 30}]


def test_an_option_that_is_named_counts_as_enabled_with_its_gate(tmp_path: Path) -> None:
    flags = ["--cpu-manager-policy", "static", "--cpu-manager-options", "distribute-cpus-across-cores=true"]
    result = simulate(tmp_path, pod("a"), node="sockets:1 cores:4 threads:2", flags=flags)
    assert json.loads(result.stdout)[0]["containers"][0]["cpus"] == "1-2"


def test_stdin_serves_either_file() -> None:
    arguments = ["simulate", "--node", SHAPE, "--pods", "-", *SINGLE]
    result = CliRunner().invoke(main, arguments, input=yaml.safe_dump(pod("a")))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "POD         CONTAINER   ADMITTED   NUMA   CPUS   MEMORY   DEVICES",
        "default/a   c           yes        0      1-2    -        -",
    ]
    assert CliRunner().invoke(main, ["simulate", "--node", "-", "--pods", "-"]).exit_code == 2


@pytest.mark.parametrize(
    ("node", "documents", "flags", "words"),
    [
        ("no-such-file.yaml", [pod("a")], [], "--node no-such-file.yaml: No such file"),
        ("numa:x", [pod("a")], [], "whole number"),
        (SHAPE, [{"kind": "Job"}], [], "document 1: Job has no pod template"),
        (SHAPE, [pod("a", "lots")], [], "'lots' is not a quantity"),
        (SHAPE, [pod("a", "-1")], [], "not negative"),
        (SHAPE, [pod("a")], ["--reserved-cpus", "x"], "--reserved-cpus 'x'"),
        (SHAPE, [pod("a")], ["--reserved-memory", "memory=1Gi"], "such as 0:memory=512Mi"),
        (SHAPE, [pod("a")], ["--cpu-manager-options", "full-pcpus-only"], "NAME=VALUE"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(
    tmp_path: Path, node: str, documents: list[Any], flags: list[str], words: str
) -> None:
    result = simulate(tmp_path, *documents, node=node, flags=flags)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


SETTINGS_UNKNOWN = "warning: gpu-01: it does not say how its kubelet is set, and default settings align nothing: give "
PODS_UNKNOWN = "warning: gpu-01: it does not say which pods run there, and counts as empty"


@pytest.mark.parametrize(
    ("beside", "flags", "warnings"),
    [
        ((), (), [SETTINGS_UNKNOWN, PODS_UNKNOWN]),
        ((), ("--cpu-manager-policy", "static", "--reserved-cpus", "0"), [PODS_UNKNOWN]),
        ((pod("other"),), (), [SETTINGS_UNKNOWN]),
    ],
    ids=["nothing is said", "its settings are said", "its pods are beside it"],
)
def test_of_a_discovered_host_it_is_said_what_is_not_known_and_how_to_say_it(
    beside: tuple[dict[str, Any], ...], flags: tuple[str, ...], warnings: list[str], tmp_path: Path
) -> None:
    write_machine(tmp_path / "gpu-01", parse_shape(SHAPE).machine())
    found = CliRunner().invoke(main, ["discover", "--root", str(tmp_path / "gpu-01"), "-o", "yaml"]).stdout
    file = tmp_path / "gpu-01.yaml"
    file.write_text(f"{found}---\n{yaml.safe_dump_all(beside)}")
    result = simulate(tmp_path, pod("a", cpu="500m"), node=str(file), flags=list(flags))
    assert result.exit_code == 0
    said = result.stderr.splitlines()
    assert [line.startswith(warning) for line, warning in zip(said, warnings, strict=True)] == [True] * len(warnings)


def test_what_of_a_recorded_machine_could_not_be_read_is_a_warning(tmp_path: Path) -> None:
    write_machine(tmp_path / "gpu-01", parse_shape(SHAPE).machine())
    (tmp_path / "gpu-01/sys/devices/system/node/node0/meminfo").write_text("junk\n")
    result = simulate(tmp_path, pod("a"), node=str(tmp_path / "gpu-01"))
    assert result.stderr.count(f"warning: --node {tmp_path / 'gpu-01'}: ") == 1
    assert "node0/meminfo has no MemTotal" in result.stderr


@pytest.mark.parametrize("content", [b"\x00\xff\xfe", b"a: [", b"!!python/object:os.system {}", b"- " * 100_000])
def test_a_file_that_is_no_document_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    trace = tmp_path / "pods.yaml"
    trace.write_bytes(content)
    result = CliRunner().invoke(main, ["simulate", "--node", SHAPE, "--pods", str(trace)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_a_node_in_a_folder_that_may_not_be_entered_is_bad_input(tmp_path: Path) -> None:
    trace = tmp_path / "pods.yaml"
    trace.write_text(yaml.safe_dump(pod("a")))
    with closed(tmp_path / "closed") as folder:
        result = CliRunner().invoke(main, ["simulate", "--node", f"{folder}/node.yaml", "--pods", str(trace)])
    assert result.exit_code == 2
    assert result.stderr == f"Error: --node {folder}/node.yaml: Permission denied\n"


def test_what_was_cut_off_a_node_is_said_not_to_be_known(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    for state, warning in (
        (
            monster(pods=1100, numa_nodes=2),
            "warning: monster: its agent says TooLarge: there is no room for ",
        ),
        (monster(pods=10, numa_nodes=2), ""),
    ):
        file.write_text(json.dumps(written(state)))
        result = simulate(tmp_path, pod("a", cpu="500m"), node=str(file), flags=["--reserved-cpus", "4095"])
        assert (result.exit_code, len(json.loads(result.stdout))) == (0, 1)
        assert result.stderr.startswith(warning)
        assert len(result.stderr.splitlines()) == bool(warning)


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("--topology-manager-policy", "everywhere", "is none of none, best-effort, restricted, single-numa-node"),
        ("--topology-manager-policy", "single", "did you mean single-numa-node?"),
        ("--topology-manager-scope", "pods", "did you mean pod?"),
        ("--cpu-manager-policy", "Static", "did you mean static?"),
        ("--memory-manager-policy", "static", "did you mean Static?"),
        ("--cpu-manager-options", "full-pcpu-only=true", "did you mean full-pcpus-only?"),
        ("--topology-manager-options", "prefer-closest=true", "did you mean prefer-closest-numa-nodes?"),
        ("--reserved-cpus", "99", "the machine has no CPU 99; it has 0-7"),
        ("--kubelet-version", "newest", "not a version such as v1.37.2"),
    ],
)
def test_a_mistyped_setting_is_bad_input_and_gets_the_nearest_one(
    flag: str, text: str, words: str, tmp_path: Path
) -> None:
    result = simulate(tmp_path, pod("a"), flags=[flag, text])
    assert (result.exit_code, result.stdout) == (2, "")
    assert flag in result.stderr
    assert words in result.stderr


def test_help_loads_no_client_and_no_operator() -> None:
    code = "import sys; from topomend.cli.main import main; main(['--help'], standalone_mode=False); "
    code += "print([name for name in ('kopf', 'kubernetes', 'grpc', 'yaml') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_pod_that_asks_for_alignment_is_told_whether_it_has_it(tmp_path: Path) -> None:
    asks = {"annotations": {"topomend.io/alignment": "single-numa-node"}}
    best_effort = ["--topology-manager-policy", "best-effort", "--cpu-manager-policy", "static"]
    narrow, wide = pod("narrow", cpu="3"), pod("wide", cpu="5")
    result = simulate(tmp_path, pod("plain", cpu="1"), flags=best_effort)
    assert "aligned" not in json.loads(result.stdout)[0]
    for content in (narrow, wide):
        content["metadata"] |= asks
    assert [record["aligned"] for record in json.loads(simulate(tmp_path, narrow, flags=best_effort).stdout)] == [True]
    result = simulate(tmp_path, wide, flags=best_effort)
    (record,) = json.loads(result.stdout)
    assert (record["admitted"], record["aligned"], result.exit_code) == (True, False, 1)
    wide["metadata"] = {"name": "wide", "annotations": {"topomend.io/alignment": "numa"}}
    result = simulate(tmp_path, wide, flags=best_effort)
    assert result.exit_code == 0
    assert "default/wide: topomend.io/alignment: 'numa' means nothing and is ignored" in result.stderr


# The fit check


def test_a_pod_larger_than_the_machine_is_refused_by_its_totals(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("big", cpu="64", memory="900Gi"), flags=[])
    [record] = json.loads(result.stdout)
    assert (result.exit_code, record["reason"], record["message"]) == (
        1,
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 64000, used: 0, capacity: 8000",
    )
    assert record["cause"]["kind"] == "NotEnoughInTotal"
    assert record["nearest"] == []  # neither amount helps without the other


def test_the_most_of_the_one_resource_that_is_left_is_the_nearest_amount(tmp_path: Path) -> None:
    first, second = json.loads(simulate(tmp_path, pod("a", "2500m"), pod("b", "7"), flags=[]).stdout)
    assert (first["admitted"], second["reason"]) == (True, "OutOfcpu")
    assert second["nearest"] == [{"container": "c", "resource": "cpu", "asked": "7", "admitted": "5"}]
    assert second["remedy"] == "would be admitted with 5 CPUs"


def test_memory_without_what_a_default_kubelet_sets_aside_is_all_that_pods_get(tmp_path: Path) -> None:
    one, other = json.loads(
        simulate(tmp_path, pod("a", "1", memory="16284Mi"), pod("b", "1", memory="1"), flags=[]).stdout
    )
    assert (one["admitted"], other["reason"]) == (True, "OutOfmemory")
    assert "capacity: 17075011584" in other["message"]  # 2 x 8Gi - 100Mi


def test_a_nearest_amount_of_memory_is_whole_steps_away(tmp_path: Path) -> None:
    [record] = json.loads(simulate(tmp_path, pod("a", "1", memory="20Gi"), flags=[]).stdout)
    assert record["nearest"] == [{"container": "c", "resource": "memory", "asked": "20Gi", "admitted": "16256Mi"}]


def test_what_the_managers_refuse_the_fit_check_does_not_see(tmp_path: Path) -> None:
    [record] = json.loads(simulate(tmp_path, pod("a", cpu="64")).stdout)
    assert record["reason"] == "TopologyAffinityError"


def test_a_pod_that_does_not_fit_leaves_nothing_allocated(tmp_path: Path) -> None:
    frac, whole = pod("frac", "1500m"), pod("all", "6")
    _, refused, taken = json.loads(
        simulate(
            tmp_path,
            frac,
            pod("big", "6"),
            whole | {"metadata": {"name": "x"}},
            flags=["--cpu-manager-policy", "static"],
        ).stdout
    )
    assert (refused["reason"], taken["reason"]) == ("OutOfcpu", "OutOfcpu")


def test_a_nearest_amount_is_within_the_totals_too(tmp_path: Path) -> None:
    """NUMA node 1 has 4 free CPUs, and 3 are left in total."""
    _, record = json.loads(simulate(tmp_path, pod("shared", "3500m"), pod("b", "5")).stdout)
    assert record["reason"] == "TopologyAffinityError"
    assert record["nearest"] == [{"container": "c", "resource": "cpu", "asked": "5", "admitted": "3"}]


def test_a_shape_with_a_static_cpu_policy_reserves_cpu_0_and_says_so(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a"))
    assert result.stderr == "note: --reserved-cpus 0 is assumed: the static CPU policy needs a reserved CPU\n"


def test_a_shape_whose_kubelet_aligns_nothing_says_so(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a"), flags=[])
    assert result.stderr.startswith("note: a kubelet's default settings align nothing; see --topology-manager-policy")


def test_a_shape_has_the_default_number_of_pods(tmp_path: Path) -> None:
    many = {"kind": "List", "items": [pod(f"p{number}", "1", memory="1Mi") for number in range(111)]}
    flags = ["--cpu-manager-policy", "static"]
    *_, last = json.loads(simulate(tmp_path, many, node="cores:128 memory:8Gi", flags=flags).stdout)
    assert (last["reason"], "notChecked" in last) == ("OutOfpods", False)


def test_a_memory_policy_without_reservation_names_the_flag(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a"), flags=["--memory-manager-policy", "Static"])
    [record] = json.loads(result.stdout)
    assert (result.exit_code, record["reason"]) == (1, "KubeletWouldNotStart")
    assert "give --reserved-memory" in record["cause"]["sentence"]


# Nodes from files


def topology(name: str = "n1", **kubelet: Any) -> dict[str, Any]:
    state = NodeState(name, parse_shape("numa:2 cores:4 memory:8Gi").machine(), KubeletSettings(**kubelet))
    return node_topology(name, status_of(state, Summary()))


def node(name: str = "n1", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "10Gi"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": "gpu"}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def asked(tmp_path: Path, given: Any, *pods: Any, flags: list[str] | None = None) -> Result:
    file = tmp_path / "node.yaml"
    file.write_text(yaml.safe_dump_all(given) if isinstance(given, list) else yaml.safe_dump(given))
    return simulate(tmp_path, *pods, node=str(file), flags=flags or [])


def test_a_list_of_one_node_topology_is_taken(tmp_path: Path) -> None:
    result = asked(tmp_path, {"kind": "List", "items": [topology()]}, pod("a"))
    assert result.exit_code == 0


def test_the_items_of_a_list_of_node_topologies_need_not_name_their_kind(tmp_path: Path) -> None:
    item = {key: value for key, value in topology().items() if key not in ("apiVersion", "kind")}
    result = asked(
        tmp_path, {"kind": "NodeTopologyList", "apiVersion": topology()["apiVersion"], "items": [item]}, pod("a")
    )
    assert result.exit_code == 0, result.stderr


def test_of_several_node_topologies_one_is_to_be_named(tmp_path: Path) -> None:
    several = {"kind": "List", "items": [topology("n1"), topology("n2")]}
    result = asked(tmp_path, several, pod("a"))
    assert (result.exit_code, "name one with --node-name: n1, n2" in result.stderr) == (2, True)
    assert asked(tmp_path, several, pod("a"), flags=["--node-name", "n2"]).exit_code == 0
    wrong = asked(tmp_path, several, pod("a"), flags=["--node-name", "n3"])
    assert (wrong.exit_code, "no NodeTopology n3" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("numa:2 cores:4", ""),
        ("numa:2 cores:4 device:nvidia.com/gpus@0=1", ", or write nvidia.com/gpus"),
        ("BM.GPU.A100-v2.8", "; not published of BM.GPU.A100-v2.8: the NUMA nodes of the GPUs"),
    ],
)
def test_devices_that_the_machine_is_not_known_to_have_are_said_not_to_be_checked(
    tmp_path: Path, node: str, words: str
) -> None:
    asked = pod("a", **{"nvidia.com/gpu": "8"})
    result = simulate(tmp_path, asked, asked | {"metadata": {"name": "b"}}, node=node)
    [first, second] = json.loads(result.stdout)
    assert first["notChecked"] == second["notChecked"] == ["nvidia.com/gpu, which the node is not known to have"]
    assert (first["admitted"], result.exit_code) == (True, 0)
    how = f"note: --node has no nvidia.com/gpu: add device:nvidia.com/gpu@NUMA=COUNT{words}"
    assert result.stderr.splitlines()[1:] == [how]


def test_what_is_not_known_of_a_node_is_said_not_to_be_checked(tmp_path: Path) -> None:
    choosy = pod("a")
    choosy["spec"]["nodeSelector"] = {"pool": "cpu"}
    [record] = json.loads(asked(tmp_path, topology(), choosy).stdout)
    assert record["admitted"]
    assert record["notChecked"][:2] == ["node affinity", "taints"]


def test_labels_taints_and_totals_count_from_the_node_beside_it(tmp_path: Path) -> None:
    choosy = pod("choosy")
    choosy["spec"]["nodeSelector"] = {"pool": "cpu"}
    answers = json.loads(asked(tmp_path, [topology(), node()], choosy, pod("a")).stdout)
    assert [record["reason"] for record in answers] == ["NodeAffinity", ""]
    assert answers[0]["cause"]["kind"] == "NodeDoesNotMatch"
    tainted = node(taints=[{"key": "gone", "effect": "NoExecute"}])
    [record] = json.loads(asked(tmp_path, [topology(), tainted], pod("a")).stdout)
    assert record["reason"] == "TaintToleration"


def test_the_pods_of_the_node_count_if_they_are_given(tmp_path: Path) -> None:
    running = pod("there", "7500m")
    running["spec"]["nodeName"] = "n1"
    ended = pod("ended", "8") | {"status": {"phase": "Succeeded"}}
    ended["spec"]["nodeName"] = "n1"
    elsewhere = pod("elsewhere", "8")
    [record] = json.loads(asked(tmp_path, [topology(), node(), running, ended, elsewhere], pod("a", "1")).stdout)
    assert "requested: 1000, used: 7500, capacity: 8000" in record["message"]
    assert "notChecked" not in record


def test_a_configuration_with_which_no_kubelet_starts_is_no(tmp_path: Path) -> None:
    [record] = json.loads(asked(tmp_path, topology(cpu_manager_policy="static"), pod("a")).stdout)
    assert record["reason"] == "KubeletWouldNotStart"


def test_a_configuration_that_the_agent_found_wrong_is_no_as_well(tmp_path: Path) -> None:
    """Options written as booleans (k3s#10420): the settings without them would start."""
    why = "cpuManagerPolicyOptions['align-by-socket']: True where a string belongs"
    wrong = topology(cpu_manager_policy="static", reserved_cpus=1)
    wrong["status"]["conditions"] = [
        {"type": "KubeletConfigRead", "status": "False", "reason": "Invalid", "message": why}
    ]
    result = asked(tmp_path, wrong, pod("a"))
    [record] = json.loads(result.stdout)
    assert (result.exit_code, record["reason"], record["message"]) == (1, "KubeletWouldNotStart", why)
    file = tmp_path / "kubelet.yaml"
    file.write_text("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")
    assert asked(tmp_path, wrong, pod("a"), flags=["--kubelet-config", str(file)]).exit_code == 0


def test_shared_cpus_count_against_the_totals_too(tmp_path: Path) -> None:
    flags = ["--cpu-manager-policy", "static"]
    frac, two = json.loads(simulate(tmp_path, pod("frac", "7500m"), pod("two", "3"), flags=flags).stdout)
    assert "requested: 7500, used: 0, capacity: 7000" in frac["message"]
    assert two["containers"][0]["cpus"] == "1-3"


def test_the_settings_come_from_the_kubelets_file_and_are_believed_as_it_would(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    file.write_text(yaml.safe_dump(kind | {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}))
    [record] = json.loads(simulate(tmp_path, pod("a"), flags=["--kubelet-config", str(file)]).stdout)
    assert record["containers"][0]["cpus"] == "2-3"
    file.write_text(yaml.safe_dump(kind | {"cpuManagerPolicy": "static"}))
    [record] = json.loads(simulate(tmp_path, pod("a"), flags=["--kubelet-config", str(file)]).stdout)
    assert record["reason"] == "KubeletWouldNotStart"
    missing = simulate(tmp_path, pod("a"), flags=["--kubelet-config", str(tmp_path / "none.yaml")])
    assert missing.exit_code == 2


def test_a_folder_of_drop_ins_that_is_missing_is_bad_input(tmp_path: Path) -> None:
    missing = simulate(tmp_path, pod("a"), flags=["--kubelet-config-dir", str(tmp_path / "none.d")])
    assert missing.exit_code == 2
    assert f"Directory '{tmp_path / 'none.d'}' does not exist" in missing.stderr


@pytest.mark.parametrize(("version", "admitted"), [("v1.32.6", True), ("v1.37.2", False)])
def test_a_file_starts_a_kubelet_of_the_named_version_or_not(tmp_path: Path, version: str, admitted: bool) -> None:
    """The gate APIListChunking was removed after 1.32."""
    file = tmp_path / "kubelet.yaml"
    kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    file.write_text(yaml.safe_dump(kind | {"featureGates": {"APIListChunking": True}}))
    flags = ["--kubelet-config", str(file), "--kubelet-version", version]
    [record] = json.loads(simulate(tmp_path, pod("a"), flags=flags).stdout)
    assert record["admitted"] is admitted
    assert ("unrecognized feature gate: APIListChunking" in record["message"]) is not admitted


def test_the_rules_are_those_of_the_version_that_is_named(tmp_path: Path) -> None:
    three = pod("a", "3")
    shape = "cores:4 threads:2"
    flags = ["--cpu-manager-policy", "static", "--cpu-manager-options", "strict-cpu-reservation=true"]
    [record] = json.loads(simulate(tmp_path, three, node=shape, flags=[*flags, "--kubelet-version", "1.30.14"]).stdout)
    assert record["reason"] == "KubeletWouldNotStart"
    assert simulate(tmp_path, three, node=shape, flags=[*flags, "--kubelet-version", "v1.37.2"]).exit_code == 0


def test_the_pods_of_a_workload_are_admitted_one_after_another(tmp_path: Path) -> None:
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"spec": pod("", "2")["spec"]}},
    }
    answers = json.loads(simulate(tmp_path, workload).stdout)
    assert [(record["name"], record["admitted"]) for record in answers] == [
        ("web-0", True), ("web-1", True), ("web-2", True),
    ]  # fmt: skip


def test_an_unknown_field_of_resources_is_warned_of(tmp_path: Path) -> None:
    mistyped = pod("a")
    mistyped["spec"]["containers"][0]["resources"]["limit"] = {"cpu": "64"}
    result = simulate(tmp_path, mistyped)
    assert "spec.containers[0].resources: no such field 'limit': did you mean limits?" in result.stderr
