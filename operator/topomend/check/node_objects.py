"""Read what the checks need of Nodes and NodeTopologies beside what a snapshot keeps of them."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from topomend.check.facts import NodeLabels, Publication
from topomend.model.nodes.node_pool import POOL_LABELS
from topomend.wire.document import Document
from topomend.wire.published.node_topology import read_conditions

_OS = "kubernetes.io/os"
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_ACCELERATOR_CLASSES = ("0302", "12", "0b40")
"""The beginnings of the PCI classes of 3D controllers, accelerators and co-processors."""

_GPU_VENDORS = ("10de", "1002")
"""Vendors whose display controllers are GPUs."""


def read_labels(content: Any) -> NodeLabels:
    """The NodeLabels of a Node. A Node without the label counts as one of Linux. Raises MalformedObject."""
    labels = Document(content)["metadata"]["labels"]
    pool = next((f"{key}={labels[key].text()}" for key in POOL_LABELS if not labels[key].absent), "")
    return NodeLabels(labels[_OS].text("linux") == "linux", pool)


def read_publication(content: Any) -> Publication:
    """The Publication of a NodeTopology. Raises MalformedObject."""
    status = Document(content)["status"]
    named = {identity for resource in status["devices"] for identity in _addresses(resource)}
    places: dict[str, int] = {}
    accelerators: Counter[int] = Counter()
    functions = 0
    for function in status["machine"]["pciDevices"]:
        functions += 1
        if function["numaNode"].absent:
            continue
        numa_node = function["numaNode"].integer()
        if function["address"].text() in named:
            places[function["address"].text()] = numa_node
        if _is_accelerator(function):
            accelerators[numa_node] += 1
    return Publication(read_conditions(content), places, tuple(sorted(accelerators.elements())), functions)


def _addresses(resource: Document) -> Iterator[str]:
    """The ids of a resource's devices that are PCI addresses, as those of SR-IOV are."""
    for group in resource["groups"]:
        for identity in group["ids"]:
            if _PCI_ADDRESS.fullmatch(identity.text()):
                yield identity.text()


def _is_accelerator(function: Document) -> bool:
    """Whether it computes. The display controllers of a server's own management are left out."""
    pci_class, vendor = function["class"].text(""), function["vendorID"].text("")
    return pci_class.startswith(_ACCELERATOR_CLASSES) or (pci_class.startswith("03") and vendor in _GPU_VENDORS)
