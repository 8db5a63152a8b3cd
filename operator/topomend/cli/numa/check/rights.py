"""Ask the API server which rights of topomend's accounts are missing, by SubjectAccessReviews."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topomend.check.facts import Right
from topomend.kube.client import Client
from topomend.kube.resources import SUBJECT_ACCESS_REVIEWS

AT_A_TIME = 8
"""How many questions are under way together: there are about a hundred."""


def denied(client: Client, rights: Iterable[Right]) -> tuple[Right, ...]:
    """Those of ``rights`` that their accounts do not have. Raises APIError, Forbidden for a user who may not ask."""
    rights = tuple(rights)
    # The first one alone: where it fails, so do all others, and each would take as long.
    answers = [_is_allowed(client, right) for right in rights[:1]]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers += pool.map(lambda right: _is_allowed(client, right), rights[1:])
    return tuple(right for right, allowed in zip(rights, answers, strict=True) if not allowed)


def _is_allowed(client: Client, right: Right) -> bool:
    answer = client.create(SUBJECT_ACCESS_REVIEWS, review_of(right))
    return bool((answer.get("status") or {}).get("allowed"))


def review_of(right: Right) -> dict[str, Any]:
    """The SubjectAccessReview that asks for the right, with the groups that every service account has."""
    namespace, _, name = right.account.partition("/")
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    spec = {
        "user": f"system:serviceaccount:{namespace}:{name}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
        "resourceAttributes": {key: text for key, text in attributes.items() if text},
    }
    return {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
