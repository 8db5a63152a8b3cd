"""Which file beside a pod's name asks about a resize of that pod."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.builders import guaranteed_pod, node_state, pod, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import cluster_of, started_pod

from topomend.cli.kubectl_numa import numa
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.explain.resize import check_is_resize
from topomend.cli.output.failures import NO, YES, BadInput
from topomend.model.pods.scheduling import Placement


def of_file(shown: str) -> RequestedPod:
    return RequestedPod(guaranteed_pod(cpus=2), Placement(), {}, shown=shown)


@pytest.mark.parametrize("shown", ["Pod train", "Pod", "Deployment web"])
def test_a_pod_of_the_same_name_or_none_and_a_workload_s_template_are_sizes(shown: str) -> None:
    check_is_resize("train", of_file(shown), "larger.yaml")


def test_another_pod_is_no_size_of_this_one() -> None:
    with pytest.raises(BadInput, match=r"^-f other.yaml is Pod other, .* a resize of train: leave pod/train out"):
        check_is_resize("train", of_file("Pod other"), "other.yaml")


@pytest.mark.parametrize(("had", "code"), [("2", YES), ("6", NO)])
def test_another_pod_takes_what_its_kubelet_has_allocated_to_it_and_not_what_it_waits_for(
    had: str, code: int, tmp_path: Path
) -> None:
    running = started_pod("train", "request:cpu=2", node="a")
    other = started_pod("other", "request:cpu=6", node="a")
    other["status"]["containerStatuses"] = [{"name": "c0", "resources": {"requests": {"cpu": had}}}]
    state = node_state(pods=[pod("train", "request:cpu=2", namespace="default")])
    cluster = cluster_of([state], [running, other])
    cluster.items["relaunches"] = []
    (file := tmp_path / "larger.json").write_text(json.dumps(pod_manifest("train", "request:cpu=4")))
    with kubeconfig_of(cluster, tmp_path) as config:
        asked = CliRunner().invoke(numa, ["explain", "train", "-f", str(file), "--kubeconfig", str(config)])
    assert asked.exit_code == code, asked.output
