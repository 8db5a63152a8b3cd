"""``kubectl numa explain`` takes what people have: workloads, labels, a name alone; on a real API server."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.clusters import CRDS, NODE_A, STORM, Cluster, pod, storm_replicas, storming_deployment
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.client import connect
from topomend.kube.errors import NotFound
from topomend.kube.resources import CRON_JOBS, EVENTS, JOBS, NODE_TOPOLOGIES, PODS, STATEFUL_SETS, Resource

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[4]

RBAC = "rbac.authorization.k8s.io/v1"
ROLES = Resource(RBAC, "clusterroles", namespaced=False)
CLUSTER_BINDINGS = Resource(RBAC, "clusterrolebindings", namespaced=False)
BINDINGS = Resource(RBAC, "rolebindings")
WIDGETS = Resource("example.com/v1", "widgets")

WAITS_ON = {"disk": "none-has-it"}
"""A node selector that the scheduler refuses everywhere."""

NODE_LABEL = "kubernetes.io/hostname"


def ask(cluster: Cluster, *arguments: str, kubeconfig: str = "") -> Result:
    return CliRunner().invoke(numa, [*arguments, "--kubeconfig", kubeconfig or str(cluster.sandbox.kubeconfig)])


@contextmanager
def there(cluster: Cluster, resource: Resource, kind: str, metadata: dict[str, Any], **fields: Any) -> Iterator[Any]:
    """An object, which is deleted at the end."""
    namespace = "default" if resource.namespaced else ""
    content = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata} | fields
    made = cluster.client.create(resource, content, namespace)
    try:
        yield made
    finally:
        with suppress(NotFound):  # the garbage collector was faster
            cluster.client.delete(resource, metadata["name"], namespace, uid=made["metadata"]["uid"])


def owned_by(owner: dict[str, Any]) -> dict[str, Any]:
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"ownerReferences": [reference | {"controller": True}]}


def template(name: str, cpus: int = 1, selector: dict[str, str] = WAITS_ON) -> dict[str, Any]:
    spec = {**pod("", cpus)["spec"], "nodeSelector": selector, "restartPolicy": "Never"}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def waiting(cluster: Cluster, name: str) -> list[str]:
    """The names of the pods with this label of which the scheduler has said why it binds none."""
    pods = [each for each in cluster.pods() if each["metadata"].get("labels", {}).get("app") == name]
    said = [each for each in pods if each.get("status", {}).get("conditions")]
    return [each["metadata"]["name"] for each in said]


@pytest.fixture
def storm(fragmented: Cluster) -> Iterator[Cluster]:
    """A Deployment whose pods are refused by numa-a, at least three of them."""
    with storming_deployment(fragmented):
        refused = partial(_refused, fragmented)
        eventually("three pods to be refused", lambda: len(refused()) >= 3 or None)
        yield fragmented


def _refused(cluster: Cluster) -> list[dict[str, Any]]:
    return [each for each in storm_replicas(cluster) if each.get("status", {}).get("phase") == "Failed"]


def test_a_deployment_is_explained_by_its_pods_and_many_with_one_reason_are_told_once(storm: Cluster) -> None:
    # Its ReplicaSet lives on: the first line counts what is there when it is asked.
    for words in (["deploy/storm"], ["deployments.apps", "storm"], ["storm"], [f"rs/{replica_set(storm)}"]):
        result = ask(storm, "explain", *words)
        assert result.exit_code == 1, result.output
        first, _, heading, refused, *_ = result.stdout.splitlines()
        assert first.split(": ")[1].split()[1].rstrip(",") == "refused", words
        assert heading.split()[1:3] == ["pods", "refused:"]
        assert refused.startswith(f"  {NODE_A} refuses container main: cpu requests 3 and fits no NUMA node")
        assert result.stdout.count("pods refused: ") == 1, "the newest pod may wait for the scheduler, in another one"
        assert "more" in heading or len(heading.split(",")) >= 3


def replica_set(cluster: Cluster) -> str:
    return str(storm_replicas(cluster)[0]["metadata"]["ownerReferences"][0]["name"])


def test_labels_and_all_namespaces_select_pods_and_names_have_namespaces_there(storm: Cluster) -> None:
    here = ask(storm, "explain", "-l", f"app={STORM}")
    assert (here.exit_code, here.stdout.startswith(f"app={STORM} in default: ")) == (1, True)
    everywhere = ask(storm, "explain", "-A")
    assert everywhere.stdout.startswith("all namespaces: ")
    assert f"refused: default/{STORM}-" in everywhere.stdout
    assert "2 run" in everywhere.stdout.splitlines()[0], "the fillers run, and are not explained"
    assert "filler" not in everywhere.stdout.splitlines()[2]
    named = ask(storm, "explain", "deploy/storm", "-A")
    assert (named.exit_code, "give names, or -A" in named.stderr) == (2, True)


def test_a_selector_that_cannot_be_read_is_bad_input(fragmented: Cluster) -> None:
    result = ask(fragmented, "explain", "-l", "app in (web")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "selector" in result.stderr


def test_programs_get_the_groups_and_the_counts(storm: Cluster) -> None:
    record = json.loads(ask(storm, "explain", "deploy/storm", "-o", "json").stdout)
    assert record["asked"] == "deployment/storm"
    assert record["counts"]["refused"] == len(record["groups"][0]["pods"]) >= 3
    assert (record["groups"][0]["state"], record["groups"][0]["admitted"]) == ("refused", False)
    assert record["groups"][0]["cause"]["kind"] == "NotEnoughFree"
    assert ask(storm, "explain", "deploy/storm", "-o", "name").stdout == ""


def test_a_name_that_is_not_there_gets_the_nearest_pod_and_workload(storm: Cluster) -> None:
    result = ask(storm, "explain", "strom")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: no pod strom in default: did you mean deployment/storm?\n"
    half = storm_replicas(storm)[0]["metadata"]["name"][:-1]
    assert f"no pod {half} in default: did you mean pod/storm-" in ask(storm, "explain", half).stderr
    assert "did you mean deployment/storm?" in ask(storm, "explain", "deploy/strom").stderr
    assert "no kind deplyoment: did you mean deployment?" in ask(storm, "explain", "deplyoment/storm").stderr
    assert "is no KIND/NAME" in ask(storm, "explain", "deploy/storm", "storm").stderr


Maker = Callable[[Cluster, ExitStack], Sequence[str]]


def job(cluster: Cluster, stack: ExitStack) -> Sequence[str]:
    stack.enter_context(there(cluster, JOBS, "Job", {"name": "batch"}, spec={"template": template("batch")}))
    return ("job/batch", "batch")


def cron_job(cluster: Cluster, stack: ExitStack) -> Sequence[str]:
    """A CronJob with a job of its own kind, as its controller would create it."""
    job_template = {"spec": {"template": template("batch")}}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": job_template}
    made = stack.enter_context(there(cluster, CRON_JOBS, "CronJob", {"name": "nightly"}, spec=spec))
    metadata = {"name": "nightly-1", **owned_by(made)}
    stack.enter_context(there(cluster, JOBS, "Job", metadata, spec={"template": template("batch")}))
    return ("cj/nightly", "cronjob.batch/nightly", "job/nightly-1")


def stateful_set(cluster: Cluster, stack: ExitStack) -> Sequence[str]:
    selector, labelled = {"matchLabels": {"app": "batch"}}, template("batch")
    del labelled["spec"]["restartPolicy"]
    spec = {"serviceName": "db", "selector": selector, "template": labelled}
    stack.enter_context(there(cluster, STATEFUL_SETS, "StatefulSet", {"name": "db"}, spec=spec))
    return ("sts/db", "statefulset/db")


def custom(cluster: Cluster, stack: ExitStack) -> Sequence[str]:
    """A Job that an object of another kind has created."""
    made = stack.enter_context(there(cluster, WIDGETS, "Widget", {"name": "w"}))
    metadata = {"name": "of-w", **owned_by(made)}
    stack.enter_context(there(cluster, JOBS, "Job", metadata, spec={"template": template("batch")}))
    return ("widget.example.com/w", "widgets/w", "wd/w")


def circle(cluster: Cluster, stack: ExitStack) -> Sequence[str]:
    """A Job below two objects that own each other."""
    first = stack.enter_context(there(cluster, WIDGETS, "Widget", {"name": "first"}))
    second = stack.enter_context(there(cluster, WIDGETS, "Widget", {"name": "second", **owned_by(first)}))
    cluster.client.merge(WIDGETS, "first", {"metadata": owned_by(second)}, "default")
    metadata = {"name": "of-first", **owned_by(first)}
    stack.enter_context(there(cluster, JOBS, "Job", metadata, spec={"template": template("batch")}))
    return ("wd/second", "wd/first", "job/of-first")


@pytest.fixture(scope="module")
def widgets(two_nodes: Cluster) -> Iterator[None]:
    """Another kind of workload."""
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wd"]}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    with there(two_nodes, CRDS, "CustomResourceDefinition", {"name": "widgets.example.com"}, spec=spec):
        eventually("widgets to be served", lambda: [two_nodes.client.list(WIDGETS)])
        # The kinds of a group are known a moment later than its objects are served.
        eventually("the kind to be known", lambda: two_nodes.client.resource_of("example.com/v1", "Widget"))
        yield
    eventually("widgets to be gone", lambda: not two_nodes.client.serves(WIDGETS))


@pytest.mark.usefixtures("widgets")
@pytest.mark.parametrize("make", [job, cron_job, stateful_set, custom, circle], ids=lambda make: make.__name__)
def test_pods_that_wait_are_found_by_whatever_is_above_them_with_the_schedulers_words(
    fragmented: Cluster, make: Maker
) -> None:
    with ExitStack() as stack:
        words = make(fragmented, stack)
        [name] = eventually("the scheduler to say why", lambda: waiting(fragmented, "batch"))
        for word in words:
            result = ask(fragmented, "explain", word)
            assert result.exit_code == 1, result.output
            lines = result.stdout.splitlines()
            assert lines[0].endswith(": 1 waits for a node")
            assert lines[2] == f"waits for a node: {name}"
            assert lines[3].startswith(f"  {name} is not scheduled (Unschedulable): 0/2 nodes are available: ")


def test_the_event_of_a_scheduler_that_sets_no_condition_is_quoted(fragmented: Cluster) -> None:
    content = pod("lonely", 1)
    content["spec"]["schedulerName"] = "another"
    made = fragmented.create(content)
    regarding = {key: made["metadata"][key] for key in ("name", "namespace", "uid")} | {
        "kind": "Pod",
        "apiVersion": "v1",
    }
    fields = {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "another", "reportingInstance": "one"}
    fields |= {"action": "Scheduling", "reason": "FailedScheduling", "type": "Warning", "note": "no queue has room"}
    with there(fragmented, EVENTS, "Event", {"name": "lonely.1"}, regarding=regarding, **fields):
        result = ask(fragmented, "explain", "lonely")
    assert result.stdout.splitlines()[0] == "lonely is not scheduled (FailedScheduling): no queue has room"
    assert result.exit_code == 0, "a node would admit it"


def test_a_workload_without_pods_is_answered_by_its_template(fragmented: Cluster) -> None:
    spec = {"suspend": True, "template": template("none", 3, {NODE_LABEL: NODE_A})}
    with there(fragmented, JOBS, "Job", {"name": "suspended"}, spec=spec):
        result = ask(fragmented, "explain", "job/suspended")
    assert result.stdout.splitlines()[:2] == ["job/suspended: no pods", "a pod of its template:"]
    assert f"{NODE_A} refuses container main: cpu requests 3" in result.stdout
    assert result.exit_code == 1


def test_unknown_fields_of_any_kind_are_named(fragmented: Cluster, tmp_path: Path) -> None:
    content = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template("j")}}
    content["spec"]["paralelism"] = 3  # type: ignore[index]
    content["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limts": {"cpu": "1"}}  # type: ignore[index]
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(content))
    for verb in ("fit", "explain"):
        lines = ask(fragmented, verb, "-f", str(file)).stderr.splitlines()
        typed = (
            "warning: -f {}: spec.template.spec.containers[0].resources: no such field 'limts': did you mean limits?"
        )
        assert typed.format(file) in lines
        assert f"warning: -f {file}: spec.paralelism: no such field; it is ignored" in lines
        assert len(lines) == 2
    # A Job of another test may wait for the garbage collector, which orphans its pods.
    names = [each["metadata"]["name"] for each in fragmented.client.list(JOBS).items]
    assert "j" not in names, "a dry run creates nothing"


def test_fit_answers_for_each_workload_of_a_file_with_its_own_replicas(fragmented: Cluster, tmp_path: Path) -> None:
    replica = template("web", 2, {})
    del replica["spec"]["restartPolicy"]
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": replica}
    documents = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 1}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "once"},
            "spec": {"parallelism": 2, "completions": 8, "template": template("once", 1, {})},
        },
    ]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    result = ask(fragmented, "fit", "-f", str(file))
    assert "Deployment web:" in result.stdout
    assert "Job once:" in result.stdout
    assert [line.split()[3] for line in result.stdout.splitlines() if line.startswith("overall:")] == ["3", "2"]
    assert "passed over, as no pods are read from them: Service web" in result.stderr
    record = json.loads(ask(fragmented, "fit", "-f", str(file), "-o", "json").stdout)
    assert [(each["workload"], each["wanted"]) for each in record["workloads"]] == [
        ("Deployment web", 3),
        ("Job once", 2),
    ]


@pytest.fixture
def viewer(two_nodes: Cluster, tmp_path: Path) -> Iterator[str]:
    """The kubeconfig of a user with topomend-viewer but for Kubernetes' own kinds, and ``view`` in the namespace."""
    role = yaml.safe_load((ROOT / "deploy" / "base" / "viewer-role.yaml").read_text().split("\n---\n")[0])
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    name = "viewer-of-ann"  # other tests of this cluster install the role itself
    viewer = {"roleRef": reference | {"name": name}, "subjects": [user]}
    view = {"roleRef": reference | {"name": "view"}, "subjects": [user]}
    rules = [rule for rule in role["rules"] if "" not in rule["apiGroups"]]
    with (
        there(two_nodes, ROLES, "ClusterRole", {"name": name}, rules=rules),
        there(two_nodes, CLUSTER_BINDINGS, "ClusterRoleBinding", {"name": "ann"}, **viewer),
        there(two_nodes, BINDINGS, "RoleBinding", {"name": "ann"}, **view),
    ):
        yield acting_as(two_nodes, "ann", tmp_path, NODE_TOPOLOGIES)


def acting_as(cluster: Cluster, user: str, folder: Path, *kinds: Resource) -> str:
    """The kubeconfig of a user who may list the namespace's pods and these kinds by now."""
    configuration = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    configuration["users"][0]["user"]["as"] = user
    path = folder / f"{user}.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    path.chmod(0o600)
    with closing(connect(str(path))) as client:
        for kind in (PODS, *kinds):
            namespace = "default" if kind.namespaced else ""
            eventually(f"{user} to list {kind.plural}", lambda: [client.list(kind, namespace=namespace)])  # noqa: B023
    return str(path)


def test_a_viewer_is_told_what_he_may_not_read_and_gets_the_rest(storm: Cluster, viewer: str) -> None:
    result = ask(storm, "explain", "deploy/storm", kubeconfig=viewer)
    assert result.exit_code == 1, result.output
    assert f"{NODE_A} refuses container main: cpu requests 3" in result.stdout
    assert result.stderr == ("you may not list nodes (so the nodes' taints, labels and totals were not checked)\n")
    shown = ask(storm, "show", kubeconfig=viewer)
    assert (shown.exit_code, NODE_A in shown.stdout) == (0, True)


def test_without_the_right_to_list_replicasets_a_deployment_finds_its_pods_by_names(
    storm: Cluster, tmp_path: Path
) -> None:
    name = "cal"
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    rules = [{"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": ["get", "list"]}]
    with (
        there(storm, ROLES, "ClusterRole", {"name": name}, rules=rules),
        there(storm, BINDINGS, "RoleBinding", {"name": name}, roleRef=reference, subjects=[user]),
    ):
        result = ask(storm, "explain", "deploy/storm", kubeconfig=acting_as(storm, name, tmp_path))
    assert " refused" in result.stdout.splitlines()[0]
    assert "replicasets (so who owns a pod was told by names)" in result.stderr


def test_a_user_of_the_namespace_alone_gets_what_the_kubelet_and_the_scheduler_said(
    storm: Cluster, tmp_path: Path
) -> None:
    name = "bea"
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    with there(storm, BINDINGS, "RoleBinding", {"name": name}, roleRef=reference, subjects=[user]):
        result = ask(storm, "explain", "deploy/storm", kubeconfig=acting_as(storm, name, tmp_path))
    assert result.exit_code == 3, result.output
    assert "is unknown: you may not read what it publishes" in result.stdout
    assert "then: Resources cannot be allocated with Topology locality" in result.stdout
    assert len(result.stderr.splitlines()) == 1
    assert "nodetopologies (so no node's answer is known" in result.stderr
