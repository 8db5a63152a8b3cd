"""Whether a pod may be created anew, asked before the refused one is touched.

The operator creates pods under its own account, and must not be the way by which somebody gets a pod that he may not
create himself: the one whom the stamp ``topomend.io/creator`` names is looked up, and the creation is rehearsed, so
that quotas, Pod Security and other policies have their say while the refused pod is still there. A pod without a stamp
(created before the stamping policy was there, or where the API server knows no such policies) stands for itself: the
API server let it be created as it is, and one that was changed since is not relaunched (decide/eligibility.py).
"""

from contextlib import suppress
from typing import Any

from topomend.kube.client import PODS, RELAUNCHES, SUBJECT_ACCESS_REVIEWS, Client, Resource
from topomend.kube.errors import AlreadyExists, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.model.relaunch import Relaunch
from topomend.relaunch import manifest
from topomend.wire.group import CREATOR_ANNOTATION
from topomend.wire.relaunch import relaunch_object


class Preflight:
    """Asks the API server. Each answer is empty for yes, else why not, in a line; raises APIError where none came."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def creator_problem(self, record: Relaunch) -> str:
        """Why the user whom the recorded pod's stamp names (and his groups, a line each) may not create it now."""
        namespace = record.namespace
        creator = record.manifest["metadata"].get("annotations", {}).get(CREATOR_ANNOTATION, "")
        if not creator:
            return ""
        user, *groups = creator.split("\n")
        attributes = {"namespace": namespace, "verb": "create", "version": "v1", "resource": "pods"}
        spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
        review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = self._client.create(SUBJECT_ACCESS_REVIEWS, review)
        except (Forbidden, Invalid) as error:
            return f"whether {user} may create pods in {namespace} cannot be asked: {error}"
        if answer.get("status", {}).get("allowed") is True:
            return ""
        return f"{user}, who created it, may not create pods in {namespace} any more"

    def denied(self, record: Relaunch) -> str:
        """Why the API server would not create the replacement, or the record itself. That a pod of that name is there
        is no reason: it is to go."""
        try:
            self._rehearse(PODS, manifest.replacement(record), record.namespace)
        except (Forbidden, Invalid, NotFound) as error:
            return f"the API server would not create it anew: {error}"
        try:
            self._rehearse(RELAUNCHES, relaunch_object(record), record.namespace)
        except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            return f"its relaunch cannot be recorded: {error}"
        return ""

    def _rehearse(self, resource: Resource, content: dict[str, Any], namespace: str) -> None:
        with suppress(AlreadyExists):
            self._client.create(resource, content, namespace, dry_run=True)
