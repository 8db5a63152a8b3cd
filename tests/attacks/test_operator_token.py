"""What a stolen token of the operator's account creates on a real API server: nothing that leads to more rights."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.attacks.conftest import PLAIN, new_namespace
from tests.deploy.api import API
from tests.waiting import eventually

from topomend.wire import group

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

OURS = {group.RECORD_ANNOTATION: "train-9-7c2f1d0e55", group.REPLACES_ANNOTATION: "0f3e1a52"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"

_names = (f"replacement-{number}" for number in count())


def replacement(
    container: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A replacement as the operator creates it, but for what is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": next(_names), "annotations": OURS | (annotations or {})},
        "spec": {
            "containers": [{"name": "c", "image": "none", **(container or {})}],
            "schedulingGates": [{"name": group.RELAUNCH_GATE}],
            **spec,
        },
    }


def with_context(**context: Any) -> dict[str, Any]:
    return replacement({"securityContext": context})


def with_pod_context(**context: Any) -> dict[str, Any]:
    return replacement(securityContext=context)


def with_capability(name: str) -> dict[str, Any]:
    return with_context(capabilities={"add": [name]})


PROBE = {"httpGet": {"port": 80, "host": "169.254.169.254"}}

BEYOND_BASELINE = {
    "host network": replacement(hostNetwork=True),
    "host processes": replacement(hostPID=True),
    "host IPC": replacement(hostIPC=True),
    "host path": replacement(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "host port": replacement({"ports": [{"containerPort": 80, "hostPort": 80}]}),
    "privileged": with_context(privileged=True),
    "privileged init container": replacement(
        initContainers=[{"name": "i", "image": "none", "securityContext": {"privileged": True}}]
    ),
    "SYS_ADMIN": with_capability("SYS_ADMIN"),
    "SYS_MODULE": with_capability("SYS_MODULE"),
    "DAC_READ_SEARCH": with_capability("DAC_READ_SEARCH"),
    "NET_RAW": with_capability("NET_RAW"),
    "ALL": with_capability("ALL"),
    "seccomp of the container": with_context(seccompProfile={"type": "Unconfined"}),
    "seccomp of the pod": with_pod_context(seccompProfile={"type": "Unconfined"}),
    "AppArmor of the container": with_context(appArmorProfile={"type": "Unconfined"}),
    "AppArmor of the pod": with_pod_context(appArmorProfile={"type": "Unconfined"}),
    "AppArmor by annotation": replacement(
        annotations={"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
    ),
    "SELinux type": with_context(seLinuxOptions={"type": "spc_t"}),
    "SELinux role of the pod": with_pod_context(seLinuxOptions={"role": "sysadm_r"}),
    "sysctl": with_pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "probe of another host": replacement({"livenessProbe": PROBE}),
    "hook of another host": replacement({"lifecycle": {"preStop": PROBE}}),
}

BASELINE = {
    "capabilities": with_context(capabilities={"add": ["NET_BIND_SERVICE", "CHOWN"], "drop": ["ALL"]}),
    "the capability of RDMA": with_capability("IPC_LOCK"),
    "profiles": with_context(
        seccompProfile={"type": "RuntimeDefault"},
        appArmorProfile={"type": "RuntimeDefault"},
        seLinuxOptions={"type": "container_t", "level": "s0:c1,c2"},
    ),
    "sysctl": with_pod_context(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "1"}]),
    "proc of a pod without the host's users": replacement(
        {"securityContext": {"procMount": "Unmasked"}}, hostUsers=False
    ),
    "probes": replacement(
        {"livenessProbe": {"httpGet": {"port": 80}}, "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}}}
    ),
    "ports": replacement({"ports": [{"containerPort": 80}]}),
}


@pytest.fixture(scope="module")
def thief(operator: API, plain: str) -> API:
    """Whoever has the token, once the policy is in force."""
    eventually("the policy", lambda: operator.create(f"{plain}/pods", replacement(hostNetwork=True)).code == 403)
    return operator


@pytest.mark.parametrize("content", BEYOND_BASELINE.values(), ids=BEYOND_BASELINE)
def test_the_token_creates_no_pod_beyond_pod_securitys_baseline(
    thief: API, plain: str, content: dict[str, Any]
) -> None:
    answer = thief.create(f"{plain}/pods", content)
    assert (answer.code, "only in a namespace labelled" in answer.message) == (403, True), answer.content


@pytest.mark.parametrize("content", BEYOND_BASELINE.values(), ids=BEYOND_BASELINE)
def test_kubernetes_own_baseline_rejects_the_same_pods(admin: API, baseline: str, content: dict[str, Any]) -> None:
    """So that the list of the policy has nothing that the standard does not have."""
    answer = admin.create(f"{baseline}/pods", content)
    assert (answer.code, 'violates PodSecurity "baseline' in answer.message) == (403, True), answer.content


@pytest.fixture(scope="module")
def baseline(admin: API) -> Iterator[str]:
    """The path of a namespace that enforces the level."""
    path = new_namespace(admin, "attacks-baseline", **{"pod-security.kubernetes.io/enforce": "baseline"})
    yield path
    admin.delete(path)


@pytest.mark.parametrize("content", BASELINE.values(), ids=BASELINE)
def test_pods_of_the_baseline_are_relaunched(thief: API, plain: str, content: dict[str, Any]) -> None:
    created = thief.create(f"{plain}/pods", content)
    assert created.allowed, created.message


@pytest.fixture
def account_of(admin: API, plain: str) -> Iterator[Callable[[dict[str, Any]], str]]:
    """Accounts with one rule each, over the whole cluster."""
    made = []

    def with_rule(rule: dict[str, Any]) -> str:
        name = next(_names)
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": f"attacks-{name}"}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": PLAIN}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"attacks-{name}"}
        assert admin.create(f"{plain}/serviceaccounts", account).allowed
        assert admin.create(f"{RBAC}/clusterroles", head | {"kind": "ClusterRole", "rules": [rule]}).allowed
        binding = head | {"kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": reference}
        assert admin.create(f"{RBAC}/clusterrolebindings", binding).allowed
        made.append(f"attacks-{name}")
        return name

    yield with_rule
    for name in made:
        admin.delete(f"{RBAC}/clusterrolebindings/{name}")
        admin.delete(f"{RBAC}/clusterroles/{name}")


def rule(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


@pytest.mark.parametrize(
    "power",
    [
        rule("*", "*", "*"),
        rule("", "secrets", "get"),
        rule("", "pods", "create"),
        rule("", "pods/exec", "create"),
        rule("", "serviceaccounts/token", "create"),
        rule("", "users", "impersonate"),
        rule("apps", "daemonsets", "create"),
        rule("rbac.authorization.k8s.io", "clusterroles", "escalate"),
        rule("rbac.authorization.k8s.io", "*", "*"),
    ],
    ids=str,
)
def test_the_token_creates_no_pod_of_an_account_with_rights_over_the_cluster(
    thief: API, plain: str, account_of: Callable[[dict[str, Any]], str], power: dict[str, Any]
) -> None:
    name = account_of(power)

    def is_denied() -> bool:
        answer = thief.create(f"{plain}/pods", replacement(serviceAccountName=name))
        return answer.code == 403 and "has rights over the whole cluster" in answer.message

    eventually("the role", is_denied)


def test_a_pod_of_an_account_that_reads_the_clusters_nodes_is_relaunched(
    thief: API, plain: str, account_of: Callable[[dict[str, Any]], str]
) -> None:
    created = thief.create(f"{plain}/pods", replacement(serviceAccountName=account_of(rule("", "nodes", "list"))))
    assert created.allowed, created.message
