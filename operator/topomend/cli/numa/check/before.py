"""``kubectl numa check --before``: what an installation would change. Reads Nodes and failed pods, writes nothing."""

from collections.abc import Iterator
from typing import Any

from topomend.check.prospect import KnownNode, NodeKind, RefusedPod, counted, kinds_of, lines, refused_pods
from topomend.cli.numa.check.cluster_facts import manifests
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.console import echo, echo_lines
from topomend.cli.output.formats import DOCUMENTS, NAME, echo_document
from topomend.discover.kubelet_config.layouts import cure
from topomend.kube.resources import NODES, PODS
from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.scheduling import read_watched_pod

FAILED = "status.phase=Failed"


def print_prospect(cluster: Cluster, output: str) -> None:
    """Print what would change, in one of the formats of ``-o``. Raises APIError."""
    from topomend.gating.installer import served_version  # noqa: PLC0415  slow to import

    release, policies = cluster.client.version(), bool(served_version(cluster.client))
    kinds = kinds_of(cluster.client.read(NODES, _node).items)
    refused = refused_pods(cluster.client.read(PODS, _pod, fields=FAILED).items)
    objects = counted(manifests())
    if output in DOCUMENTS:
        names = {"release": release, "gatesByPolicies": policies, "objects": objects}
        records = {"nodes": list(map(_node_record, kinds)), "refusedPods": list(map(_pod_record, refused))}
        echo_document(names | records, output)
    elif output == NAME:
        echo_lines(f"pod/{pod.name}" for pod in refused)
    else:
        echo_lines(lines(release, kinds, refused, objects, policies=policies))


def _node(content: dict[str, Any]) -> Iterator[KnownNode]:
    try:
        document = Document(content)
        metadata, info = document["metadata"], document["status"]["nodeInfo"]
        marks = [key for kind in ("labels", "annotations") for key, _ in metadata[kind].fields()]
        release, image = info["kubeletVersion"].text(""), info["osImage"].text("")
        linux = info["operatingSystem"].text("linux") == "linux"
        yield KnownNode(metadata["name"].text(), release, image, linux, cure(release, image, marks))
    except MalformedObject as error:
        echo(f"Node {content['metadata']['name']} is skipped: {error}", err=True)


def _pod(content: dict[str, Any]) -> Iterator[WatchedPod]:
    try:
        yield read_watched_pod(content)
    except MalformedObject as error:
        metadata = content["metadata"]
        echo(f"pod {metadata.get('namespace')}/{metadata['name']} is skipped: {error}", err=True)


def _node_record(kind: NodeKind) -> dict[str, Any]:
    return {
        "release": kind.release,
        "osImage": kind.os_image,
        "names": list(kind.nodes),
        "settingsRead": kind.is_read,
        "settings": kind.settings,
    }


def _pod_record(pod: RefusedPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "reason": pod.reason,
        "treatment": pod.treatment.value,
        "why": pod.why,
    }
