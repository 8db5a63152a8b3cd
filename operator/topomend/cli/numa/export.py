"""``kubectl numa export``: the contents of a bug report, as YAML on stdout, without private data.

Pods are reduced to the fields that admission and scheduling read, listed one by one below: no command, environment,
image, volume or label, and no annotation but topomend's own. The creator of a pod is left out too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from topomend import __version__
from topomend.cli.numa.cluster.cluster import NOTHING_PUBLISHED, Cluster, cluster_options
from topomend.cli.numa.cluster.completion import complete_nodes
from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.formats import JSON, NAME, YAML, echo_document, object_name, output_option
from topomend.cli.output.yaml_text import yaml_text
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS, RELAUNCHES
from topomend.model.pods.scheduling import REFUSAL_PREFIX
from topomend.wire.group import CREATOR_ANNOTATION, CREATOR_MAY_NOT, GROUP

_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion")
_POD_METADATA = (*_METADATA, "finalizers")
_POD_SPEC = (
    "nodeName",
    "resources",
    "overhead",
    "restartPolicy",
    "schedulerName",
    "schedulingGates",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
)
_CONTAINER = ("name", "resources", "restartPolicy")
_POD_STATUS = ("phase", "reason", "message", "qosClass", "startTime", "nodeAllocatableResourceClaimStatuses")
_NODE_SPEC = ("unschedulable", "taints")
_NODE_STATUS = ("capacity", "allocatable", "nodeInfo")
_MACHINE_IDS = ("machineID", "systemUUID", "bootID")

_NO_NAME = "the pod's creator may not create it (the report leaves names out)"


_EXAMPLES = """\b
Examples:
  kubectl numa export > report.yaml              # all nodes, and the pods of the namespace
  kubectl numa export gpu-01 -A > report.yaml
  kubectl numa export -o name                    # the names of the objects in the report
"""


@click.command(epilog=_EXAMPLES)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes)
@click.option("-A", "--all-namespaces", is_flag=True, help="The relaunches and refused pods of every namespace.")
@output_option(YAML, JSON, NAME)
@cluster_options
def export(*, cluster: Cluster, nodes: tuple[str, ...], all_namespaces: bool, output: str) -> None:
    """Print the contents of a bug report about all nodes, or about the named ones.

    The report has versions, nodes with their NodeTopology, relaunches and refused pods. Of a pod it has only the fields
    that admission reads: no command, environment, image, volume or label.
    """
    namespace = "" if all_namespaces else cluster.namespace
    listed = cluster.client.list(NODES).items
    names = {item["metadata"]["name"] for item in listed}
    for name in nodes:
        if name not in names:
            raise cluster.no_node(name, names)
    topologies = cluster.own(NODE_TOPOLOGIES)
    records = cluster.own(RELAUNCHES, namespace)
    pods = cluster.client.list(PODS, namespace=namespace, fields="status.phase=Failed").items
    versions = {"topomend": __version__, "apiServer": cluster.client.version()}
    _echo(versions, [*_chosen(nodes, listed, topologies), *map(record, records), *refused(pods)], output)
    published = {item["metadata"]["name"] for item in topologies}
    for name in sorted(set(nodes) - published):
        echo(f"{name} has no NodeTopology: its agent publishes nothing", err=True)
    if not published:
        echo(NOTHING_PUBLISHED, err=True)


def _echo(versions: Mapping[str, str], objects: Sequence[Mapping[str, Any]], output: str) -> None:
    if output == NAME:
        for content in objects:
            echo(object_name(content["apiVersion"], content["kind"], content["metadata"]["name"]))
    elif output == JSON:
        echo_document({"versions": versions, "apiVersion": "v1", "kind": "List", "items": objects}, output)
    else:
        echo_data(yaml_text({"versions": versions}, *objects), nl=False)


def _chosen(names: tuple[str, ...], *listed: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for content in (item for items in listed for item in items):
        if not names or content["metadata"]["name"] in names:
            yield node(content) if "nodeInfo" in content.get("status", {}) else topology(content)


def node(content: Mapping[str, Any]) -> dict[str, Any]:
    """A Node's relevant fields, with its labels: the pods' node selectors refer to them."""
    head = _head("v1", "Node", content, (*_METADATA, "labels"))
    conditions = [
        {key: condition.get(key) for key in ("type", "status")} for condition in content["status"].get("conditions", ())
    ]
    status = _picked(content["status"], _NODE_STATUS) | {"conditions": conditions}
    if "nodeInfo" in status:
        status["nodeInfo"] = {key: text for key, text in status["nodeInfo"].items() if key not in _MACHINE_IDS}
    return head | {"spec": _picked(content.get("spec", {}), _NODE_SPEC), "status": status}


def topology(content: Mapping[str, Any]) -> dict[str, Any]:
    """A NodeTopology with its whole status, which has the names and allocations of pods."""
    head = _head(content["apiVersion"], content["kind"], content, _METADATA)
    return head | {key: content[key] for key in ("status",) if key in content}


def record(content: Mapping[str, Any]) -> dict[str, Any]:
    """A Relaunch; the manifest in it is reduced as a pod is."""
    head = _head(content["apiVersion"], content["kind"], content, _METADATA)
    status = dict(content.get("status", {}))
    if "manifest" in status:
        status["manifest"] = _of_pod(status["manifest"])
    if "conditions" in status:
        status["conditions"] = [_without_creator(condition) for condition in status["conditions"]]
    return head | {"spec": content.get("spec", {}), "status": status}


def _without_creator(condition: Mapping[str, Any]) -> dict[str, Any]:
    """The condition of a Relaunch: one that says what the pod's creator may not do begins with the name."""
    return {**condition, "message": _NO_NAME} if condition.get("reason") == CREATOR_MAY_NOT else {**condition}


def refused(pods: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """The pods that a kubelet refused, reduced to the reported fields."""
    for pod in pods:
        if str(pod.get("status", {}).get("message", "")).startswith(REFUSAL_PREFIX):
            yield {"apiVersion": "v1", "kind": "Pod", **_of_pod(pod), "status": _picked(pod["status"], _POD_STATUS)}


def _of_pod(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec = content.get("metadata", {}), content.get("spec", {})
    annotations = {
        key: value
        for key, value in metadata.get("annotations", {}).items()
        if key.startswith(f"{GROUP}/") and key != CREATOR_ANNOTATION
    }
    owners = [
        _picked(owner, ("apiVersion", "kind", "uid", "controller")) for owner in metadata.get("ownerReferences", ())
    ]
    containers = {
        kind: [_picked(container, _CONTAINER) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if kind in spec
    }
    head = _picked(metadata, _POD_METADATA) | {"annotations": annotations, "ownerReferences": owners}
    return {"metadata": head, "spec": _picked(spec, _POD_SPEC) | containers}


def _head(version: str, kind: str, content: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": _picked(content["metadata"], keys)}


def _picked(content: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: content[key] for key in keys if key in content}
