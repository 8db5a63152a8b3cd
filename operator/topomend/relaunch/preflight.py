"""Ask the API server whether it would create the replacement, before the refused pod is touched.

The operator creates pods under its own account. Nobody may use it to obtain a pod that they could not create
themselves. Therefore a SubjectAccessReview asks about the user whom the stamp ``topomend.io/creator`` names, and a dry
run rehearses the creation, so that quotas, Pod Security and other policies answer while the refused pod still exists.
A pod without a stamp was created before the stamping policy existed, or on an API server without such policies. The API
server accepted it as it is, and a pod that was changed since is not relaunched (``decide/eligibility.py``).
"""

from contextlib import suppress
from typing import Any

from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, Forbidden, Invalid, MethodNotAllowed, NotFound
from topomend.kube.resources import PODS, RELAUNCHES, SUBJECT_ACCESS_REVIEWS
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch import manifest
from topomend.wire.group import CREATOR_ANNOTATION, UNREVIEWABLE
from topomend.wire.relaunch_record import relaunch_object

_LONGEST_STEM = 200

_SERVICE_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


def creator_of(stamp: str) -> tuple[str, list[str]]:
    """The user of a stamp and the groups, those included that the stamp leaves out because they follow.

    Source: apiserver pkg/authentication/serviceaccount/util.go:MakeGroupNames, pkg/authentication/group.
    """
    user, *groups = stamp.split("\n")
    if user.startswith(_SERVICE_ACCOUNT):
        namespace = user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return user, groups if _UNAUTHENTICATED in groups else [*groups, _AUTHENTICATED]


class Preflight:
    """The checks before a relaunch.

    Each returns an empty text for yes, else one line that says why not. Each raises APIError where no answer arrived.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def creator_problem(self, record: Relaunch) -> str:
        """Why the creator of the recorded pod may not create it now.

        The pod's stamp names the creator: see ``creator_of``.
        """
        namespace = record.namespace
        stamp = record.manifest["metadata"].get("annotations", {}).get(CREATOR_ANNOTATION, "")
        if not stamp:
            return ""
        if stamp == UNREVIEWABLE:
            return "the rights of the user who created it depend on more than name and groups; recreate it yourself"
        user, groups = creator_of(stamp)
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
        """Why the API server would not create the replacement or the record, or would create another pod.

        A pod that already has the name is no reason: it is the refused pod, which goes first.
        """
        try:
            admitted = self._admitted(record)
        except (Forbidden, Invalid, NotFound) as error:
            return f"the API server rejects its replacement: {error}"
        added = manifest.added(manifest.replacement(record), admitted) if admitted else ""
        if added:
            return (
                f"admission would add {added} to its replacement, which has been through admission once; make the "
                "webhook leave a pod alone that it has changed already, or recreate the pod yourself"
            )
        try:
            self._client.create(RELAUNCHES, relaunch_object(record), record.namespace, dry_run=True)
        except AlreadyExists:
            return ""
        except (Forbidden, Invalid, MethodNotAllowed, NotFound) as error:
            return f"the API server rejects its Relaunch: {error}"
        return ""

    def _admitted(self, record: Relaunch) -> dict[str, Any]:
        """The replacement as the API server would create it; empty where it cannot tell. Raises APIError.

        The name of the refused pod is taken, so the replacement is then tried under a name that nobody has.
        """
        content = manifest.replacement(record)
        with suppress(AlreadyExists):
            return self._client.create(PODS, content, record.namespace, dry_run=True)
        metadata = {key: value for key, value in content["metadata"].items() if key != "name"}
        content["metadata"] = {**metadata, "generateName": f"{record.replacement_name[:_LONGEST_STEM]}-"}
        with suppress(AlreadyExists):
            return self._client.create(PODS, content, record.namespace, dry_run=True)
        return {}
