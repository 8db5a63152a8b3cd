"""A core/v1 Pod, as the API server stores it or as a user wrote it, read into the pod that admission sees."""

from collections.abc import Callable, Mapping
from typing import Any

from topomend.model.pod import Container, ContainerKind, Pod, Resources, largest_need
from topomend.model.quantity import MilliQuantity
from topomend.wire.document import Document


def read_pod(pod: dict[str, Any]) -> Pod:
    """The Pod with the defaults that the API server would have filled in: requests from limits, namespace.

    Ephemeral containers take no part in admission and are left out. Raises MalformedObject.
    Source: pkg/apis/core/v1/defaults.go:SetDefaults_Pod; kubelet topologymanager/scope.go (order of containers).
    """
    document = Document(pod)
    if document["kind"].text(default="Pod") != "Pod":
        raise document["kind"].wrong("Pod")
    metadata, spec = document["metadata"], document["spec"]
    initial = tuple(_container(each, _initial_kind(each)) for each in spec["initContainers"])
    apps = tuple(_container(each, ContainerKind.APP) for each in spec["containers"])
    if not apps:
        raise spec["containers"].wrong("a list of at least one container")
    return Pod(
        namespace=metadata["namespace"].text(default="default"),
        name=metadata["name"].text(default=metadata["generateName"].text(default="")),
        uid=metadata["uid"].text(default=""),
        containers=initial + apps,
        qos_class=document["status"]["qosClass"].text(default=""),
        resources=None if spec["resources"].absent else _pod_level(spec["resources"], initial + apps),
    )


def _initial_kind(container: Document) -> ContainerKind:
    sidecar = container["restartPolicy"].text(default="") == "Always"
    return ContainerKind.SIDECAR if sidecar else ContainerKind.INIT


def _container(container: Document, kind: ContainerKind) -> Container:
    return Container(container["name"].text(), kind, _resources(container["resources"]))


def _resources(resources: Document) -> Resources:
    limits = _quantities(resources["limits"])
    return Resources(requests={**limits, **_quantities(resources["requests"])}, limits=limits)


def _quantities(resources: Document) -> dict[str, MilliQuantity]:
    quantities = {name: quantity.quantity() for name, quantity in resources.fields()}
    for name, quantity in resources.fields():
        if quantities[name] < 0:
            raise quantity.wrong("a quantity that is not negative")
    return quantities
