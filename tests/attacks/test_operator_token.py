"""What a stolen token of the operator's account creates on a real API server: nothing that leads to more rights."""

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from deploy.manifests import objects
from tests.attacks.conftest import PLAIN, new_namespace
from tests.deploy.api import API
from tests.waiting import eventually

from topomend.wire import group
from topomend.wire.pods.scheduling import CRITICAL_CLASSES

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


def reaching_another_host(place: str, handler: str) -> dict[str, Any]:
    """A replacement whose kubelet sends requests to another host, by a probe or by a hook of this name."""
    fields = {handler: {"port": 80, "host": "169.254.169.254"}}
    return replacement({place: fields} if place.endswith("Probe") else {"lifecycle": {place: fields}})


ANOTHER_HOST = "a probe or hook of another host"
HOST_PROCESS = {"windowsOptions": {"hostProcess": True}}
"""The API server accepts it with the host's network only, and then for every container or the pod."""

BEYOND_BASELINE = {
    "host network": ("hostNetwork", replacement(hostNetwork=True)),
    "host processes": ("hostPID", replacement(hostPID=True)),
    "host IPC": ("hostIPC", replacement(hostIPC=True)),
    "host path": ("a hostPath volume", replacement(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
    "host port": ("a hostPort", replacement({"ports": [{"containerPort": 80, "hostPort": 80}]})),
    "privileged": ("a privileged container", with_context(privileged=True)),
    "privileged init container": (
        "a privileged container",
        replacement(initContainers=[{"name": "i", "image": "none", "securityContext": {"privileged": True}}]),
    ),
    "Windows host process": (
        "hostNetwork, hostProcess",
        replacement({"securityContext": HOST_PROCESS}, hostNetwork=True),
    ),
    "Windows host processes of the pod": (
        "hostNetwork, hostProcess",
        replacement(securityContext=HOST_PROCESS, hostNetwork=True),
    ),
    "SYS_ADMIN": ("a capability", with_capability("SYS_ADMIN")),
    "SYS_MODULE": ("a capability", with_capability("SYS_MODULE")),
    "DAC_READ_SEARCH": ("a capability", with_capability("DAC_READ_SEARCH")),
    "NET_RAW": ("a capability", with_capability("NET_RAW")),
    "ALL": ("a capability", with_capability("ALL")),
    "seccomp of the container": ("seccomp Unconfined", with_context(seccompProfile={"type": "Unconfined"})),
    "seccomp of the pod": ("seccomp Unconfined", with_pod_context(seccompProfile={"type": "Unconfined"})),
    "AppArmor of the container": ("AppArmor Unconfined", with_context(appArmorProfile={"type": "Unconfined"})),
    "AppArmor of the pod": ("AppArmor Unconfined", with_pod_context(appArmorProfile={"type": "Unconfined"})),
    # The API server writes the field that the annotation stands for.
    "AppArmor by annotation": (
        "AppArmor unconfined, AppArmor Unconfined",
        replacement(annotations={"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}),
    ),
    "SELinux type": ("an SELinux type", with_context(seLinuxOptions={"type": "spc_t"})),
    "SELinux type of the pod": ("an SELinux type", with_pod_context(seLinuxOptions={"type": "spc_t"})),
    "SELinux role": ("an SELinux user or role", with_context(seLinuxOptions={"role": "sysadm_r"})),
    "SELinux role of the pod": ("an SELinux user or role", with_pod_context(seLinuxOptions={"role": "sysadm_r"})),
    "SELinux user": ("an SELinux user or role", with_context(seLinuxOptions={"user": "sysadm_u"})),
    "SELinux user of the pod": ("an SELinux user or role", with_pod_context(seLinuxOptions={"user": "sysadm_u"})),
    "sysctl": ("an unsafe sysctl", with_pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}])),
} | {
    f"{handler} of {place}": (ANOTHER_HOST, reaching_another_host(place, handler))
    for place in ("livenessProbe", "readinessProbe", "startupProbe", "postStart", "preStop")
    for handler in ("httpGet", "tcpSocket")
}
"""What the policy names, and a pod with it."""

CAPABILITIES = (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT"
)
SYSCTLS = (
    "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_unprivileged_port_start net.ipv4.tcp_syncookies "
    "net.ipv4.ping_group_range net.ipv4.ip_local_reserved_ports net.ipv4.tcp_keepalive_time net.ipv4.tcp_fin_timeout "
    "net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes net.ipv4.tcp_rmem net.ipv4.tcp_wmem"
)
SELINUX_TYPES = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")


def with_selinux(**options: str) -> dict[str, Any]:
    return replacement({"securityContext": {"seLinuxOptions": options}}, securityContext={"seLinuxOptions": options})


BASELINE = {
    "capabilities": with_context(capabilities={"add": CAPABILITIES.split(), "drop": ["ALL"]}),
    "the capability of RDMA": with_capability("IPC_LOCK"),
    "profiles": with_context(seccompProfile={"type": "RuntimeDefault"}, appArmorProfile={"type": "RuntimeDefault"}),
    "SELinux level": with_selinux(level="s0:c1,c2"),
    "sysctls": with_pod_context(sysctls=[{"name": name, "value": "1"} for name in SYSCTLS.split()]),
    "masked proc": with_context(procMount="Default"),
    "proc of a pod without the host's users": replacement(
        {"securityContext": {"procMount": "Unmasked"}}, hostUsers=False
    ),
    "probes": replacement(
        {"livenessProbe": {"httpGet": {"port": 80}}, "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}}}
    ),
    "ports": replacement({"ports": [{"containerPort": 80}]}),
    **{f"SELinux type {name}": with_selinux(type=name) for name in SELINUX_TYPES},
    **{
        f"AppArmor by annotation, {profile!r}": replacement(
            annotations={"container.apparmor.security.beta.kubernetes.io/c": profile}
        )
        for profile in ("", "runtime/default", "localhost/mine")
    },
    "another annotation": replacement(annotations={"mine": "unconfined"}),
}


@pytest.fixture(scope="module")
def thief(operator: API, plain: str) -> API:
    """Whoever has the token, once the policy is in force."""
    eventually("the policy", lambda: operator.create(f"{plain}/pods", replacement(hostNetwork=True)).code == 403)
    return operator


@pytest.mark.parametrize(("problem", "content"), BEYOND_BASELINE.values(), ids=BEYOND_BASELINE)
def test_the_token_creates_no_pod_beyond_pod_securitys_baseline(
    thief: API, plain: str, problem: str, content: dict[str, Any]
) -> None:
    answer = thief.create(f"{plain}/pods", content)
    words = f"the operator creates pods with {problem} only in a namespace labelled"
    assert (answer.code, words in answer.message) == (403, True), answer.content


@pytest.mark.parametrize("content", [content for _, content in BEYOND_BASELINE.values()], ids=BEYOND_BASELINE)
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


@pytest.mark.parametrize("name", CRITICAL_CLASSES)
def test_the_token_creates_no_pod_before_which_all_others_leave_a_node(
    thief: API, plain: str, privileged: str, name: str
) -> None:
    for namespace in (plain, privileged):
        answer = thief.create(f"{namespace}/pods", replacement(priorityClassName=name))
        assert (answer.code, f"no pod of the priority class {name}" in answer.message) == (403, True), answer.content


@pytest.fixture(scope="module")
def privileged(admin: API) -> Iterator[str]:
    """The path of a namespace whose pods may be anything."""
    path = new_namespace(admin, "attacks-privileged", **{"pod-security.kubernetes.io/enforce": "privileged"})
    yield path
    admin.delete(path)


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


RBAC_GROUP = "rbac.authorization.k8s.io"
POWERS = [
    rule("", "secrets", "get"),
    rule("", "secrets", "list"),
    rule("", "pods", "create"),
    rule("", "pods/exec", "create"),
    rule("apps", "deployments", "create"),
    rule("apps", "daemonsets", "create"),
    rule("apps", "statefulsets", "create"),
    rule("batch", "jobs", "create"),
    rule("", "nodes/proxy", "get"),
    rule("", "nodes", "patch"),
    rule("", "users", "impersonate"),
    rule("", "serviceaccounts", "impersonate"),
    rule("", "serviceaccounts/token", "create"),
    rule("certificates.k8s.io", "certificatesigningrequests/approval", "update"),
    rule(RBAC_GROUP, "clusterroles", "escalate"),
    rule(RBAC_GROUP, "clusterroles", "bind"),
    rule(RBAC_GROUP, "clusterrolebindings", "create"),
    rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create"),
]
"""Each right that the policy asks about, alone."""


def test_every_right_that_the_policy_asks_about_is_tried() -> None:
    (policy,) = (
        item
        for item in objects()
        if item["metadata"]["name"] == "topomend-operator" and "spec" in item and "variables" in item["spec"]
    )
    asked = re.findall(
        r"group\('(.*?)'\)\.resource\('(.*?)'\)(?:\.subresource\('(.*?)'\))?\.check\('(.*?)'\)",
        "".join(variable["expression"] for variable in policy["spec"]["variables"]),
    )
    assert [rule(group, f"{resource}/{below}".rstrip("/"), verb) for group, resource, below, verb in asked] == POWERS


@pytest.mark.parametrize("power", [*POWERS, rule(RBAC_GROUP, "*", "*"), rule("*", "*", "*")], ids=str)
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
