import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.publish.test_bounded import monster, written

from topomend.cli.main import main

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
        (SHAPE, [{"kind": "Job"}], [], "document 1: kind: 'Job'"),
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


@pytest.mark.parametrize("content", [b"\x00\xff\xfe", b"a: [", b"!!python/object:os.system {}", b"- " * 100_000])
def test_a_file_that_is_no_document_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    trace = tmp_path / "pods.yaml"
    trace.write_bytes(content)
    result = CliRunner().invoke(main, ["simulate", "--node", SHAPE, "--pods", str(trace)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


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
        result = simulate(tmp_path, pod("a", cpu="500m"), node=str(file), flags=[])
        assert (result.exit_code, len(json.loads(result.stdout))) == (0, 1)
        assert result.stderr.startswith(warning)
        assert len(result.stderr.splitlines()) == bool(warning)


def test_a_policy_that_no_kubelet_knows_is_told_as_the_kubelet_would(tmp_path: Path) -> None:
    result = simulate(tmp_path, pod("a"), flags=["--topology-manager-policy", "everywhere"])
    [record] = json.loads(result.stdout)
    assert (result.exit_code, record["admitted"]) == (1, False)
    assert "everywhere" in record["message"]


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
