"""A real kubelet on a made-up machine admits, refuses and allocates as on a real one. Slow: it is one."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import yaml
from tests.waiting import awake, stretched

from topomend.kube.connection.transport import Response
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox import ContainerResources, InvalidNodeSpec, Sandbox, SandboxError
from topomend.sandbox.api import API, heartbeat
from topomend.sandbox.registry import status

pytestmark = pytest.mark.cluster

T = TypeVar("T")

PODS = "/api/v1/namespaces/default/pods"


class PatientAPI(API):
    """Asks until it is answered: no answer in time, as from a machine that stands still, is none to be judged by."""

    def ask(
        self, method: str, path: str, body: str | None = None, content_type: str = "application/json"
    ) -> Response | None:
        """The answer."""
        return until(lambda: API.ask(self, method, path, body, content_type))


def account_in(kubeconfig: Path) -> tuple[str, int, str]:
    """The API server's host and port, and the token, by what a kubeconfig says."""
    config = yaml.safe_load(kubeconfig.read_text())
    host, _, port = config["clusters"][0]["cluster"]["server"].removeprefix("https://").partition(":")
    return host, int(port), config["users"][0]["user"]["token"]


def api_of(cluster: Sandbox, kubeconfig: Path | None = None) -> PatientAPI:
    """The cluster's API by what its kubeconfig says, or another one."""
    host, port, token = account_in(kubeconfig or cluster.kubeconfig)
    return PatientAPI(host, port, cluster.folder / "pki" / "apiserver.crt", token)


class Pods:
    """Pods on the cluster, each gone after the test."""

    def __init__(self, api: API) -> None:
        self._api = api
        self._names: list[str] = []

    def run(self, name: str, node: str, **limits: str) -> Mapping[str, Any]:
        """A pod that the scheduler binds to ``node``, once the kubelet has admitted or refused it."""
        container = {"name": "c", "image": "none", "resources": {"limits": {"memory": "64Mi", **limits}}}
        spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        assert self._api.create(PODS, document)
        self._names.append(name)
        return until(lambda: self.decided(name))

    def decided(self, name: str) -> Mapping[str, Any] | None:
        """The pod's status once it runs or failed."""
        pod = self._api.get(f"{PODS}/{name}")
        return pod["status"] if pod is not None and pod["status"].get("phase") in ("Running", "Failed") else None

    def delete(self) -> None:
        """Delete every pod at once, and wait until the last is gone."""
        for name in self._names:
            self._api.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        until(lambda: all(self._api.get(f"{PODS}/{name}") is None for name in self._names) or None)


def until(look: Callable[[], T | None], patience: float = 40.0) -> T:
    """What ``look`` finds, once it does, on a busy machine later."""
    began = awake()
    while awake() < began + stretched(patience):
        seen = look()
        if seen is not None:
            return seen
        time.sleep(0.05)
    pytest.fail(f"not seen within {patience} s")


@pytest.fixture
def api(cluster: Sandbox) -> PatientAPI:
    return api_of(cluster)


@pytest.fixture
def pods(api: API) -> Iterator[Pods]:
    made = Pods(api)
    yield made
    made.delete()


def state(cluster: Sandbox, node: str, file: str) -> Any:
    """A state file of that node's kubelet, read where the kubelet sees it."""
    path = cluster.node(node).kubelet_state / file
    command = [*cluster.exec_prefix(node), "cat", str(path)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_nodes_are_the_machines_that_were_asked_for(api: API) -> None:
    nodes = {node["metadata"]["name"]: node["status"] for node in (api.get("/api/v1/nodes") or {})["items"]}
    capacities = {name: (node["capacity"]["cpu"], node["capacity"]["memory"]) for name, node in nodes.items()}
    assert capacities == {"wide": ("32", "64Gi"), "split": ("8", "16Gi"), "pods": ("16", "16Gi")}
    assert nodes["split"]["allocatable"]["vendor.com/gpu"] == "2"
    assert nodes["wide"]["nodeInfo"]["kubeletVersion"].startswith(DEFAULT_VERSION.rpartition(".")[0])


def test_a_pod_that_fits_one_numa_node_runs_and_one_that_fits_none_is_refused(cluster: Sandbox, pods: Pods) -> None:
    assert pods.run("first", "split", cpu="2")["phase"] == "Running"
    assert pods.run("second", "split", cpu="3")["phase"] == "Running"
    refused = pods.run("third", "split", cpu="2")
    assert (refused["phase"], refused["reason"]) == ("Failed", "TopologyAffinityError")
    assert refused["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
    cpus = sorted(
        cpus for pod in state(cluster, "split", "cpu_manager_state")["entries"].values() for cpus in pod.values()
    )
    assert cpus == ["1-2", "4-6"]


def test_a_device_comes_with_the_cpus_of_its_numa_node(cluster: Sandbox, api: API, pods: Pods) -> None:
    for name, cpus in (("first", {"1-2"}), ("second", {"4-5"})):
        assert pods.run(name, "split", cpu="2", **{"vendor.com/gpu": "1"})["phase"] == "Running"
        uid = (api.get(f"{PODS}/{name}") or {})["metadata"]["uid"]
        assert set(state(cluster, "split", "cpu_manager_state")["entries"][uid].values()) == cpus
    given = state(cluster, "split", "device-plugins/kubelet_internal_checkpoint")["Data"]["PodDeviceEntries"]
    assert sorted(one for entry in given for ids in entry["DeviceIDs"].values() for one in ids) == [
        "gpu-0-0",
        "gpu-1-0",
    ]


def test_a_kubelet_tells_what_a_pod_holds(cluster: Sandbox, pods: Pods) -> None:
    pods.run("first", "split", cpu="2", **{"vendor.com/gpu": "1"})
    pods.run("second", "split", cpu="3", **{"vendor.com/gpu": "1"})
    pods.run("shared", "split", cpu="100m")
    second = frozenset({1})
    assert cluster.resources("second") == (
        ContainerResources("c", frozenset({4, 5, 6}), {"vendor.com/gpu": ("gpu-1-0",)}, second, second, second),
    )
    (first,) = cluster.resources("first")
    assert first.cpus == {1, 2}
    assert first.numa_nodes == {0}
    (shared,) = cluster.resources("shared")
    assert (shared.cpus, shared.cpu_numa_nodes, shared.devices) == (frozenset(), frozenset(), {})


def test_a_pod_that_no_kubelet_admitted_holds_nothing(cluster: Sandbox, pods: Pods) -> None:
    pods.run("wide", "split", cpu="5")
    with pytest.raises(
        SandboxError, match="pod default/wide holds nothing of a node: Failed TopologyAffinityError Pod"
    ):
        cluster.resources("wide")
    with pytest.raises(SandboxError, match="has no pod other/wide"):
        cluster.resources("wide", "other")


def test_a_pod_stays_where_the_machine_slept_for_minutes(api: API) -> None:
    """Else one of its name is deleted five minutes later, perhaps a new one on a node that is ready again."""
    container = {"name": "c", "image": "none"}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    answer = api.ask("POST", f"{PODS}?dryRun=All", json.dumps(document))
    assert answer
    made = json.loads(answer.body)
    stays = {toleration["key"]: toleration["tolerationSeconds"] for toleration in made["spec"]["tolerations"]}
    assert stays == dict.fromkeys(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"), 86_400)


def test_kubectl_answers_or_says_why_not(cluster: Sandbox) -> None:
    assert cluster.kubectl("get", "nodes", "-o", "name").split() == ["node/pods", "node/split", "node/wide"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "asked"}}
    made = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(namespace))
    assert made == "namespace/asked created (server dry run)\n"
    with pytest.raises(SandboxError, match=r'^kubectl get pod nobody ended with 1: .*pods "nobody" not found$'):
        cluster.kubectl("get", "pod", "nobody")


def test_a_kubelet_that_restarts_keeps_its_pods_and_gets_its_devices_back(
    cluster: Sandbox, api: API, pods: Pods
) -> None:
    assert pods.run("before", "split", cpu="2", **{"vendor.com/gpu": "1"})["phase"] == "Running"
    said = heartbeat(api.get("/api/v1/nodes/split") or {})
    cluster.stop_kubelet("split")
    assert {p.name: p.pid for p in status(cluster.name).programs}["kubelet-split"] is None
    cluster.start_kubelet("split")
    assert heartbeat(api.get("/api/v1/nodes/split") or {}) not in {said, ""}, "its predecessor's word does not count"
    assert pods.run("after", "split", cpu="2", **{"vendor.com/gpu": "1"})["phase"] == "Running"
    assert (api.get(f"{PODS}/before") or {})["status"]["phase"] == "Running"


def test_the_dra_driver_publishes_its_devices_again_to_a_kubelet_that_restarts(
    cluster: Sandbox, api: API, pods: Pods
) -> None:
    """A starting kubelet deletes the slices of its node."""
    slice_path = "/apis/resource.k8s.io/v1/resourceslices/pods-nic.vendor.com"
    published = api.get(slice_path) or {}
    assert [device["attributes"]["resource.kubernetes.io/numaNode"] for device in published["spec"]["devices"]] == [
        {"int": 1},
        {"int": 1},
    ]
    assert pods.run("before", "pods", cpu="2", **{"vendor.com/nic": "1"})["phase"] == "Running"
    cluster.stop_kubelet("pods")
    cluster.start_kubelet("pods")
    first = published["metadata"]["uid"]
    until(lambda: True if (api.get(slice_path) or published)["metadata"]["uid"] != first else None)
    assert pods.run("after", "pods", cpu="2", **{"vendor.com/nic": "1"})["phase"] == "Running"
    claims = (api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims") or {})["items"]
    # The garbage collector may not have come to those of pods of other tests.
    ours = {(api.get(f"{PODS}/{name}") or {})["metadata"]["uid"] for name in ("before", "after")}
    owned = [claim for claim in claims if claim["metadata"]["ownerReferences"][0]["uid"] in ours]
    given = [claim["status"]["allocation"]["devices"]["results"][0]["device"] for claim in owned]
    assert sorted(given) == ["nic-1-0", "nic-1-1"]


def test_an_api_server_that_restarts_knows_what_it_knew(cluster: Sandbox, api: API, pods: Pods) -> None:
    assert pods.run("kept", "wide", cpu="1")["phase"] == "Running"
    host, port, token = account_in(cluster.kubeconfig)
    cluster.stop_api_server()
    assert not API(host, port, cluster.folder / "pki" / "apiserver.crt", token).ready()
    cluster.start_api_server()
    assert (api.get(f"{PODS}/kept") or {})["status"]["phase"] == "Running"


def test_an_upgrade_replaces_each_program_of_the_control_plane_and_keeps_pods(
    cluster: Sandbox, api: API, pods: Pods
) -> None:
    def control_plane() -> set[int | None]:
        return {program.pid for program in status(cluster.name).programs if program.name.startswith("kube-")}

    assert pods.run("upgraded", "wide", cpu="1")["phase"] == "Running"
    before = control_plane()
    cluster.upgrade_control_plane(DEFAULT_VERSION)
    assert len(control_plane() - {None} - before) == 3
    assert (api.get(f"{PODS}/upgraded") or {})["status"]["phase"] == "Running"
    assert pods.run("since", "wide", cpu="1")["phase"] == "Running"


def test_a_control_plane_is_not_upgraded_further_than_its_kubelets_allow(cluster: Sandbox) -> None:
    with pytest.raises(InvalidNodeSpec, match="3 minor versions older"):
        cluster.upgrade_control_plane("v1.99.0")


def test_a_kubelet_may_not_change_another_node(cluster: Sandbox) -> None:
    wide = api_of(cluster, cluster.folder / "nodes" / "wide" / "kubelet" / "kubeconfig")
    own, other = wide.ask("GET", "/api/v1/nodes/wide"), wide.ask("DELETE", "/api/v1/nodes/split")
    assert own
    assert own.status == 200
    assert other
    assert other.status == 403


def test_the_audit_log_says_who_asked_for_what(cluster: Sandbox) -> None:
    assert cluster.audit_log is not None
    events = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
    assert any(
        event["user"]["username"] == "system:node:split"
        and event["verb"] == "patch"
        and event["stage"] == "ResponseComplete"
        for event in events
    )
    assert not any("requestObject" in event for event in events)


def test_everything_listens_on_loopback_only(cluster: Sandbox) -> None:
    programs = [psutil.Process(program.pid) for program in status(cluster.name).programs if program.pid is not None]
    listening = [
        connection.laddr
        for program in programs
        for connection in program.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert len({address.port for address in listening}) == 4  # the API server's, and each kubelet's


def test_nothing_of_it_is_mounted_where_others_see_it(cluster: Sandbox) -> None:
    assert str(cluster.folder) not in Path("/proc/self/mountinfo").read_text()
    assert Path("/proc/meminfo").read_text() != (cluster.folder / "nodes/wide/machine/proc/meminfo").read_text()


def test_a_kubelet_can_write_only_to_its_own_folders(cluster: Sandbox) -> None:
    (pid,) = (program.pid for program in status(cluster.name).programs if program.name == "kubelet-wide")
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    seen = [(place, options) for _, _, device, _, place, options, *_ in lines if _sees(pid, place, device)]
    last = {place: options.split(",") for place, options in seen}
    writable = {place for place, options in last.items() if "ro" not in options}
    assert "/" not in writable
    assert {place.split("/")[1] for place in writable if not place.startswith("/var/lib/kubelet")} <= {
        "dev",
        "proc",
        "var",
    }
    assert {place for place in writable if place.startswith("/var/")} <= {"/var/lib/kubelet", "/var/log"} | {
        place for place in writable if place.startswith("/var/lib/kubelet/")
    }


def test_a_kubelet_finds_its_root_shared_and_mounts_nothing_over_it(cluster: Sandbox) -> None:
    (pid,) = (program.pid for program in status(cluster.name).programs if program.name == "kubelet-wide")
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    (tags,) = (tags for _, _, _, _, place, _, *tags in lines if place == "/var/lib/kubelet")
    assert tags[0].startswith("shared:")


def _sees(pid: int | None, place: str, device: str) -> bool:
    """Whether the process sees the mount of this device there: another may cover it, or a folder above it."""
    try:
        seen = Path(f"/proc/{pid}/root{place}").stat().st_dev
    except OSError:
        return False
    return f"{os.major(seen)}:{os.minor(seen)}" == device


def test_a_kubelet_that_removes_a_containers_logs_removes_nothing_else(cluster: Sandbox, pods: Pods) -> None:
    """It removes what matches the container's log path and ``*``: all of its working folder, were there no log path."""
    bystander = cluster.folder / "nodes" / "wide" / "kubelet" / "work" / "bystander"
    bystander.touch()
    log = cluster.folder / "logs" / "kubelet-wide.log"
    seen = log.read_text().count('"RemoveContainer"')
    assert pods.run("logged", "wide", cpu="1")["phase"] == "Running"
    pods.delete()
    until(lambda: True if log.read_text().count('"RemoveContainer"') > seen else None)
    time.sleep(0.5)  # it says so before it does so
    assert bystander.exists()


def test_a_command_sees_the_machine_and_the_folder_that_the_kubelet_sees(cluster: Sandbox) -> None:
    command = [
        *cluster.exec_prefix("wide"),
        "sh",
        "-c",
        "pwd; ls /var/lib/kubelet/pod-resources; grep -c . /proc/meminfo",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == [str(Path.cwd()), "kubelet.sock"]
