"""The RBAC rights of both accounts: every verb on every relevant resource, compared with the intended table."""

from collections.abc import Iterator

import pytest
from deploy.manifests import DEPLOY
from tests.deploy.api import API, path_of
from tests.deploy.rights import may
from tests.waiting import eventually

from topomend.runtime.manifests import documents

pytestmark = pytest.mark.cluster  # asks a real API server's authorizer, a few hundred times

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
NODES = "configz pods healthz metrics stats log checkpoint statusz"
"""What a kubelet asks for itself (pkg/kubelet/server/auth.go), beside nodes/proxy."""
PODS = "status log exec attach portforward eviction binding resize ephemeralcontainers"
CORE = (
    "pods replicationcontrollers nodes nodes/status nodes/proxy namespaces events secrets configmaps serviceaccounts "
    "serviceaccounts/token persistentvolumeclaims persistentvolumes"
)
RESOURCES = {
    "": [
        *CORE.split(),
        *(f"pods/{resource}" for resource in PODS.split()),
        *(f"nodes/{resource}" for resource in NODES.split()),
    ],
    "topomend.io": [
        "nodetopologies",
        "nodetopologies/status",
        "relaunches",
        "relaunches/status",
        "brakes",
        "steerings",
    ],
    "topology.node.k8s.io": ["noderesourcetopologies"],
    "nfd.k8s-sigs.io": ["nodefeatures", "nodefeaturerules"],
    "events.k8s.io": ["events"],
    "authorization.k8s.io": ["subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews"],
    "coordination.k8s.io": ["leases"],
    "apps": ["deployments", "daemonsets", "replicasets", "statefulsets", "controllerrevisions"],
    "batch": ["jobs", "cronjobs"],
    "resource.k8s.io": [
        "deviceclasses",
        "devicetaintrules",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "resourceslices",
    ],
    "scheduling.k8s.io": ["priorityclasses", "podgroups"],
    "scheduling.x-k8s.io": ["podgroups"],
    "scheduling.volcano.sh": ["podgroups"],
    "jobset.x-k8s.io": ["jobsets"],
    "rbac.authorization.k8s.io": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "admissionregistration.k8s.io": [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ],
    "apiextensions.k8s.io": ["customresourcedefinitions"],
    "policy": ["poddisruptionbudgets"],
    "certificates.k8s.io": ["certificatesigningrequests", "certificatesigningrequests/approval"],
}
SPECIAL = (
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("impersonate", "", "serviceaccounts"),
    ("approve", "certificates.k8s.io", "signers"),
)

EVERYBODY = {"selfsubjectaccessreviews.authorization.k8s.io": "create"}
AGENT = EVERYBODY | {
    "nodes": "get",
    "nodetopologies.topomend.io": "get create patch",
    "nodetopologies/status.topomend.io": "patch",
}
READER = EVERYBODY | {"nodes/configz": "get"}
"""What a thief of the token that kubelets are shown could do."""

OPERATOR = EVERYBODY | {
    "pods": "get list watch create patch delete",
    "pods/eviction": "create",
    "pods/status": "patch",
    "persistentvolumeclaims": "get",
    "persistentvolumes": "get",
    "priorityclasses.scheduling.k8s.io": "list",
    "poddisruptionbudgets.policy": "list",
    "podgroups.scheduling.k8s.io": "get",
    "podgroups.scheduling.x-k8s.io": "get",
    "podgroups.scheduling.volcano.sh": "get",
    "jobsets.jobset.x-k8s.io": "get",
    "nodes": "get list watch",
    "namespaces": "get list watch",
    "daemonsets.apps": "get",
    "jobs.batch": "get",
    "replicasets.apps": "get",
    "statefulsets.apps": "get",
    "replicationcontrollers": "get",
    "nodetopologies.topomend.io": "get list watch",
    "deviceclasses.resource.k8s.io": "list",
    "relaunches.topomend.io": "get list watch create patch delete",
    "relaunches/status.topomend.io": "patch",
    "subjectaccessreviews.authorization.k8s.io": "create",
    "events.events.k8s.io": "create",
    "brakes.topomend.io": "get",
    "steerings.topomend.io": "get",
}
SLICES = ("list", "resource.k8s.io", "resourceslices")
OPERATOR_AT_HOME = OPERATOR | {
    "brakes.topomend.io": "get create",
    "steerings.topomend.io": "get create",
    "leases.coordination.k8s.io": "get create update patch",
}


def every_right() -> Iterator[tuple[str, str, str]]:
    for group, resources in RESOURCES.items():
        for resource in resources:
            yield from ((verb, group, resource) for verb in VERBS)
    yield from SPECIAL


@pytest.mark.parametrize(
    ("namespace", "account", "where", "meant"),
    [
        ("topomend-agent", "topomend-agent", "default", AGENT),
        ("topomend-agent", "topomend-agent", "topomend-agent", AGENT),
        ("topomend-agent", "topomend-kubelet-reader", "default", READER),
        ("topomend-agent", "topomend-kubelet-reader", "topomend-agent", READER),
        ("topomend-system", "topomend-operator", "default", OPERATOR),
        ("topomend-system", "topomend-operator", "topomend-system", OPERATOR_AT_HOME),
    ],
    ids=[
        "agent elsewhere",
        "agent at home",
        "reader elsewhere",
        "reader at home",
        "operator elsewhere",
        "operator at home",
    ],
)
def test_an_account_may_do_what_it_needs_and_nothing_else(
    admin: API, namespace: str, account: str, where: str, meant: dict[str, str]
) -> None:
    assert granted(admin, namespace, account, where) == meant


def test_the_component_claims_lets_the_operator_read_what_it_needs_of_claims_and_nothing_else(admin: API) -> None:
    items = documents((DEPLOY / "components" / "claims" / "role.yaml").read_text())
    for item in items:
        assert admin.apply(path_of(item), item).allowed
    added = {
        "devicetaintrules.resource.k8s.io": "list",
        "resourceclaims.resource.k8s.io": "get list",
        "resourceclaimtemplates.resource.k8s.io": "get",
        "resourceslices.resource.k8s.io": "list",
    }
    try:
        eventually("the rights", lambda: may(admin, "topomend-system", "topomend-operator", SLICES, "default"))
        assert granted(admin, "topomend-system", "topomend-operator", "default") == OPERATOR | added
    finally:
        for item in items:
            assert admin.delete(path_of(item)).allowed
    eventually("no right to be left", lambda: not may(admin, "topomend-system", "topomend-operator", SLICES, "default"))


@pytest.mark.parametrize("account", ["topomend-kubelet-reader", "topomend-agent", "default"])
def test_an_agent_may_ask_for_tokens_of_the_reader_alone(admin: API, account: str) -> None:
    """A right on one object by its name, which the table does not show."""
    right = ("create", "", "serviceaccounts/token")
    allowed = may(admin, "topomend-agent", "topomend-agent", right, "topomend-agent", name=account)
    assert allowed == (account == "topomend-kubelet-reader")
    assert not may(admin, "topomend-agent", "topomend-agent", right, "topomend-system", name=account)


def test_the_operator_may_install_what_it_is_to_and_nothing_of_another_name(admin: API) -> None:
    """Rights by name again. Who may write any of these objects decides about every new object of the cluster."""
    group = "admissionregistration.k8s.io"
    for resource, verbs in (
        ("mutatingwebhookconfigurations", "get patch"),
        ("mutatingadmissionpolicies", "get create patch delete"),
        ("mutatingadmissionpolicybindings", "get create patch delete"),
    ):
        for name in ("topomend-steer", "topomend-brake", "topomend-creator", "topomend-changes", "another"):
            granted = [
                verb
                for verb in VERBS
                if may(admin, "topomend-system", "topomend-operator", (verb, group, resource), "", name=name)
            ]
            assert sorted(granted) == sorted(verbs.split() if name != "another" else []), (resource, name)


def granted(admin: API, namespace: str, account: str, where: str) -> dict[str, str]:
    """Every right that the account has, as verbs by resource."""
    rights: dict[str, str] = {}
    for right in every_right():
        if may(admin, namespace, account, right, where):
            verb, group, resource = right
            name = f"{resource}.{group}" if group else resource
            rights[name] = f"{rights[name]} {verb}" if name in rights else verb
    return rights


CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.mark.parametrize("name", ["view", "edit", "admin", "cluster-reader"])
def test_who_may_view_a_namespace_may_view_its_relaunches(admin: API, name: str) -> None:
    """As the API server's own controller aggregates; OpenShift's role is made here as OpenShift defines it."""
    label = f"rbac.authorization.k8s.io/aggregate-to-{name}"
    path = f"{CLUSTER_ROLES}/{name}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    if name == "cluster-reader":
        aggregated = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}, "rules": []}
        assert admin.apply(path, role | aggregated).allowed

    def reads_relaunches() -> bool:
        rules = admin.get(path).content.get("rules") or ()
        return any("relaunches" in rule.get("resources", ()) and rule["verbs"] == READS for rule in rules)

    eventually(f"{name} to have the rights of topomend-viewer", reads_relaunches)
    if name == "cluster-reader":
        admin.delete(path)


READS = ["get", "list", "watch"]


def test_a_viewer_reads_what_the_plugin_asks_for_and_writes_nothing(admin: API) -> None:
    role = admin.get(f"{CLUSTER_ROLES}/topomend-viewer").content
    assert role["rules"] == [
        {"apiGroups": ["topomend.io"], "resources": ["nodetopologies", "relaunches"], "verbs": READS},
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": READS},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["replicasets", "statefulsets"], "verbs": ["list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["deviceclasses", "devicetaintrules", "resourceslices"],
            "verbs": ["list"],
        },
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"], "verbs": ["get"]},
    ]
