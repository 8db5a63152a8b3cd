"""Publish the node's NodeFeature, of which Node Feature Discovery makes labels.

Owns when a node that is not Ready is said to be so. Leaves the layout to ``wire.published.node_feature`` and the facts
to ``discover.node_features``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from topomend.model.nodes.node_features import NodeFeatures
from topomend.publish.publisher import NodeFacts
from topomend.publish.second_object import SecondKind, SecondObject, ready_of
from topomend.wire.published.node_feature import KIND, content_of, node_feature
from topomend.wire.published.writers import other_writer

CONDITION = "NodeFeaturePublished"

UNREADY_SECONDS = 30.0
"""How long a node is not Ready before its labels say so: a kubelet that is restarted takes less, and a label that comes
and goes would move pods."""


class Client(Protocol):
    """The requests that publishing needs (``kube.agent_client``). All raise APIError."""

    def node_feature(self, name: str, namespace: str) -> dict[str, Any]:
        """The NodeFeature object."""

    def apply_node_feature(self, name: str, namespace: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Apply the object without force. Raises Conflict where another field manager owns one of its fields."""


class NodeFeaturePublisher:
    """Publishes the object of the node ``name`` in ``namespace``. ``monotonic`` is a clock in seconds."""

    def __init__(self, client: Client, name: str, namespace: str, monotonic: Callable[[], float]) -> None:
        self._name, self._namespace, self._monotonic = name, namespace, monotonic
        kind = SecondKind(
            kind=KIND,
            condition=CONDITION,
            flag="--node-features",
            rights="deploy/components/node-features",
            get=partial(client.node_feature, name, namespace),
            apply=partial(client.apply_node_feature, name, namespace),
            content_of=content_of,
            other_writer=other_writer,
        )
        self._object = SecondObject(kind, name, monotonic)
        self._unready_since: float | None = None

    def publish(
        self,
        features: Callable[[bool], NodeFeatures],
        source: tuple[object, object],
        status: Mapping[str, Any],
        node: NodeFacts,
    ) -> Mapping[str, Any]:
        """Publish the node's object, and return ``status`` with the condition that says whether that succeeded.

        ``features`` computes the facts of a node that is Ready, or of one that is not. They are computed again only
        where ``source`` has changed, its first part by identity, the second by value.
        """
        is_ready = self._is_ready(status)
        if is_ready is not None:
            wanted = partial(self._wanted, features, node, is_ready=is_ready)
            self._object.publish(wanted, source[0], (source[1], node, is_ready))
        return self._object.with_condition(status)

    def _is_ready(self, status: Mapping[str, Any]) -> bool | None:
        """None while it is not known whether the node stays unready: the last published object stays."""
        if ready_of(status) == "True":
            self._unready_since = None
            return True
        now = self._monotonic()
        if self._unready_since is None:
            self._unready_since = now
        return False if now - self._unready_since >= UNREADY_SECONDS else None

    def _wanted(
        self, features: Callable[[bool], NodeFeatures], node: NodeFacts, *, is_ready: bool
    ) -> Mapping[str, Any]:
        return node_feature(self._name, self._namespace, self._object.owner(node), features(is_ready))
