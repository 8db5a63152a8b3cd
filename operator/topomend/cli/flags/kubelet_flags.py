"""Parse the flags that are named after the kubelet's own. A wrong value gets an error that shows a valid form."""

import re
from collections.abc import Sequence
from pathlib import Path

import click

from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.output.failures import BadInput
from topomend.model.nodes.kubelet import MemoryReservation
from topomend.model.quantity import parse_quantity, value

TOPOLOGY_MANAGER_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_MANAGER_SCOPES = ("container", "pod")

DROP_IN_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
"""The drop-in folder of a kubelet that is asked about. None starts while the folder is missing, which it walks
(cmd/kubelet/app/server.go:mergeKubeletConfigurations)."""

_VERSION = re.compile(r"v?\d{1,2}\.\d{1,4}(?:\.\d{1,4})?(?:[-+].{1,60})?", re.ASCII)


def read_version(text: str) -> str:
    """A kubelet's version, which begins with v. Raises ValueError."""
    if not _VERSION.fullmatch(text):
        raise ValueError("not a version such as v1.37.2")
    return text if text.startswith("v") else f"v{text}"


def read_choice(flag: str, text: str, known: Sequence[str]) -> str:
    """One of the values that there are. Raises BadInput, which names ``flag``."""
    if text not in known:
        raise BadInput(f"{flag} {text!r} is none of {', '.join(known)}{did_you_mean(text, known)}")
    return text


def read_options(text: str) -> dict[str, str]:
    """Policy options by name, from ``NAME=VALUE,...``. Raises ValueError."""
    options = {}
    for part in filter(None, text.split(",")):
        name, equals, setting = part.partition("=")
        if not equals or not name:
            raise ValueError(f"{part!r} is not NAME=VALUE")
        options[name.strip()] = setting.strip()
    return options


def read_reservations(text: str) -> tuple[MemoryReservation, ...]:
    """Reserved memory in bytes, from ``NUMA:RESOURCE=QUANTITY,...;...``. Raises ValueError."""
    reservations = []
    for part in filter(None, text.split(";")):
        node, colon, limits = part.partition(":")
        if not colon or not node.strip().isdigit():
            raise ValueError(f"{part!r} is not NUMA:RESOURCE=QUANTITY,..., such as 0:memory=512Mi")
        for limit in filter(None, limits.split(",")):
            resource, equals, quantity = limit.partition("=")
            if not equals:
                raise ValueError(f"{limit!r} is not RESOURCE=QUANTITY, such as memory=512Mi")
            reservations.append(MemoryReservation(int(node), resource.strip(), value(parse_quantity(quantity))))
    return tuple(reservations)
