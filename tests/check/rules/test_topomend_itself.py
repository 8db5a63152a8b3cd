"""Each fault of topomend itself is named by its code and by no other, and a sound installation has none."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from deploy.manifests import INSTALL, objects
from tests.builders import node_state
from tests.check.cluster import NOW, codes, facts_of, findings, node_object, published

from topomend.check.facts import AdmissionCheck, Authority, Facts, Kind, Lease, Malformed, Policy, Right, Workload
from topomend.check.finding import Subject
from topomend.check.installed_objects import (
    read_daemon_set,
    read_deployment,
    read_kind,
    read_lease,
    read_own_pod,
    read_parameter,
    read_policies,
)
from topomend.check.shipped import Names, Shipped
from topomend.runtime.manifests import documents

Object = dict[str, Any]

SHIPPED = Shipped(documents(INSTALL.read_text()))
MANIFESTS = {(item["kind"], item["metadata"]["name"]): item for item in objects()}


def running(kind: str, name: str, **status: int) -> Object:
    """A workload of the manifests whose pods are all ready."""
    ready = {"readyReplicas": 2, "desiredNumberScheduled": 1, "numberReady": 1}
    return {**MANIFESTS[kind, name], "status": {**ready, **status}}


def own_pod(component: str, name: str, node: str = "a", **status: Any) -> Object:
    labels = {"app.kubernetes.io/component": component}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    namespace = "topomend-system" if component == "operator" else "topomend-agent"
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node},
        "status": {**ready, **status},
    }


def parameter(kind: str, name: str, **fields: Any) -> Object:
    valid = {"validUntil": "2026-01-01T12:09:00Z"}
    return {"kind": kind, "metadata": {"name": name, "namespace": "topomend-system"}, **valid, **fields}


LEASE = {
    "metadata": {"name": "topomend-operator", "namespace": "topomend-system"},
    "spec": {"holderIdentity": "o-1_uid", "renewTime": "2026-01-01T11:59:58.000000Z"},
}

OPERATOR = read_deployment(running("Deployment", "topomend-operator"))
AGENTS = read_daemon_set(running("DaemonSet", "topomend-agent"))
VALIDATING = read_policies(
    [item for (kind, _), item in MANIFESTS.items() if kind == "ValidatingAdmissionPolicy"],
    [item for (kind, _), item in MANIFESTS.items() if kind == "ValidatingAdmissionPolicyBinding"],
)
CONFIGURATIONS = [name for kind, name in MANIFESTS if kind == "MutatingWebhookConfiguration"]


def sound(**fields: Any) -> Facts:
    """What is read of topomend as the manifests install it; ``fields`` are those that differ."""
    state = node_state()
    known: dict[str, Any] = {
        "kinds": tuple(read_kind(name, schema, schema) for name, _, schema in SHIPPED.schemas()),
        "operators": (OPERATOR,),
        "agents": (AGENTS,),
        "own_pods": (read_own_pod(own_pod("operator", "o-1")), read_own_pod(own_pod("agent", "a-1"))),
        "lease": read_lease(LEASE),
        "parameters": (
            read_parameter(parameter("Brake", "topomend-brake"), "Brake"),
            read_parameter(parameter("Steering", "topomend-steer"), "Steering"),
        ),
        "webhooks": dict.fromkeys(CONFIGURATIONS, False),
        "mutating_policies": dict.fromkeys(CONFIGURATIONS, True),
        "authorities": (
            Authority(Subject("MutatingWebhookConfiguration", "topomend-steer"), NOW + timedelta(days=900)),
        ),
        "certificate": Authority(Subject("Secret", "topomend-gating"), NOW + timedelta(days=300)),
        "validating_policies": VALIDATING,
        "shipped_policies": SHIPPED.policies(Names(), observes=False),
        "role_bindings": frozenset(name for kind, name in MANIFESTS if kind == "ClusterRoleBinding"),
    }
    return facts_of([node_object(state)], [published(state)], **known | fields)


def test_an_installation_as_the_manifests_have_it_has_no_finding() -> None:
    assert findings(sound()) == []


def test_a_check_of_kueue_that_is_active_and_answered_is_no_finding() -> None:
    assert findings(sound(operators=(with_flag("--kueue"),), admission_checks=(ACTIVE,))) == []


def with_flag(flag: str) -> Workload:
    """The operator as a component leaves it."""
    return replace(OPERATOR, arguments=(*OPERATOR.arguments, flag))


ACTIVE = AdmissionCheck(Subject("AdmissionCheck", "numa-fit"), active=True)
NOT_READY = replace(OPERATOR, ready=0)
OBSERVES = replace(OPERATOR, arguments=(*OPERATOR.arguments, "--mode=observe"))
SECOND = replace(OPERATOR, subject=Subject("Deployment", "topomend-operator", "other"))
CRASHING: dict[str, Any] = {
    "conditions": [{"type": "Ready", "status": "False"}],
    "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}}],
}
STEER = Subject("MutatingWebhookConfiguration", "topomend-steer")
SECRET = Subject("Secret", "topomend-gating", "topomend-system")
LATE = parameter("Brake", "topomend-brake", validUntil="2026-01-01T11:00:00Z")
BRAKE = read_parameter(parameter("Brake", "topomend-brake"), "Brake")
STEERING = read_parameter(parameter("Steering", "topomend-steer"), "Steering")

FAULTS: dict[str, tuple[Facts, set[str]]] = {
    "a kind is missing": (sound(kinds=(Kind("brakes.topomend.io", served=False), Kind("x"))), {"TM101"}),
    "a kind is old": (sound(kinds=(Kind("brakes.topomend.io", lacking=("status.new",)),)), {"TM102"}),
    "no operator": (sound(operators=()), {"TM103"}),
    "scaled to 0": (sound(operators=(replace(OPERATOR, wanted=0, ready=0),)), {"TM103"}),
    "no ready pod": (sound(operators=(NOT_READY,)), {"TM104"}),
    "one of two pods": (sound(operators=(replace(OPERATOR, ready=1),)), {"TM105"}),
    "no Lease": (sound(lease=None), {"TM106"}),
    "a Lease of nobody": (sound(lease=Lease(Subject("Lease", "topomend-operator"), "", NOW)), {"TM106"}),
    "an old Lease": (
        sound(lease=Lease(Subject("Lease", "topomend-operator"), "o-1_uid", NOW - timedelta(seconds=60))),
        {"TM106"},
    ),
    "a Lease that was never renewed": (sound(lease=Lease(Subject("Lease", "topomend-operator"), "o_1")), {"TM106"}),
    "an invalid Brake": (sound(parameters=(read_parameter(LATE, "Brake"), STEERING)), {"TM107"}),
    "no Steering": (sound(parameters=(BRAKE,)), {"TM108"}),
    "an agent of another version": (sound(agents=(replace(AGENTS, version="v0.0.9"),)), {"TM109"}),
    "an agent of another image": (sound(agents=(replace(AGENTS, image="topomend:v9"),)), {"TM109"}),
    "two installations": (sound(operators=(OPERATOR, SECOND)), {"TM110"}),
    "no agents": (sound(agents=()), {"TM111"}),
    "a node without an agent": (sound(own_pods=()), {"TM112"}),
    "an agent that crashes": (sound(own_pods=(read_own_pod(own_pod("agent", "x", **CRASHING)),)), {"TM112"}),
    "steering is not in force": (sound(mutating_policies=dict.fromkeys(CONFIGURATIONS[1:], True)), {"TM113"}),
    "no policies and no webhook": (sound(mutating_policies={}, serves_mutating_policies=False), {"TM113"}),
    "a wall is missing": (sound(validating_policies=VALIDATING | {"topomend-operator": Policy("x")}), {"TM114"}),
    "a wall for nobody": (
        sound(
            validating_policies=VALIDATING | {"topomend-agent": Policy("topomend-agent", bound=True, parameter="no")}
        ),
        {"TM115"},
    ),
    "an authority has ended": (sound(authorities=(Authority(STEER, NOW - timedelta(days=1)),)), {"TM116"}),
    "an authority is none": (sound(authorities=(Authority(STEER, fault="not PEM"),)), {"TM116"}),
    "a certificate has ended": (sound(certificate=Authority(SECRET, NOW - timedelta(days=1))), {"TM117"}),
    "a certificate ends soon": (sound(certificate=Authority(SECRET, NOW + timedelta(days=3))), {"TM117"}),
    "it observes": (sound(operators=(OBSERVES,), lease=None, parameters=(), mutating_policies={}), {"TM118"}),
    "a right is missing": (
        sound(denied=(Right("topomend-agent/topomend-agent", "get", "", "nodes", role="topomend-agent"),)),
        {"TM119"},
    ),
    "preemption is off": (
        sound(denied=(Right("s/o", "create", "", "pods/eviction", role="topomend-preemption"),)),
        {"TM120"},
    ),
    "claims are not served": (
        sound(operators=(with_flag("--claims"),), serves_claims=False),
        {"TM120"},
    ),
    "moves are off": (
        sound(denied=(Right("s/o", "create", "", "pods/eviction", role="topomend-defragment"),)),
        {"TM120"},
    ),
    "Kueue is not served": (
        sound(operators=(with_flag("--kueue"),), serves_kueue=False),
        {"TM120"},
    ),
    "an answer to Kueue is not allowed": (
        sound(denied=(Right("s/o", "patch", "kueue.x-k8s.io", "workloads/status", role="topomend-kueue"),)),
        {"TM119"},
    ),
    "Kueue asks an operator without the component": (sound(admission_checks=(ACTIVE,)), {"TM123"}),
    "Kueue asks an operator that observes": (
        sound(
            operators=(replace(OBSERVES, arguments=(*OBSERVES.arguments, "--kueue")),),
            lease=None,
            parameters=(),
            mutating_policies={},
            admission_checks=(ACTIVE,),
        ),
        {"TM118", "TM123"},
    ),
    "Kueue is not answered": (
        sound(operators=(with_flag("--kueue"),), admission_checks=(ACTIVE, replace(ACTIVE, active=False))),
        {"TM123"},
    ),
    "gating is off": (
        sound(
            denied=(Right("s/o", "get", "", "brakes", role="topomend-gating"),),
            mutating_policies=dict.fromkeys(CONFIGURATIONS, False),
        ),
        {"TM120"},
    ),
    "an object is malformed": (sound(malformed=(Malformed(Subject("Pod", "p", "n"), "spec: 7"),)), {"TM121"}),
    "the brake holds": (sound(parameters=(replace(BRAKE, owners=("n/Deployment/web",)), STEERING)), {"TM122"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_by_its_code_and_by_no_other(fault: str) -> None:
    facts, expected = FAULTS[fault]
    assert set(codes(facts)) == expected


def test_a_lease_that_is_seen_being_renewed_is_held_whatever_its_time() -> None:
    lease = Lease(Subject("Lease", "topomend-operator"), "o-1_uid", NOW - timedelta(days=1), is_alive=True)
    assert findings(sound(lease=lease)) == []


def test_what_another_version_installs_is_not_judged_by_the_manifests_of_this_one() -> None:
    older = replace(OPERATOR, version="v0.0.9")
    denied = (Right("topomend-agent/topomend-agent", "get", "", "nodes", role="topomend-agent"),)
    kinds = (Kind("brakes.topomend.io", lacking=("status.new",)),)
    facts = sound(operators=(older,), agents=(replace(AGENTS, version="v0.0.9"),), denied=denied, kinds=kinds)
    assert set(codes(replace(facts, validating_policies={}))) == {"TM109"}


def test_where_nothing_is_installed_only_that_is_said() -> None:
    facts = sound(kinds=(Kind("brakes.topomend.io", served=False),), operators=(), agents=())
    assert set(codes(facts)) == {"TM101"}


def test_a_pod_that_does_not_start_is_named_with_its_reason() -> None:
    pods = (read_own_pod(own_pod("operator", "o-1", **CRASHING)),)
    (finding,) = findings(sound(operators=(NOT_READY,), own_pods=pods), "TM104")
    assert finding.message == "none of its 2 pods is ready; o-1: CrashLoopBackOff: back-off 10s"
