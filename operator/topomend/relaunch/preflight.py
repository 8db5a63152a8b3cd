"""Ask the API server whether it would create the replacement, before the refused pod is touched.

The operator creates pods under its own account. Nobody may use it to obtain a pod that they could not create
themselves. Therefore a SubjectAccessReview asks about the user whom the stamp ``topomend.io/creator`` names, and a dry
run rehearses the creation, so that quotas, Pod Security and other policies answer while the refused pod still exists.
A pod without a stamp was created before the stamping policy existed, or on an API server without such policies. The API
server accepted it as it is, and a pod that was changed since is not relaunched (``decide/eligibility.py``).
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
    """The checks before a relaunch.

    Each returns an empty text for yes, else one line that says why not. Each raises APIError where no answer arrived.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def creator_problem(self, record: Relaunch) -> str:
        """Why the creator of the recorded pod may not create it now.

        The pod's stamp names the creator: the user on the first line, one group on each further line.
        """
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
            return f"the API server does not say whether {user} may create pods in {namespace}: {error}"
        if answer.get("status", {}).get("allowed") is True:
            return ""
        return f"{user}, who created it, may not create pods in {namespace} any more"

    def denied(self, record: Relaunch) -> str:
        """Why the API server would not create the replacement or the record.

        A pod that already has the name is no reason: it is the refused pod, which goes first.
        """
        try:
            self._rehearse(PODS, manifest.replacement(record), record.namespace)
        except (Forbidden, Invalid, NotFound) as error:
            return f"the API server rejects its replacement: {error}"
        try:
            self._rehearse(RELAUNCHES, relaunch_object(record), record.namespace)
        except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            return f"the API server rejects its Relaunch: {error}"
        return ""

    def _rehearse(self, resource: Resource, content: dict[str, Any], namespace: str) -> None:
        with suppress(AlreadyExists):
            self._client.create(resource, content, namespace, dry_run=True)
