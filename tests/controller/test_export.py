"""``kubectl numa export`` on a cluster with a refused pod that has a secret in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clusters import NODE_A, NODE_B, ROOT, Cluster, pod
from tests.waiting import eventually

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.runtime.manifests import documents

pytestmark = pytest.mark.cluster


def _export(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("kubectl-numa")), "export", *arguments],
        env={**os.environ, "KUBECONFIG": str(cluster.sandbox.kubeconfig), "PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_a_refused_pod_is_exported_with_its_node_and_without_its_secret(fragmented: Cluster) -> None:
    content = pod("train", 3, node=NODE_A)
    content["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    fragmented.create(content)
    eventually("the refusal", lambda: fragmented.phase("train") == "Failed")
    run = _export(fragmented, NODE_A)
    assert (run.returncode, run.stderr) == (0, "")
    assert "hunter2" not in run.stdout
    versions, *objects = documents(run.stdout)
    assert versions["versions"]["apiServer"] == DEFAULT_VERSION
    assert [(content["kind"], content["metadata"]["name"]) for content in objects] == [
        ("Node", NODE_A),
        ("NodeTopology", NODE_A),
        ("Pod", "train"),
    ]
    assert NODE_B not in run.stdout
    unknown = _export(fragmented, "nowhere")
    assert (unknown.returncode, "no node nowhere" in unknown.stderr) == (2, True)
