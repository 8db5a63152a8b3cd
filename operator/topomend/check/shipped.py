"""What the manifests of this version install: the schemas of the kinds, the policies, the rights of both accounts.

Read from the manifests themselves, so that nothing has to be written twice. An installation may have other names: each
begins as the gating Service does (``topomend-gating``), which kustomize and the chart keep in step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.check.facts import Right
from topomend.wire.document import Document

OPERATOR, AGENT = "topomend-operator", "topomend-agent"
"""The shipped names of the accounts, and of the roles that every installation has."""

GATING = "topomend-gating"

OBSERVING_POLICIES = ("topomend-agent", "topomend-kubelet-reader", "topomend-parameter", "topomend-relaunch")
"""The validating policies that an installation with the component observe has."""

_OBSERVED = ("pods", "nodes", "namespaces", "deviceclasses", "nodetopologies", "relaunches")
_READ = ("get", "list", "watch")

CLAIMS_FLAG, DEFRAGMENT_FLAG, KUEUE_FLAG = "--claims", "--defragment", "--kueue"
"""The flags of the operator that the components of these names add, each with a role that install.yaml is without."""

_OF_COMPONENTS: Mapping[str, Mapping[tuple[str, str], tuple[str, ...]]] = {
    CLAIMS_FLAG: {
        ("resource.k8s.io", "resourceslices"): ("list",),
        ("resource.k8s.io", "devicetaintrules"): ("list",),
        ("resource.k8s.io", "resourceclaims"): ("get", "list"),
        ("resource.k8s.io", "resourceclaimtemplates"): ("get",),
    },
    DEFRAGMENT_FLAG: {
        ("", "pods/eviction"): ("create",),
        ("policy", "poddisruptionbudgets"): ("list",),
        ("apps", "replicasets"): ("list",),
        ("apps", "statefulsets"): ("list",),
    },
    KUEUE_FLAG: {
        ("kueue.x-k8s.io", "workloads"): ("get", "list", "watch"),
        ("kueue.x-k8s.io", "admissionchecks"): ("get", "list", "watch"),
        ("kueue.x-k8s.io", "resourceflavors"): ("get",),
        ("kueue.x-k8s.io", "workloads/status"): ("patch",),
        ("kueue.x-k8s.io", "admissionchecks/status"): ("patch",),
    },
}

_ADMISSION = "admissionregistration.k8s.io"


@dataclass(frozen=True)
class Names:
    """How one installation calls its objects, and where its programs are.

    ``service`` is the name of its gating Service, ``operator`` and ``agent`` its accounts as ``namespace/name``.
    ``reader`` is the account as which its agents ask kubelets.
    """

    service: str = GATING
    operator: str = f"topomend-system/{OPERATOR}"
    agent: str = f"{AGENT}/{AGENT}"
    reader: str = "topomend-kubelet-reader"

    def renamed(self, shipped: str) -> str:
        """The name of a cluster-wide object of this installation, by its name in the manifests."""
        return self.service.replace(GATING, shipped)

    def account(self, shipped: str) -> str:
        """The account, by its name in the manifests."""
        return self.operator if shipped == OPERATOR else self.agent


def rights_of_component(flag: str, names: Names) -> tuple[Right, ...]:
    """The rights that the component of this flag gives to the operator's account."""
    role = f"topomend-{flag.removeprefix('--')}"
    return tuple(
        Right(names.operator, verb, group, resource, role=role)
        for (group, resource), verbs in _OF_COMPONENTS[flag].items()
        for verb in verbs
    )


class Shipped:
    """The objects of the manifests. Raises MalformedObject for manifests that are none."""

    def __init__(self, documents: Iterable[Any]) -> None:
        self._documents = [document for document in documents if isinstance(document, dict)]

    def _of(self, kind: str) -> Iterator[dict[str, Any]]:
        return (document for document in self._documents if document.get("kind") == kind)

    def schemas(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """The name of each CustomResourceDefinition, its kind and its schema."""
        for document in self._of("CustomResourceDefinition"):
            spec = Document(document)["spec"]
            schema = next(iter(spec["versions"]))["schema"]["openAPIV3Schema"].content
            yield Document(document)["metadata"]["name"].text(), spec["names"]["kind"].text(), schema

    def policies(self, names: Names, *, observes: bool) -> dict[str, str]:
        """The validating policies that must be there, each with the ClusterRoleBinding whose account it limits."""
        found = {}
        of_accounts = {
            Document(document)["metadata"]["name"].text()
            for document in self._of("ValidatingAdmissionPolicy")
            if Document(document)["spec"]["paramKind"]["kind"].text("") == "ClusterRoleBinding"
        }
        own_rights = {Document(document)["metadata"]["name"].text() for document in self._of("ClusterRoleBinding")}
        for document in self._of("ValidatingAdmissionPolicyBinding"):
            spec = Document(document)["spec"]
            policy = spec["policyName"].text()
            if observes and policy not in OBSERVING_POLICIES:
                continue
            # A policy may limit rights of a binding of its own name, and learn the account from the common one.
            common = spec["paramRef"]["name"].text("") if policy in of_accounts else OPERATOR
            binding = policy if policy in own_rights and common == OPERATOR else common
            found[names.renamed(policy)] = names.renamed(binding)
        return found

    def rights(self, names: Names, *, observes: bool) -> tuple[Right, ...]:
        """The rights that the roles of the manifests give to the accounts of operator and agents, each once."""
        given: dict[Right, None] = {}
        for kind, of in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
            roles = {self._key(role): role for role in self._of(of)}
            for binding in self._of(kind):
                reference = Document(binding)["roleRef"]["name"].text()
                for subject in Document(binding)["subjects"]:
                    account = subject["name"].text()
                    role = roles.get((Document(binding)["metadata"]["namespace"].text(""), reference))
                    if role is None or account not in (OPERATOR, AGENT):
                        continue
                    given |= dict.fromkeys(self._rights_of(role, account, names, observes=observes))
        return tuple(given)

    @staticmethod
    def _key(role: dict[str, Any]) -> tuple[str, str]:
        metadata = Document(role)["metadata"]
        return metadata["namespace"].text(""), metadata["name"].text()

    def _rights_of(self, role: dict[str, Any], account: str, names: Names, *, observes: bool) -> Iterator[Right]:
        namespace, name = self._key(role)
        its = names.account(account)
        within = its.partition("/")[0] if namespace else ""
        for right in _expanded(role, its, name, within, names):
            if not observes or account == AGENT or _is_observers(right):
                yield right


def _is_observers(right: Right) -> bool:
    """Whether an operator that observes has the right (deploy/components/observe)."""
    if (right.resource, right.verb) == ("events", "create"):
        return True
    return right.role == OPERATOR and not right.namespace and right.resource in _OBSERVED and right.verb in _READ


def _expanded(role: dict[str, Any], account: str, name: str, namespace: str, names: Names) -> Iterator[Right]:
    for rule in Document(role)["rules"]:
        groups, resources, verbs = ([each.text() for each in rule[key]] for key in ("apiGroups", "resources", "verbs"))
        for group in groups:
            for resource in resources:
                for resource_name in _names_of(rule, group, resource, names):
                    for verb in verbs:
                        yield Right(account, verb, group, resource, resource_name, namespace, name)


def _names_of(rule: Document, group: str, resource: str, names: Names) -> list[str]:
    shipped = [each.text() for each in rule["resourceNames"]]
    if group == _ADMISSION or resource == "secrets":
        return [names.renamed(name) for name in shipped]
    if resource == "serviceaccounts/token":
        return [names.reader]
    return shipped or [""]
