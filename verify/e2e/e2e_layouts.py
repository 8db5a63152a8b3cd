"""Every distribution's layout on an IPv6-only cluster: the base install, then each distribution's component.

One node a layout, of a real kubelet that was started as that distribution starts it. Tests run in order, as a story.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.waiting import eventually
from verify.e2e import images
from verify.e2e.conftest import TAG
from verify.e2e.containers.api import Object
from verify.e2e.containers.cluster import Cluster
from verify.e2e.containers.network import IPV6
from verify.e2e.containers.programs import Failed
from verify.e2e.steps.installed import DEPLOY, write_kustomization
from verify.e2e.steps.layouts import FRESH, LAYOUTS, Layout, rewritten
from verify.e2e.steps.pods import NODE_TOPOLOGIES

NAMESPACE = "topomend-agent"
READER = "topomend-kubelet-reader"
ELSEWHERE = LAYOUTS[-1]
OF_OPENSHIFT = "security.openshift.io/v1"
READ_BY_FILE = tuple(
    layout for layout in LAYOUTS if layout.component and layout.component not in ("openshift", "kubelet-root")
)
"""The layouts whose component reads the configuration; the other components have another purpose."""


@dataclass(frozen=True)
class Nodes:
    """The cluster and its published NodeTopologies."""

    cluster: Cluster

    def topology(self, layout: Layout) -> Object:
        """The NodeTopology of a layout's node; empty if there is none."""
        return self.cluster.api.find(f"{NODE_TOPOLOGIES}/{layout.name}") or {}

    def condition(self, layout: Layout, kind: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        for condition in self.topology(layout).get("status", {}).get("conditions", ()):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def policy(self, layout: Layout) -> str:
        """The published policy of the Topology Manager."""
        return str(self.topology(layout).get("status", {}).get("kubelet", {}).get("topologyManagerPolicy", ""))

    def wait(self, goal: str, layouts: tuple[Layout, ...], true: Callable[[Layout], bool], seconds: float = 60) -> None:
        """Wait until a condition is true for each layout; a failure names the others."""
        began = time.monotonic()
        try:
            eventually(goal, lambda: all(map(true, layouts)), seconds)
        except Exception as failure:
            missing = {layout.name: self.topology(layout).get("status", {}).get("conditions") for layout in layouts}
            wrong = {name: missing[name] for name in (layout.name for layout in layouts if not true(layout))}
            raise AssertionError(f"{goal}: not on {json.dumps(wrong, indent=1)}") from failure
        print(f"  {goal:70} {time.monotonic() - began:5.1f} s, {len(layouts)} nodes")

    def is_ready(self, layout: Layout) -> bool:
        return self.condition(layout, "Ready")[0] == "True"

    def read_as(self, reason: str, status: str = "True") -> Callable[[Layout], bool]:
        """Whether a node's configuration was read in this way."""
        return lambda layout: self.condition(layout, "KubeletConfigRead")[:2] == (status, reason)

    def path(self, layout: Layout, path: Path) -> Path:
        """The path on this machine of a node's file."""
        return self.cluster.node_folder(layout.name) / path.relative_to("/")

    def agents(self) -> list[Object]:
        """The agents' pods."""
        return self.cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")


@pytest.fixture(scope="module")
def nodes(archives: Mapping[str, Path]) -> Iterator[Nodes]:
    began = time.monotonic()
    images_of = [archives["idle"], archives[TAG]]
    first, *others = (layout.node(FRESH) for layout in LAYOUTS)
    with Cluster.up([first], images_of, pause=images.IDLE, network=IPV6) as cluster:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(cluster.add_node, others))
        print(f"\n{len(LAYOUTS)} nodes are up after {time.monotonic() - began:.1f} s")
        yield Nodes(cluster)


def test_the_base_install_is_ready_on_every_layout(nodes: Nodes) -> None:
    nodes.cluster.kubectl("apply", "--server-side", "-k", "deploy")
    nodes.wait("the base is ready", LAYOUTS[:-1], nodes.is_ready, 120)
    for layout in LAYOUTS[:-1]:
        _, reason, message = nodes.condition(layout, "KubeletConfigRead")
        assert reason == "ReadFromConfigz", layout.name
        # These kubelets sign for themselves.
        assert "its certificate was not verified (self-signed certificate" in message
        assert nodes.policy(layout) == "single-numa-node"


def test_a_kubelet_with_another_root_folder_is_reported_with_what_to_do(nodes: Nodes) -> None:
    nodes.wait("its configuration is known", (ELSEWHERE,), nodes.read_as("ReadFromConfigz"))
    status, reason, message = nodes.condition(ELSEWHERE, "AllocationsRead")
    assert (status, reason) == ("False", "PodResourcesUnavailable")
    assert "--root-dir" in message
    assert "docs/run/layouts.md" in message


def test_check_names_that_node_alone_as_wrong(nodes: Nodes) -> None:
    def wrong() -> list[str]:
        with pytest.raises(Failed) as failed:
            nodes.cluster.numa("check")
        return [line for line in str(failed.value).splitlines() if re.search(r"\b(ERROR|WARNING) +TM", line)]

    # Agents are ready later than they publish.
    (told,) = eventually("one error alone", lambda: found if len(found := wrong()) == 1 else None, poll=1.0)
    assert f"Node {ELSEWHERE.name}" in told


def test_nothing_but_missing_folders_was_created_on_a_node(nodes: Nodes) -> None:
    for layout in LAYOUTS:
        if layout.root == ELSEWHERE.root:
            made = nodes.path(layout, Path("/var/lib/kubelet"))
            # The kubelet's own place for device plugins, whatever its root folder.
            assert {path.name for path in made.iterdir()} == {"pod-resources", "device-plugins"}
            assert not list((made / "pod-resources").iterdir())
        assert not nodes.path(layout, Path("/var/lib/kubelet/config.yaml")).is_dir()


def test_with_its_component_every_layout_is_ready_and_its_files_say_the_same(nodes: Nodes, tmp_path: Path) -> None:
    nodes.cluster.kubectl("delete", "daemonset", "topomend-agent", f"--namespace={NAMESPACE}")
    eventually("the agents of the base to be gone", lambda: not nodes.agents(), 60)
    # What a dead agent published stays: what is found afterwards is the new ones'.
    nodes.cluster.kubectl("delete", "nodetopologies", "--all")
    built = [_only_on(layout, _built(nodes.cluster, tmp_path / layout.name, layout)) for layout in LAYOUTS]
    nodes.cluster.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(built))
    eventually("all agents to run", lambda: len(_running(nodes.agents())) == len(LAYOUTS), 90)
    nodes.wait("each with its component is ready", LAYOUTS, nodes.is_ready, 60)
    nodes.wait("kubelet and files say the same", LAYOUTS, nodes.read_as("ReadFromConfigz"))


def test_a_configuration_that_was_replaced_is_not_in_force_before_its_kubelet_starts(nodes: Nodes) -> None:
    """Replaced by rename, by a drop-in, in the file of flags, and read through the mounts of running pods."""
    for layout in LAYOUTS:
        file = nodes.path(layout, layout.change)
        partial = file.with_name(".new")
        before = "" if layout.drops_in else file.read_text()
        partial.write_text(rewritten(layout, before, topologyManagerPolicy="restricted"))
        partial.rename(file)
    nodes.wait("what a file says is not in force", READ_BY_FILE, nodes.read_as("FileContradicted"))
    for layout in READ_BY_FILE:
        assert "runs with another topologyManagerPolicy" in nodes.condition(layout, "KubeletConfigRead")[2]
    assert {nodes.policy(layout) for layout in LAYOUTS} == {"single-numa-node"}


def test_what_a_kubelet_starts_with_is_published(nodes: Nodes) -> None:
    def restart(layout: Layout) -> None:
        nodes.cluster.stop_kubelet(layout.name)
        if layout.name == "microk8s":
            nodes.cluster.change_flag(layout.name, "--topology-manager-policy", "restricted")
        nodes.cluster.start_kubelet(layout.name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(restart, LAYOUTS))
    nodes.wait("what it starts with is published", LAYOUTS, lambda layout: nodes.policy(layout) == "restricted")
    nodes.wait("and is what the files say", LAYOUTS, nodes.read_as("ReadFromConfigz"))
    nodes.wait("each is ready again", LAYOUTS, nodes.is_ready)


def test_kubelets_that_do_not_answer_are_read_by_their_files(nodes: Nodes) -> None:
    """They refuse as kubelets before 1.33 do: the reader's right is revoked, and the agents are restarted."""
    nodes.cluster.kubectl("delete", "clusterrolebinding", READER)
    eventually("the right's end", lambda: not _may_read(nodes.cluster), 30)
    time.sleep(3)  # what kubelets remember of it ends after one
    nodes.cluster.kubectl("delete", "pods", "--all", f"--namespace={NAMESPACE}")
    nodes.wait("a file is read instead", READ_BY_FILE, nodes.read_as("ConfigzUnavailable"), 90)
    nodes.wait("each of those is ready", READ_BY_FILE, nodes.is_ready)
    assert {nodes.policy(layout) for layout in READ_BY_FILE} == {"restricted"}
    others = tuple(layout for layout in LAYOUTS if layout not in READ_BY_FILE)
    nodes.wait("without a file that is said", others, nodes.read_as("NotGiven", "False"), 90)
    for layout in others:
        assert "docs/run/layouts.md" in nodes.condition(layout, "KubeletConfigRead")[2]


def test_no_agent_was_restarted_or_came_near_its_limit(nodes: Nodes) -> None:
    most = 0
    for item in nodes.agents():
        (status,) = item["status"]["containerStatuses"]
        assert status["restartCount"] == 0, item["metadata"]["name"]
        most = max(most, nodes.cluster.memory(item, "agent").working_set)
    print(f"  {'the largest agent':70} {most / (1 << 20):5.0f} MiB")
    assert most < 64 << 20


def _may_read(cluster: Cluster) -> bool:
    """Whether the API server allows the reader a kubelet's configuration."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{READER}",
            "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "configz"},
        },
    }
    answer = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _built(cluster: Cluster, folder: Path, layout: Layout) -> dict[str, Any]:
    """The DaemonSet of the base with the layout's component; ``kubelet-root`` is copied as by a user."""
    folder.mkdir()
    components = [DEPLOY / "components" / layout.component] if layout.component else []
    if layout is ELSEWHERE:
        components = [folder / "kubelet-root"]
        shutil.copytree(DEPLOY / "components" / "kubelet-root", components[0])
        setting = components[0] / "kustomization.yaml"
        setting.write_text(setting.read_text().replace("/data/kubelet", str(layout.root)))
    write_kustomization(folder, components)
    items = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(folder))))
    daemon_set: dict[str, Any] = next(item for item in items if item["kind"] == "DaemonSet")
    return daemon_set


def _only_on(layout: Layout, daemon_set: dict[str, Any]) -> dict[str, Any]:
    """The same DaemonSet under another name, for the layout's node only."""
    label = {"layout": layout.name}
    daemon_set["metadata"]["name"] = f"topomend-agent-{layout.name}"
    daemon_set["spec"]["selector"]["matchLabels"] |= label
    daemon_set["spec"]["template"]["metadata"]["labels"] |= label
    daemon_set["spec"]["template"]["spec"]["nodeSelector"] |= {"kubernetes.io/hostname": layout.name}
    return daemon_set


def _running(pods: list[Object]) -> list[Object]:
    return [
        item for item in pods if item["status"].get("phase") == "Running" and "layout" in item["metadata"]["labels"]
    ]
