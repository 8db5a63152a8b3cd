"""Read core/v1 Nodes: the fields by which the scheduler chooses them, and their totals."""

from typing import Any

from topomend.model.nodes.node import Node, Taint
from topomend.wire.document import Document


def read_node(content: Any) -> Node:
    """The Node of a Node object. Amounts are in thousandths. Raises MalformedObject."""
    document = Document(content)
    metadata, spec, status = document["metadata"], document["spec"], document["status"]
    ready = [
        condition["status"].text("") for condition in status["conditions"] if condition["type"].text("") == "Ready"
    ]
    return Node(
        name=metadata["name"].text(),
        uid=metadata["uid"].text(""),
        labels={key: value.text("") for key, value in metadata["labels"].fields()},
        taints=tuple(
            Taint(taint["key"].text(), taint["effect"].text(""), taint["value"].text("")) for taint in spec["taints"]
        ),
        unschedulable=spec["unschedulable"].boolean(default=False),
        allocatable={name: amount.quantity() for name, amount in status["allocatable"].fields()},
        ready=ready == ["True"],
        capacity={name: amount.quantity() for name, amount in status["capacity"].fields()},
        strict_groups=status["features"]["supplementalGroupsPolicy"].boolean(default=False),
        version=metadata["resourceVersion"].text(""),
    )
