"""The pod that a verb is about: one of the cluster, or one that a file describes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from topomend.alignment.requested import wrong_value
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.input.lists import is_list, items_of
from topomend.cli.input.manifests import MOST_BYTES, read_documents
from topomend.cli.input.workload import is_pod_or_workload, passed_over, replicas_of, shown, template_pod
from topomend.cli.numa.cluster.arguments.strict_fields import warn_of_unknown_fields
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.console import echo
from topomend.cli.output.failures import BadInput
from topomend.kube.errors import NotFound
from topomend.kube.resources import PODS
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.relaunch import narrowed_affinity
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.pod import read_pod
from topomend.wire.pods.scheduling import read_placement

pod_file_option = click.option(
    "-f",
    "--filename",
    metavar="FILE",
    default="",
    type=click.Path(),
    help="A Pod, or a workload with a pod template; - is stdin.",
)
"""Gives a verb ``-f`` for ``pod_of_file``; the value arrives as ``filename``, empty without it."""


CLAIM_KINDS = ("ResourceClaim", "ResourceClaimTemplate")
"""What a pod of the same file may name."""


@dataclass(frozen=True)
class RequestedPod:
    """The pod as admission sees it, the nodes that its user allows, and the API object.

    ``replicas`` is how many of it the workload of this ``kind`` has that the user named; 1 for a pod. ``shown`` names
    the object of a file, and ``beside`` are the claims and their templates that it has besides.
    """

    pod: Pod
    placement: Placement
    content: dict[str, Any]
    replicas: int = 1
    shown: str = ""
    beside: tuple[dict[str, Any], ...] = ()
    kind: str = "Pod"


def pod_of_cluster(cluster: Cluster, name: str) -> RequestedPod:
    """The pod ``name`` (or ``pod/name``). Raises BadInput if it does not exist or is malformed, and APIError."""
    short = short_name(name)
    try:
        content = cluster.client.get(PODS, short, cluster.namespace)
    except NotFound as error:
        raise no_pod(cluster, short) from error
    return read_requested(content, f"pod {short}")


def short_name(pod: str) -> str:
    """The pod's name without its kind, which kubectl lets one write as ``pod/``, ``pods/`` or ``po/``.

    Raises BadInput for another kind.
    """
    kind, slash, name = pod.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise BadInput(f"{pod} is not a pod: name one as pod/NAME")
    return name


def no_pod(cluster: Cluster, name: str) -> BadInput:
    """The error for a pod that the selected namespace does not have. Raises BadInput if there is no such namespace."""
    cluster.check_namespace()
    near = did_you_mean(name, cluster.names(PODS))
    return BadInput(f"no pod {name} in {cluster.namespace}{near or '; name another namespace with -n'}")


def pod_of_file(source: str, cluster: Cluster | None) -> RequestedPod:
    """The one pod in a file, or the pod that the workload in it would create. Raises BadInput.

    ``cluster`` is asked which fields there are; None asks nobody.
    """
    found = pods_of_file(source, cluster)
    if len(found) != 1:
        kinds = ", ".join(each.shown for each in found)
        raise BadInput(f"-f {source}: {len(found)} pods or workloads ({kinds}); give exactly one")
    return found[0]


def pods_of_file(source: str, cluster: Cluster | None) -> list[RequestedPod]:
    """The pods in a file, and the pods that the workloads in it would create: one of each, and at least one.

    Objects of other kinds, such as Services, are passed over. Raises BadInput.
    """
    objects = objects_of_file(source, "-f")
    with_pods = [content for content in objects if is_pod_or_workload(content)]
    if not with_pods:
        others = ", ".join(map(shown, objects))
        raise BadInput(f"-f {source}: {others or 'nothing'}, and no Pod or workload; give at least one")
    claims = tuple(content for content in objects if content.get("kind") in CLAIM_KINDS)
    if rest := [shown(it) for it in objects if not is_pod_or_workload(it) and it not in claims]:
        echo(f"-f {source}: {passed_over(rest)}", err=True)
    warn_of_unknown_fields(cluster, with_pods, f"-f {source}")
    return [replace(_of_document(content, f"-f {source}"), beside=claims) for content in with_pods]


def objects_of_file(source: str, flag: str, most: int = MOST_BYTES) -> list[dict[str, Any]]:
    """The objects of the file of ``most`` bytes that ``flag`` names, and those of its lists. Raises BadInput."""
    documents = [document for document in read_documents(source, flag, most) if document is not None]
    where = f"{flag} {source}"
    try:
        return list(_objects(map(Document, documents), where))
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error


def _objects(documents: Iterable[Document], where: str) -> Iterator[dict[str, Any]]:
    for document in documents:
        if not isinstance(document.content, dict):
            raise BadInput(f"{where}: a document is no object, such as a Pod")
        if is_list(document):
            yield from _objects(items_of(document), where)
        else:
            yield document.content


def _of_document(document: dict[str, Any], where: str) -> RequestedPod:
    try:
        pod, replicas, kind = template_pod(document), replicas_of(document), document.get("kind", "Pod")
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error
    return replace(read_requested(pod, where), kind=kind, replicas=replicas, shown=shown(document))


def read_requested(content: dict[str, Any], where: str) -> RequestedPod:
    """Read a Pod object; ``where`` names it in errors. Warns of an annotation that means nothing. Raises BadInput."""
    try:
        content = _without_nulls(content)
        requested = RequestedPod(read_pod(content), placement_of(content), content)
        for condition in Document(content)["status"]["conditions"]:
            list(condition.fields())  # raises where it is no object
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error
    if wrong := wrong_value(requested.pod):
        echo(f"warning: {where}: {wrong}", err=True)
    return requested


def _without_nulls(content: dict[str, Any]) -> dict[str, Any]:
    """A Pod object without the fields that are null, as of an empty ``affinity:``: to an API server they are absent.

    In a map, such as the annotations, null is an empty value instead. Raises MalformedObject.
    """
    document = Document(content)
    parts = {
        name: {key: field.content for key, field in document[name].fields() if not field.absent}
        for name in ("metadata", "spec", "status")
        if not document[name].absent
    }
    return {key: value for key, value in content.items() if value is not None} | parts


def placement_of(content: dict[str, Any]) -> Placement:
    """The nodes that the user of a Pod object allows, without what topomend added. Raises MalformedObject."""
    spec = Document(content)["spec"]
    placement, affinity = read_placement(spec), spec["affinity"]["nodeAffinity"].content
    return (
        narrowed_affinity.as_asked(placement, affinity)
        if affinity and narrowed_affinity.is_narrowed(content)
        else placement
    )
