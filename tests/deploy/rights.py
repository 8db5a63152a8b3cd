"""What an account may do, by the API server's own word, and when it may: rights act a moment after they are applied."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from tests.deploy.api import API
from tests.waiting import eventually


def may(admin: API, namespace: str, account: str, right: tuple[str, str, str], where: str, *, name: str = "") -> bool:
    """Whether an account has the right (verb, group, resource with its subresource) in the namespace ``where``."""
    verb, group, resource = right
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": where}
    attributes["name"] = name
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    answer = admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.allowed, answer.message
    return bool(answer.content["status"]["allowed"])


def wait_for_rights(admin: API, installed: Iterable[dict[str, Any]]) -> None:
    """Wait until the API server has seen every role and binding among these objects."""
    items = list(installed)
    for binding in items:
        if binding["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            for subject, rule in _given(items, binding):
                right = (rule["verbs"][0], rule["apiGroups"][0], rule["resources"][0])
                where, name = binding["metadata"].get("namespace", ""), rule.get("resourceNames", [""])[0]
                asked = partial(may, admin, subject["namespace"], subject["name"], right, where, name=name)
                eventually(f"{subject['name']} to have the right {right}", asked)


def _given(items: Iterable[dict[str, Any]], binding: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each account of a binding with the first rule of its role, if that is here."""
    reference = binding["roleRef"]
    for role in items:
        if (role["kind"], role["metadata"]["name"]) == (reference["kind"], reference["name"]):
            rules = [rule for rule in role["rules"] if rule.get("resources")]
            accounts = [subject for subject in binding["subjects"] if subject["kind"] == "ServiceAccount"]
            yield from ((subject, rule) for subject in accounts for rule in rules[:1])
