"""The pod that a verb is about: one of the cluster, or one that a file describes."""

from dataclasses import dataclass, replace
from typing import Any

from topomend.alignment.requested import wrong_value
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.input.manifests import read_documents
from topomend.cli.input.unknown_fields import warn_of_unknown_fields
from topomend.cli.input.workload import replicas_of, template_pod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.console import echo
from topomend.cli.output.failures import BadInput
from topomend.kube.client import PODS
from topomend.kube.errors import NotFound
from topomend.model.cluster import Placement
from topomend.model.pod import Pod
from topomend.relaunch import narrowed_affinity
from topomend.wire.cluster import read_placement
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pod import read_pod


@dataclass(frozen=True)
class RequestedPod:
    """The pod as admission sees it, the nodes that its user allows, and the API object.

    ``replicas`` is how many of it the workload has that the user named; 1 for a pod.
    """

    pod: Pod
    placement: Placement
    content: dict[str, Any]
    replicas: int = 1


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


def pod_of_file(source: str) -> RequestedPod:
    """The one pod in a file, or the pod that the workload in it would create. Raises BadInput."""
    documents = [document for document in read_documents(source, "-f") if document is not None]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadInput(f"-f {source}: {len(documents)} documents; give exactly one Pod or workload")
    document = documents[0]
    warn_of_unknown_fields(documents, f"-f {source}")
    try:
        pod, replicas = template_pod(document), replicas_of(document)
    except MalformedObject as error:
        raise BadInput(f"-f {source}: {error}") from error
    return replace(read_requested(pod, f"-f {source}"), replicas=replicas)


def read_requested(content: dict[str, Any], where: str) -> RequestedPod:
    """Read a Pod object; ``where`` names it in errors. Warns of an annotation that means nothing. Raises BadInput."""
    try:
        requested = RequestedPod(read_pod(content), _placement(content), content)
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error
    if wrong := wrong_value(requested.pod):
        echo(f"warning: {where}: {wrong}", err=True)
    return requested


def _placement(content: dict[str, Any]) -> Placement:
    spec = Document(content)["spec"]
    placement, affinity = read_placement(spec), spec["affinity"]["nodeAffinity"].content
    return (
        narrowed_affinity.as_asked(placement, affinity)
        if affinity and narrowed_affinity.is_narrowed(content)
        else placement
    )
