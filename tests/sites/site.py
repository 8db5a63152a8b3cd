"""A site: real kubelets with the settings of the user's own file, on made-up machines, with topomend beside them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.clusters import ROOT, Cluster, events_of
from tests.waiting import eventually

from topomend.cli.input.performance_profile import of_profile
from topomend.discover.kubelet_config import Written, judge
from topomend.discover.kubelet_config.files import file_of
from topomend.kube.client import connect
from topomend.kube.errors import NotFound
from topomend.kube.resources import EVENTS, PODS, Resource
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings
from topomend.model.shapes.shape import parse_shape
from topomend.replay.startup.configuration import Host
from topomend.runtime.manifests import documents
from topomend.sandbox import NodeSpec, Sandbox

SITES = ROOT / "examples" / "sites"

FEW = 40
"""A controller of few pods that nobody brakes has hundreds of refused ones after half a minute."""


def settings_of(path: Path, machine_memory: int) -> KubeletSettings:
    """What a kubelet on a machine of so many bytes reads in the user's file."""
    content = path.read_bytes()
    profile = of_profile(path.name, content)
    file = profile.file if profile else file_of(path, content)
    judged = judge(Written(file, None, {}), DEFAULT_VERSION, Host(memory=machine_memory))
    assert not judged.wrong, judged.wrong
    return judged.settings


def node_of(name: str, shape: str, path: Path) -> NodeSpec:
    """A node of this shape whose kubelet has the settings of the user's file."""
    machine = parse_shape(shape).machine()
    settings = settings_of(path, sum(node.memory for node in machine.numa_nodes))
    return NodeSpec.of_shape(name, shape, **{field: getattr(settings, field) for field in SET_BY_FLAGS})


SET_BY_FLAGS = (
    "topology_manager_policy",
    "topology_manager_scope",
    "topology_manager_policy_options",
    "cpu_manager_policy",
    "cpu_manager_policy_options",
    "memory_manager_policy",
    "reserved_cpus",
    "reserved_memory",
)
"""What ``topomend sandbox up`` can be told of a kubelet."""


def of_flags(settings: KubeletSettings) -> dict[str, Any]:
    """These settings, to compare them."""
    return {field: value for field, value in asdict(settings).items() if field in SET_BY_FLAGS}


class Site(Cluster):
    """A cluster on which topomend is installed, and the user's manifests."""

    def apply(self, *names: str) -> None:
        """What the user does with the files of a site's folder."""
        for name in names:
            self.sandbox.kubectl("apply", f"--filename={SITES / name}")

    def manifests(self, name: str) -> list[dict[str, Any]]:
        """The objects in a file of a site's folder."""
        return documents((SITES / name).read_text())

    def pods_of(self, app: str) -> list[dict[str, Any]]:
        """The pods with this label ``app``."""
        return list(self.client.list(PODS, namespace="default", labels=f"app={app}").items)

    def running_of(self, app: str, count: int = 1) -> list[dict[str, Any]] | None:
        """The running pods with this label ``app``, once there are ``count`` of them."""
        running = [pod for pod in self.pods_of(app) if pod["status"].get("phase") == "Running"]
        return running if len(running) == count else None

    def gated_of(self, app: str) -> dict[str, Any] | None:
        """A pod with this label ``app`` that waits gated."""
        return next((pod for pod in self.pods_of(app) if pod["spec"].get("schedulingGates")), None)

    def refused(self, prefix: str = "") -> set[str]:
        """The UIDs of all pods that a kubelet has refused, by its own events, also of those that are gone."""
        events = self.client.list(EVENTS, namespace="default", fields="reason=TopologyAffinityError").items
        return {event["regarding"]["uid"] for event in events if event["regarding"]["name"].startswith(prefix)}

    def told(self, content: dict[str, Any], reason: str) -> str:
        """The text of the first event of this reason on an object, once there is one."""
        (first, *_) = eventually(f"the event {reason}", lambda: events_of(self, content, reason))
        return str(first["note"])

    def remove_owners(self, resource: Resource, namespace: str = "default") -> None:
        """Delete all controllers of a kind in the namespace, and wait until it has no pod."""
        for made in self.client.list(resource, namespace=namespace).items:
            self.client.delete(resource, made["metadata"]["name"], namespace, uid=made["metadata"]["uid"])
        eventually("the pods to be gone", lambda: not self.client.list(PODS, namespace=namespace).items)

    def is_gone(self, name: str) -> bool:
        """Whether there is no pod of this name."""
        try:
            self.get(name)
        except NotFound:
            return True
        return False

    def is_aligned(self, name: str) -> bool:
        """Whether all that the kubelet gave to each container of a pod is on one NUMA node."""
        return all(len(container.numa_nodes) == 1 for container in self.sandbox.resources(name))


@contextmanager
def again_and_again(act: Callable[[], None], seconds: float) -> Iterator[None]:
    """Meanwhile act every so many seconds, as another controller beside topomend."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def site(specs: Sequence[NodeSpec], mode: str = "") -> Iterator[Site]:
    """A site whose operator has this mode."""
    with Sandbox.up(specs, topomend=True, mode=mode) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        yield Site(sandbox, client, {})
        client.close()
