"""Warn of fields in a user's manifest that no container or pod has: ``limit`` for ``limits`` would ask for nothing.

Owns the fields that matter for resources and placement. The API server knows the others.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.output.console import echo

_RESOURCES = ("requests", "limits", "claims")
_CONTAINER = (
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "ports",
    "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules", "securityContext",
    "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
    "volumeMounts", "workingDir",
)  # fmt: skip
_SPEC = (
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
    "enableServiceLinks", "ephemeralContainers", "evictionResponders", "hostAliases", "hostIPC",
    "hostNetwork", "hostPID", "hostUsers",
    "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
    "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
    "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup", "securityContext",
    "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
    "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes", "workloadRef",
)  # fmt: skip
"""The fields of core/v1 PodSpec and Container, and of the kinds of resources."""


def warn_of_unknown_fields(documents: Iterable[Any], where: str) -> None:
    """Print a warning for each unknown field of a pod's spec, its containers and their resources."""
    for line in warnings(documents, where):
        echo(line, err=True)


def warnings(documents: Iterable[Any], where: str) -> Iterator[str]:
    """A warning for each unknown field of a pod's spec, its containers and their resources."""
    for document in documents:
        for path, name, known in _unknown(document):
            near = did_you_mean(name, known) or "; it is ignored"
            yield f"warning: {where}: {path}: no such field {name!r}{near}"


def _unknown(document: Any) -> Iterator[tuple[str, str, Iterable[str]]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _unknown(item)
    path, spec = _pod_spec(document)
    if not isinstance(spec, dict) or (path == "spec" and document.get("kind", "Pod") != "Pod"):
        return
    yield from _among(spec, _SPEC, path)
    yield from _among(spec.get("resources"), _RESOURCES, f"{path}.resources")
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            at = f"{path}.{kind}[{index}]"
            yield from _among(container, _CONTAINER, at)
            if isinstance(container, dict):
                yield from _among(container.get("resources"), _RESOURCES, f"{at}.resources")


def _among(content: Any, known: tuple[str, ...], path: str) -> Iterator[tuple[str, str, Iterable[str]]]:
    if isinstance(content, dict):
        yield from ((path, str(name), known) for name in content if name not in known)


def _pod_spec(document: dict[str, Any]) -> tuple[str, Any]:
    """The path and the content of a pod's spec: a Pod's own, or that of a workload's template."""
    path, spec = "spec", document.get("spec")
    for name in ("jobTemplate", "template"):
        if isinstance(spec, dict) and isinstance(spec.get(name), dict):
            path, spec = f"{path}.{name}.spec", spec[name].get("spec")
    return path, spec
