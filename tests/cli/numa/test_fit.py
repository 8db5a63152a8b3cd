"""``kubectl numa fit``: how many replicas fit beside what runs, whatever their names."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.builders import node_state, pod, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists, cluster_of, started_pod

from topomend.cli.kubectl_numa import numa
from topomend.cli.output.failures import NO, NOT_KNOWN, YES

THREE = "cpu=3 memory=1Mi"


def ask(cluster: ServedLists, folder: Path, verb: str, *arguments: str) -> Result:
    """What a verb says of a pod of a file that asks for three CPUs."""
    cluster.items["relaunches"] = []
    (file := folder / "pod.json").write_text(json.dumps(pod_manifest("want", THREE)))
    with kubeconfig_of(cluster, folder) as config:
        return CliRunner().invoke(numa, [verb, "-f", str(file), *arguments, "--kubeconfig", str(config)])


def test_the_replicas_of_a_workload_that_runs_already_are_further_ones(tmp_path: Path) -> None:
    running = pod("web-0", THREE, namespace="default")
    cluster = cluster_of(
        [node_state(policy="single-numa-node", pods=[running])], [started_pod("web-0", THREE, node="a")]
    )
    template = {"spec": pod_manifest("", THREE)["spec"]}
    workload = {"kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {"replicas": 3, "template": template}}
    (file := tmp_path / "web.json").write_text(json.dumps(workload))
    with kubeconfig_of(cluster, tmp_path) as config:
        arguments = ["fit", "-f", str(file), "-o", "json", "--kubeconfig", str(config)]
        answer = json.loads(CliRunner().invoke(numa, arguments).stdout)
    assert (answer["fitting"], answer["nodes"][0]["byNUMANodes"]) == (1, {"1": 1})


@pytest.mark.parametrize("verb", ["fit", "explain"])
@pytest.mark.parametrize(
    ("cpus", "reason", "code"),
    [(("7", "2"), "Infeasible", YES), (("100m", "6"), "Deferred", NO)],
    ids=["a resize that its kubelet never does", "a resize that is not done yet"],
)
def test_a_pod_that_is_resized_counts_as_the_scheduler_counts_it(
    cpus: tuple[str, str], reason: str, code: int, verb: str, tmp_path: Path
) -> None:
    asked, had = cpus
    resized = started_pod("resized", f"request:cpu={asked}", node="a")
    resized["status"] |= {
        "containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": had}}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
    }
    result = ask(cluster_of([node_state()], [resized]), tmp_path, verb)
    assert result.exit_code == code, result.output


@pytest.mark.parametrize("words", [("fit",), ("explain",), ("explain", "--node", "a")])
def test_a_yes_is_not_known_to_a_user_who_may_not_list_the_pods_that_may_leave_too_little(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    cluster = cluster_of([node_state()], [started_pod("shared", "request:cpu=7", node="a")])
    assert ask(cluster, tmp_path, *words).exit_code == NO
    cluster.forbidden = {"pods"}
    result = ask(cluster, tmp_path, *words)
    assert result.exit_code == NOT_KNOWN, result.output
    assert "totals were not checked" in result.output
    assert "overall: 1 of 1 fit now if totals leave enough" in result.output or "fit" not in words


@pytest.mark.parametrize("words", [("fit", "--replicas", "3"), ("explain", "--node", "a"), ("explain",)])
def test_a_no_is_one_whatever_other_pods_leave(words: tuple[str, ...], tmp_path: Path) -> None:
    holders = [pod(f"holder-{number}", THREE, namespace="default") for number in range(2)]
    cluster = cluster_of([node_state(policy="single-numa-node", pods=holders)], [])
    cluster.forbidden = {"pods"}
    assert ask(cluster, tmp_path, *words).exit_code == NO


def test_a_node_that_has_admitted_the_pod_says_yes_whatever_other_pods_leave(tmp_path: Path) -> None:
    runs = pod("want", THREE, namespace="default")
    cluster = cluster_of([node_state(pods=[runs])], [])
    cluster.forbidden = {"pods"}
    assert ask(cluster, tmp_path, "explain", "--node", "a").exit_code == YES
