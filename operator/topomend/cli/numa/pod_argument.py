"""The pod that a verb is about: one of the cluster, or one that a file describes."""

from dataclasses import dataclass
from typing import Any

import click

from topomend.cli.failures import BadInput
from topomend.cli.manifests import read_documents
from topomend.cli.nearest import did_you_mean
from topomend.cli.numa.cluster import Cluster
from topomend.decide.requested_alignment import wrong_value
from topomend.kube.client import PODS
from topomend.kube.errors import NotFound
from topomend.model.cluster import Placement
from topomend.model.pod import Pod
from topomend.relaunch import narrowing
from topomend.wire.cluster import read_placement
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pod import read_pod


@dataclass(frozen=True)
class RequestedPod:
    """The pod as admission sees it, the nodes that its user allows, and the API object."""

    pod: Pod
    placement: Placement
    content: dict[str, Any]


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
    return read_requested(_pod_in(documents[0], source), f"-f {source}")


def _pod_in(document: dict[str, Any], source: str) -> dict[str, Any]:
    """A Pod itself, or a pod from a workload's template (Deployment, StatefulSet, Job, CronJob and others)."""
    if document.get("kind") == "Pod":
        return document
    try:
        spec = Document(document)["spec"]
        spec = spec["jobTemplate"]["spec"] if document.get("kind") == "CronJob" else spec
        template = spec["template"].content
    except MalformedObject as error:
        raise BadInput(f"-f {source}: {error}") from error
    if not isinstance(template, dict):
        raise BadInput(f"-f {source}: {document.get('kind')} has no pod template; give a Pod or a workload")
    name = document.get("metadata", {}).get("name", "")
    metadata = {"name": name, **(template.get("metadata") or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}


def read_requested(content: dict[str, Any], where: str) -> RequestedPod:
    """Read a Pod object; ``where`` names it in errors. Warns of an annotation that means nothing. Raises BadInput."""
    try:
        requested = RequestedPod(read_pod(content), _placement(content), content)
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error
    if wrong := wrong_value(requested.pod):
        click.echo(f"warning: {where}: {wrong}", err=True)
    return requested


def _placement(content: dict[str, Any]) -> Placement:
    spec = Document(content)["spec"]
    placement, affinity = read_placement(spec), spec["affinity"]["nodeAffinity"].content
    return narrowing.as_asked(placement, affinity) if affinity and narrowing.is_narrowed(content) else placement
