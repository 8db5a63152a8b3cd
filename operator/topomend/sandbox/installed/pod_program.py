"""The arguments and the environment of a program that runs in the place of a pod's container: pure functions.

A kubelet expands both for a container (kubelet_pods.go:makeEnvironmentVariables, third_party/forked/golang/expansion).
Here ``status.podIP`` is the program's own address on loopback: the pod's address leads nowhere.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


class NotSupported(Exception):
    """The container has a setting that a program of the sandbox cannot get; the text names it."""


@dataclass(frozen=True)
class Launch:
    """How a program starts: its arguments, and the variables beside those of the sandbox."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def launch_of(
    pod: Mapping[str, Any], *, address: str, replaced: Sequence[str] = (), added: Sequence[str] = ()
) -> Launch:
    """How the program of the pod's first container starts.

    The flags ``replaced`` are left out, and ``added`` come last, so that they count. Raises NotSupported.
    """
    container = pod["spec"]["containers"][0]
    environment = _environment(container, _fields(pod, address))
    if container.get("command"):
        raise NotSupported("command: the sandbox starts topomend itself and takes args only")
    arguments = [_expanded(text, environment) for text in container.get("args", ())]
    return Launch((*_without(arguments, replaced), *added), environment)


def _fields(pod: Mapping[str, Any], address: str) -> Mapping[str, str]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    return {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.podIP": address,
    }


def _environment(container: Mapping[str, Any], fields: Mapping[str, str]) -> Mapping[str, str]:
    if container.get("envFrom"):
        raise NotSupported("envFrom: the sandbox takes variables with a value or a fieldRef only")
    environment: dict[str, str] = {}
    for variable in container.get("env", ()):
        name, source = variable["name"], variable.get("valueFrom")
        if source is None:
            environment[name] = _expanded(variable.get("value", ""), environment)
            continue
        path = source.get("fieldRef", {}).get("fieldPath", "")
        if path not in fields:
            known = f"a fieldRef of {', '.join(fields)}"
            raise NotSupported(f"the variable {name}: the sandbox takes variables with a value or {known} only")
        environment[name] = fields[path]
    return environment


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """``text`` with the value of each $(NAME) that is known, and $ for $$."""

    def replacement(reference: re.Match[str]) -> str:
        if reference[1] is None:
            return "$"
        return environment.get(reference[1], reference[0])

    return _REFERENCE.sub(replacement, text)


def _without(arguments: Sequence[str], flags: Sequence[str]) -> Sequence[str]:
    return [argument for argument in arguments if argument.partition("=")[0] not in flags]
