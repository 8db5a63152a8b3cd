"""``kubectl numa fit``: how many replicas fit beside what runs, whatever their names."""

import json
from pathlib import Path

from click.testing import CliRunner
from tests.builders import node_state, pod, pod_manifest
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import cluster_of, started_pod

from topomend.cli.kubectl_numa import numa

THREE = "cpu=3 memory=1Mi"


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
