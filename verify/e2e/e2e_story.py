"""topomend as a user installs it: the image, unchanged ``deploy/``, real containers. One story; the tests run in order.

topomend is installed by the first test; each leaves no pod of its own. At the end kubectl uninstalls it, and helm takes
over what kubectl has installed anew.
TOPOMEND_KUBERNETES names the release of the control plane and the kubelets. The figures are written to FIGURES.
"""

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from deploy.helm.chart import CHART
from tests.clusters import COLLECTOR_SECONDS
from tests.waiting import TimedOut, eventually, stretched
from verify.e2e import images
from verify.e2e.conftest import MINOR, NEXT_TAG, RELEASE, TAG
from verify.e2e.containers.api import Object
from verify.e2e.containers.cluster import Cluster
from verify.e2e.containers.node import Node
from verify.e2e.containers.programs import Failed
from verify.e2e.steps.installed import (
    AGENT,
    APPLIED,
    BRAKED,
    DRAINED,
    EXPLAINED,
    FIGURES,
    LEASE,
    OPERATOR,
    RELAUNCHED,
    SELFTESTED,
    Installed,
    name_of,
    uid_of,
)
from verify.e2e.steps.pods import (
    NAMESPACE,
    NODE_TOPOLOGIES,
    PODS,
    allowed_cpus,
    bound_pod,
    claiming_pod,
    deployment,
    has_run,
    is_gated,
    is_refused,
    is_running,
    is_unschedulable,
    marks_on,
    pod,
    stubborn_pod,
    template,
)
from verify.kueue import kueue

from topomend.model.quantity import parse_quantity, value
from topomend.sandbox.releases.go_modules import OLDEST_MINOR
from topomend.wire.group import CREATOR_ANNOTATION, PLACEHOLDER_GATE, SELFTEST_LABEL
from topomend.wire.queued_workload import API_VERSION, counts_as_active

HERE, THERE = "node-1", "node-2"
CONFIGZ_MINOR = 33
"""Since Kubernetes 1.33 the right ``nodes/configz`` is enough to read a kubelet's configuration (KEP-2862)."""

POLICY_MINOR = 36
"""Since Kubernetes 1.36 the API server serves MutatingAdmissionPolicies by default."""

CLAIMS_MINOR = 34
"""Since Kubernetes 1.34 the API server serves resource.k8s.io/v1."""

WITH_ROLES = ("claims", "defragment", "kueue")
"""The components that give the operator a flag of their name and a role, ``topomend-NAME``."""

CURE = "kubeadm"
"""The component that cures the agents of these nodes, whose layout is kubeadm's, where kubelets refuse configz."""

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CLAIMS = "/apis/resource.k8s.io/v1"
KUEUE = f"/apis/{API_VERSION}"
KINDS_OF_KUEUE = ("admissionchecks", "clusterqueues", "localqueues", "resourceflavors", "workloads")
TRAIN = ("workloads.kueue.x-k8s.io", "train")
"""Kubernetes has a kind Workload of its own."""

TAKE = ("--take-ownership", "--force-conflicts")
"""kubectl owns the fields that it has applied; helm 4 applies by the server too."""

NEW_PODS = 100
LIVES = 10
"""How many pods are created, refused and relaunched during the upgrade."""


@pytest.fixture(scope="module")
def story(archives: Mapping[str, Path]) -> Iterator[Installed]:
    began = time.monotonic()
    imported = list(archives.values())
    with Cluster.up([Node(HERE), Node(THERE)], imported, pause=images.IDLE, release=RELEASE) as cluster:
        print(f"\nthe cluster of {RELEASE} is up after {time.monotonic() - began:.1f} s")
        running = Installed.to_be(cluster)
        yield running
        print(f"\n\nMeasured on containers of {RELEASE}, as installed:")
        for name, figure in running.figures.items():
            print(f"  {name:42} {figure}")
        FIGURES.mkdir(parents=True, exist_ok=True)
        (FIGURES / f"{RELEASE}.json").write_text(json.dumps(running.figures, indent=2))


@pytest.fixture(autouse=True)
def no_pod_is_left(story: Installed) -> Iterator[None]:
    yield
    story.clear()


@pytest.mark.skipif(MINOR >= CONFIGZ_MINOR, reason="kubelets answer nodes/configz")
def test_where_kubelets_refuse_configz_check_and_condition_name_the_component_that_cures_it(story: Installed) -> None:
    story.apply(Path("deploy"))
    for node in (HERE, THERE):
        eventually(f"{node} to be published", partial(_is_read, story, node), 30)
        status, reason, message = story.condition(node, "KubeletConfigRead")
        assert (status, reason) == ("False", "NotGiven")
        assert ("before 1.31" if MINOR == OLDEST_MINOR else "before 1.33 wants nodes/proxy") in message
        assert f"deploy/components/{CURE}" in message
    with pytest.raises(Failed, match=f"deploy/components/{CURE}"):
        story.cluster.numa("check")
    story.components.append(CURE)


def test_agents_and_operators_are_ready_soon_after_kubectl_apply(story: Installed, tmp_path: Path) -> None:
    began = time.monotonic()
    story.install([HERE, THERE], story.manifests(tmp_path) if story.components else Path("deploy"))
    story.figures[APPLIED] = f"{time.monotonic() - began:.1f} s"
    source = "ConfigzUnavailable" if story.components else "ReadFromConfigz"
    for node in (HERE, THERE):
        assert story.condition(node, "KubeletConfigRead")[:2] == ("True", source)
        kubelet = story.cluster.api.get(f"{NODE_TOPOLOGIES}/{node}")["status"]["kubelet"]
        assert (kubelet["version"], kubelet["topologyManagerPolicy"]) == (RELEASE, "single-numa-node")
        assert kubelet["cpuManagerPolicy"] == "static"
    assert "Nothing is wrong: " in story.cluster.numa("check", "--wait", "60")
    assert {item["spec"]["nodeName"] for item in story.ours() if name_of(item).startswith("topomend-operator")} == {
        HERE,
        THERE,
    }
    assert {item["spec"]["containers"][0]["image"] for item in story.ours()} == {f"topomend:{TAG}"}


def test_new_pods_have_their_creators_stamp_by_what_the_api_server_has(story: Installed) -> None:
    """By policies, or before 1.36 by the operator's webhooks alone."""
    eventually(
        "new pods to be stamped", lambda: CREATOR_ANNOTATION in story.tried()["metadata"].get("annotations", {}), 30
    )
    # Beside policies, only what they may miss has a webhook.
    needed = {
        f"topomend-{name}" for name in ("steer", *(("brake", "changes", "creator") if MINOR < POLICY_MINOR else ()))
    }
    eventually("the webhooks", lambda: needed <= set(_configured_webhooks(story)), 30)


def test_a_pod_with_an_exclusive_cpu_has_it_and_no_other_process_may_use_it(story: Installed) -> None:
    story.fill(HERE, "alone")
    _, cpus = story.wait_until_published("alone")
    assert cpus == allowed_cpus(story.cluster, "alone")
    assert cpus.isdigit()
    for other in story.ours():
        if other["spec"]["nodeName"] == HERE:
            (container,) = other["spec"]["containers"]
            processes = story.cluster.processes(other, container["name"])
            goal = f"{name_of(other)} to leave CPU {cpus}"
            eventually(goal, partial(_leave, processes, int(cpus)), 15)


def test_a_selftest_agrees_and_leaves_nothing_to_anybody(story: Installed) -> None:
    began = time.monotonic()
    asked = ("selftest", HERE, "--yes", "--image", images.IDLE, "-o", "json")
    answer = json.loads(story.cluster.numa(*asked, seconds=600.0))
    seconds = time.monotonic() - began
    cases = answer["cases"]
    story.figures[SELFTESTED] = f"{answer['counts']['agrees']} of {len(cases)} cases agree, {seconds:.0f} s"
    assert answer["counts"] == {"agrees": len(cases), "differs": 0, "unsure": 0, "notTried": 0}, cases
    assert answer["notes"] == []
    cpus = {case["name"]: [each["cpus"] for each in case["happened"]["containers"]] for case in cases}
    assert cpus["shared-cpu"] == []
    assert [one.isdigit() for one in cpus["one-cpu"]] == [True]
    namespaces = story.cluster.api.items("/api/v1/namespaces")
    assert [name_of(item) for item in namespaces if SELFTEST_LABEL in _labels(item)] == []
    tried = [moment.object for moment in story.pods.moments() if SELFTEST_LABEL in _labels(moment.object)]
    assert {name_of(item) for item in tried} == {case["name"] for case in cases}
    assert not any(is_gated(item) or item["metadata"].get("finalizers") for item in tried)


def test_a_refused_pod_is_explained_and_runs_on_the_other_node_with_exactly_its_cpus(story: Installed) -> None:
    explained, running = story.relaunch("pod", HERE, THERE)
    story.figures[EXPLAINED] = f"{explained:.2f} s"
    story.figures[RELAUNCHED] = f"{running:.2f} s"
    node, cpus = story.wait_until_published("pod-2")
    assert (node, cpus) == (THERE, allowed_cpus(story.cluster, "pod-2"))
    assert cpus.isdigit()
    (record,) = story.cluster.api.items(f"/apis/topomend.io/v1alpha1/namespaces/{NAMESPACE}/relaunches")
    conditions = {condition["type"]: condition["status"] for condition in record["status"]["conditions"]}
    assert conditions["Succeeded"] == "True", record["status"]
    explanation = story.cluster.kubectl("get", "events", "--field-selector=reason=TopologyRefusalExplained")
    assert "pod-2" in explanation


def test_a_deployment_that_no_node_has_room_for_is_braked_and_runs_once_there_is_room(story: Installed) -> None:
    replicas = 2
    fillers = {HERE: "here", THERE: "there"}
    for node, name in fillers.items():
        story.fill(node, name)
    story.cluster.api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment("storm", HERE, replicas))

    def waiting() -> bool:
        gated = [item for item in _storm(story) if is_gated(item)]
        return len(gated) == replicas

    eventually("all replicas to wait behind a gate", waiting, 30)
    # The operator tells them of a pod that has waited for five seconds: a storm would make hundreds in that time.
    eventually("autoscalers to count them", lambda: sum(map(_is_counted, _storm(story))) == replicas, 30)
    refused = {
        uid_of(moment.object)
        for moment in story.pods.moments()
        if _is_storm(moment.object) and is_refused(moment.object)
    }
    story.figures[BRAKED] = str(len(refused))
    assert waiting()
    assert 1 <= len(refused) <= stretched(3 * replicas)  # the operator races the controller that makes them
    assert not any(is_running(item) for item in _storm(story))
    before = time.monotonic()
    story.cluster.kubectl("delete", "pod", *fillers.values(), f"--namespace={NAMESPACE}")
    eventually("both to run", lambda: sum(map(is_running, _storm(story))) == replicas, 60)
    story.figures["room made to a braked Deployment running"] = f"{time.monotonic() - before:.1f} s"
    assert {item["spec"]["nodeName"] for item in _storm(story) if is_running(item)} == {HERE, THERE}


def test_another_operator_leads_after_the_leader_is_deleted(story: Installed) -> None:
    before = story.leader()
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer=enabled")
    eventually("new pods to be gated", story.gates_new_pods, 30)
    began = time.monotonic()
    story.cluster.kubectl("delete", "pod", name_of(before), f"--namespace={OPERATOR}", "--wait=false")
    gated, seconds = 0, []
    for _ in range(NEW_PODS):
        asked = time.monotonic()
        gated += story.gates_new_pods()
        seconds.append(time.monotonic() - asked)
        time.sleep(0.1)
    after = eventually("the next leader", lambda: _other_leader(story, before), 60)
    story.figures["leader deleted to next leader"] = f"{after - began:.1f} s"
    story.figures["new pods gated meanwhile"] = f"{gated} of {NEW_PODS}"
    story.figures["a request for a new pod, median and worst"] = (
        f"{1000 * sorted(seconds)[NEW_PODS // 2]:.0f} ms, {1000 * max(seconds):.0f} ms"
    )
    assert gated == NEW_PODS
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer-")
    story.wait_for_rollout()
    eventually("new pods not to be gated", lambda: not story.gates_new_pods(), 30)
    story.relaunch("after-deletion", HERE, THERE)


def test_an_operator_leads_after_the_leader_is_killed(story: Installed) -> None:
    story.wait_for_rollout()
    before = story.leader()
    began = time.monotonic()
    for process in story.cluster.processes(before, "operator"):
        os.kill(process, signal.SIGKILL)
    story.killed.add(name_of(before))
    # One that is started again in the same pod takes its Lease up at once; else the other one does when it is over.
    last = _lease(story)["renewTime"]
    eventually("a leader that renews the Lease", lambda: _lease(story)["renewTime"] != last, 60)
    story.figures["leader killed to next leader"] = f"{time.monotonic() - began:.1f} s"
    story.relaunch("after-kill", HERE, THERE)


def test_an_upgrade_while_pods_are_refused_loses_none_and_doubles_none(story: Installed) -> None:
    story.read_memory()
    for kind, namespace, container in (("daemonset", AGENT, "agent"), ("deployment", OPERATOR, "operator")):
        workload = f"{kind}/topomend-{container}"
        story.cluster.kubectl("set", "image", workload, f"{container}=topomend:{NEXT_TAG}", f"--namespace={namespace}")
    names = [f"life-{number}" for number in range(LIVES)]
    for name in names:
        story.cluster.api.create(PODS, stubborn_pod(name, HERE, "for", "1s"))
        time.sleep(0.7)
    story.wait_for_rollout()

    def unfinished() -> list[str]:
        phases = {name_of(item): item["status"].get("phase") for item in story.cluster.api.items(PODS)}
        return [name for name in names if phases.get(name) != "Succeeded"]

    began = time.monotonic()
    eventually("every pod to have run", lambda: not unfinished(), 120)
    story.figures["upgraded to every refused pod run"] = f"{time.monotonic() - began:.1f} s"
    moments = [moment.object for moment in story.pods.moments() if name_of(moment.object) in names]
    refused = {name_of(item) for item in moments if is_refused(item)}
    story.figures["pods refused during the upgrade"] = f"{len(refused)} of {LIVES}"
    assert refused
    assert {
        name: len({uid_of(item) for item in moments if name_of(item) == name and has_run(item)}) for name in names
    } == (dict.fromkeys(names, 1))
    assert {item["spec"]["containers"][0]["image"] for item in story.ours()} == {f"topomend:{NEXT_TAG}"}
    story.clear()
    story.relaunch("after-upgrade", HERE, THERE)


def test_check_finds_the_rights_of_components_that_are_added(story: Installed, tmp_path: Path) -> None:
    definitions = [kind for kind in kueue.kinds() if kind["spec"]["names"]["plural"] in KINDS_OF_KUEUE]
    of_kueue = {"apiVersion": "v1", "kind": "List", "items": definitions}
    story.cluster.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(of_kueue))
    images_of_now = [{"name": "topomend", "newTag": NEXT_TAG}]
    story.apply(story.manifests(tmp_path, *WITH_ROLES, "placeholders", images=images_of_now))
    story.leader()
    told = story.cluster.numa("check", "--wait", "60")
    assert ("TM120" in told) == (MINOR < CLAIMS_MINOR), told


def test_with_the_component_kueue_a_workload_is_answered(story: Installed) -> None:
    """The test does what Kueue's controllers would do: it gives the workload quota, and asks the check."""
    story.cluster.kubectl("apply", "--server-side", "--filename=examples/kueue/queue.yaml")
    eventually("the check to be active", lambda: _is_answered(story), 30)
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": template(HERE)}}], "queueName": "numa"}
    head = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": "train"}}
    story.cluster.api.create(f"{KUEUE}/namespaces/{NAMESPACE}/workloads", {**head, "spec": spec})
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "linux"}, "resourceUsage": {"cpu": "1"}}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = {"name": "numa-fit", "state": "Pending", "message": "", "lastTransitionTime": now}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    status = {
        "admission": {"clusterQueue": "numa", "podSetAssignments": [assigned]},
        "conditions": [{**reserved, "lastTransitionTime": now}],
        "admissionChecks": [asked],
    }
    began = time.monotonic()
    patch = json.dumps({"status": status})
    story.cluster.kubectl("patch", *TRAIN, "--subresource=status", "--type=merge", f"--patch={patch}")
    answer = eventually("an answer", lambda: _answer(story), 30)
    story.figures["asked by Kueue to answered"] = f"{time.monotonic() - began:.1f} s"
    assert answer["state"] == "Ready", answer
    assert re.fullmatch(r"1 pod fits by replay: 1 on node-[12]", answer["message"]), answer
    ended = '--patch={"spec": {"active": false}}'  # its place is held no longer
    story.cluster.kubectl("patch", *TRAIN, "--type=merge", ended)


@pytest.mark.skipif(MINOR < CLAIMS_MINOR, reason="API servers before 1.34 serve no resource.k8s.io/v1")
def test_with_the_component_claims_a_gated_pod_with_a_claim_is_let_go(story: Installed) -> None:
    """No driver offers its device, so no node is preferred; what is read of claims would be complained about if not."""
    named = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "device"}}
    requests = [{"name": "one", "exactly": {"deviceClassName": "device"}}]
    story.cluster.api.create(f"{CLAIMS}/deviceclasses", {**named, "kind": "DeviceClass", "spec": {}})
    claim = {**named, "kind": "ResourceClaim", "spec": {"devices": {"requests": requests}}}
    story.cluster.api.create(f"{CLAIMS}/namespaces/{NAMESPACE}/resourceclaims", claim)
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer=enabled")
    eventually("new pods to be gated", story.gates_new_pods, 30)
    story.cluster.api.create(PODS, claiming_pod("claims", HERE, "device"))
    eventually("the pod to be let go", lambda: not is_gated(story.cluster.api.get(f"{PODS}/claims")), 30)
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer-")


def test_with_the_component_defragment_the_verb_has_nothing_to_move(story: Installed) -> None:
    with pytest.raises(Failed, match="no pod can be moved"):
        story.cluster.numa("defragment", "--dry-run")
    assert story.leader()["spec"]["containers"][0]["args"][-4:-1] == [f"--{name}" for name in WITH_ROLES]


def test_with_the_component_placeholders_autoscalers_count_a_pod_that_waits_for_a_node(story: Installed) -> None:
    story.fill(THERE, "there")
    story.fill(HERE, "here")
    story.cluster.api.create(PODS, bound_pod("asks", HERE))
    refused = story.refusal("asks")
    placeholder = eventually("a placeholder that autoscalers count", lambda: _counted(story), 60)
    story.figures["refused to counted by autoscalers"] = f"{time.monotonic() - refused:.1f} s"
    (container,) = placeholder["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": str(32 << 20)}
    story.cluster.kubectl("delete", "pod", "there", f"--namespace={NAMESPACE}")
    _, item = story.running("asks", refused)
    assert item["spec"]["nodeName"] == THERE
    eventually("no placeholder to be left", lambda: _placeholders(story) == [], 10)


def test_no_container_of_topomend_was_restarted(story: Installed) -> None:
    restarts = {
        name_of(moment.object): status["restartCount"]
        for moment in story.pods.moments()
        if moment.object["metadata"]["namespace"] in (AGENT, OPERATOR)
        for status in moment.object["status"].get("containerStatuses", ())
        if status["restartCount"]
    }
    assert restarts == dict.fromkeys(story.killed, 1)


def test_no_container_of_topomend_logged_an_unexpected_line(story: Installed) -> None:
    assert story.unexpected_lines() == []


def test_containers_stay_below_the_memory_that_the_manifests_allow(story: Installed) -> None:
    story.read_memory()
    limits = {
        container["name"]: value(parse_quantity(container["resources"]["limits"]["memory"]))
        for item in story.ours()
        for container in item["spec"]["containers"]
    }
    for name, memory in story.memory.items():
        story.figures[f"memory of the {name}'s container"] = (
            f"{memory.working_set / 2**20:.0f} MiB, with pages of files {memory.peak / 2**20:.0f} MiB at most"
            f" (limit {limits[name] / 2**20:.0f} MiB)"
        )
    assert {name: memory.peak < limits[name] for name, memory in story.memory.items()} == dict.fromkeys(limits, True)


def test_a_drain_removes_topomend_from_every_pod(story: Installed) -> None:
    story.relaunch("moved", HERE, THERE)
    story.cluster.api.create(PODS, pod("refused", HERE))
    story.explained("refused")
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer=enabled")
    eventually("new pods to be gated", story.gates_new_pods, 30)
    story.cluster.api.create(PODS, pod("steered", HERE))
    assert is_gated(story.cluster.api.get(f"{PODS}/steered"))
    before = {name_of(item): uid_of(item) for item in story.cluster.api.items(PODS)}
    with pytest.raises(Failed, match="not drained: ClusterQueue numa: it asks admission check numa-fit"):
        story.cluster.numa("drain", "--dry-run")
    story.cluster.kubectl("delete", "clusterqueue", "numa")
    began = time.monotonic()
    print(story.cluster.numa("drain"))
    story.figures[DRAINED] = f"{time.monotonic() - began:.1f} s"
    story.cluster.api.create(PODS, pod("later", HERE))
    pods = story.cluster.api.items(PODS)
    assert {name_of(item): uid_of(item) for item in pods if name_of(item) != "later"} == before
    assert {name_of(item): marks for item in pods if (marks := marks_on(item))} == {}
    assert story.cluster.api.items(f"/api/v1/namespaces/{OPERATOR}/pods") == []
    assert _configured_webhooks(story) == []
    assert not _is_answered(story)
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer-")


def test_kubectl_delete_leaves_no_object_of_topomend(story: Installed, tmp_path: Path) -> None:
    story.fill(HERE, "stays")
    before = {name_of(item): uid_of(item) for item in story.cluster.api.items(PODS)}
    began = time.monotonic()
    installed = str(story.manifests(tmp_path, *WITH_ROLES))
    story.cluster.kubectl("delete", "--ignore-not-found", "-k", installed, "--timeout=100s", seconds=150)
    story.figures["kubectl delete"] = f"{time.monotonic() - began:.1f} s"
    # What belonged to deleted objects goes by the garbage collector, and a kind's name a moment after the kind.
    with suppress(TimedOut):
        eventually("nothing to be left", lambda: not _left(story), COLLECTOR_SECONDS)
    assert _left(story) == []
    after = story.cluster.api.items(PODS)
    assert {name_of(item): uid_of(item) for item in after if is_running(item)} == before
    assert not any(is_gated(item) or item["metadata"].get("finalizers") for item in after)


def test_helm_takes_over_what_kubectl_has_applied(story: Installed, tmp_path: Path) -> None:
    story.install([HERE, THERE], story.manifests(tmp_path, *WITH_ROLES))
    before = {uid_of(item) for item in story.cluster.api.items(NODE_TOPOLOGIES)}
    values = [f"--set={name}.enabled=true" for name in WITH_ROLES]
    values += [f"--set=kubelet.layout={CURE}"] if story.components else []
    began = time.monotonic()
    wait = ("--wait", "--timeout=100s")
    story.cluster.helm("install", "topomend", str(CHART), *TAKE, *values, *wait)
    story.figures["helm install over kubectl apply"] = f"{time.monotonic() - began:.1f} s"
    story.wait_until_it_works([HERE, THERE])
    assert {uid_of(item) for item in story.cluster.api.items(NODE_TOPOLOGIES)} == before
    told = story.cluster.numa("check", "--wait", "60")
    assert ("TM120" if MINOR < CLAIMS_MINOR else "Nothing is wrong: ") in told, told
    eventually("the check to be active", lambda: _is_answered(story), 30)
    story.relaunch("taken-over", HERE, THERE)
    story.clear()
    story.cluster.helm("uninstall", "topomend", *wait)
    assert story.ours() == []
    assert not _is_answered(story)


def _is_read(story: Installed, node: str) -> bool:
    """Whether the node's agent has said if it could read the kubelet's configuration."""
    return story.condition(node, "KubeletConfigRead") != ("", "", "")


def _configured_webhooks(story: Installed) -> list[str]:
    """The configurations of topomend that name a webhook."""
    ours = [item for item in story.cluster.api.items(WEBHOOKS) if name_of(item).startswith("topomend-")]
    return sorted(name_of(item) for item in ours if item.get("webhooks"))


def _left(story: Installed) -> list[str]:
    """The kinds and objects of topomend, or why they cannot be listed: kinds go while they are."""
    try:
        kinds = ",".join(story.cluster.kubectl("api-resources", "--verbs=list", "--output=name").split())
        every = ("get", kinds, "--all-namespaces", "--output=name")
        ours = story.cluster.kubectl(*every, "--selector=app.kubernetes.io/part-of=topomend").split()
        names = story.cluster.kubectl(*every).split()
    except Failed as failure:
        return [str(failure)]
    named = [name for name in names if "topomend" in name and "topomend-e2e:nodes" not in name]
    return [*(kind for kind in kinds.split(",") if "topomend.io" in kind), *ours, *named]


def _is_answered(story: Installed) -> bool:
    """Whether the AdmissionCheck says so."""
    return counts_as_active(story.cluster.api.get(f"{KUEUE}/admissionchecks/numa-fit"))


def _answer(story: Installed) -> Object | None:
    """The check's entry in the workload's status, once it is answered."""
    workload = story.cluster.api.get(f"{KUEUE}/namespaces/{NAMESPACE}/workloads/train")
    (check,) = workload["status"]["admissionChecks"]
    return None if check["state"] == "Pending" else dict(check)


def _placeholders(story: Installed) -> list[Object]:
    gate = {"name": PLACEHOLDER_GATE}
    pods = story.cluster.api.items(f"/api/v1/namespaces/{OPERATOR}/pods")
    return [item for item in pods if gate in item["spec"].get("schedulingGates", ())]


def _counted(story: Installed) -> Object | None:
    """The one placeholder, once autoscalers count it."""
    counted = [item for item in _placeholders(story) if is_unschedulable(item)]
    return counted[0] if len(counted) == 1 else None


def _other_leader(story: Installed, before: Object) -> float | None:
    """Wait until another pod than ``before`` leads; the time then."""
    holder = _lease(story).get("holderIdentity") or ""
    return None if holder in {"", f"{name_of(before)}_{uid_of(before)}"} else time.monotonic()


def _lease(story: Installed) -> Object:
    spec: Object = story.cluster.api.get(LEASE)["spec"]
    return spec


def _storm(story: Installed) -> list[Object]:
    return [item for item in story.cluster.api.items(PODS) if _is_storm(item)]


def _is_counted(item: Object) -> bool:
    """Whether it waits gated and autoscalers count it."""
    return is_gated(item) and is_unschedulable(item)


def _labels(item: Object) -> Object:
    labels: Object = item["metadata"].get("labels", {})
    return labels


def _is_storm(item: Object) -> bool:
    return bool(item["metadata"].get("labels", {}).get("app") == "storm")


def _leave(processes: list[int], cpu: int) -> bool:
    """Whether no process may use the CPU."""
    return not any(cpu in os.sched_getaffinity(process) for process in processes)
