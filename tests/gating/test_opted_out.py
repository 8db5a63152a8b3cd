"""The annotation by which a namespace opts out, as the webhook reads it of a real API server."""

from contextlib import suppress

import pytest
from tests.clock import Clock
from tests.clusters import Cluster
from tests.intercepted import Intercepted

from topomend.gating.opted_out import FRESH_SECONDS, OptedOutNamespaces
from topomend.kube.errors import AlreadyExists, Unanswered
from topomend.kube.resources import NAMESPACES

pytestmark = pytest.mark.cluster

NAME = "opts-out"


def test_a_namespace_opts_out_by_false_alone_and_counts_so_within_seconds(two_nodes: Cluster) -> None:
    client, clock = two_nodes.client, Clock()
    with suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})
    namespaces = OptedOutNamespaces(client, clock)
    for value, expected in (("true", False), ("no", False), ("false", True), (None, False)):
        client.merge(NAMESPACES, NAME, {"metadata": {"annotations": {"topomend.io/relaunch": value}}})
        clock.now += FRESH_SECONDS
        assert namespaces.has(NAME) is expected
    client.merge(NAMESPACES, NAME, {"metadata": {"annotations": {"topomend.io/relaunch": "false"}}})
    assert namespaces.has(NAME) is False, "asked of the API server once in a while"
    assert namespaces.has("nowhere") is False


def test_where_nobody_answers_it_is_asked_once_in_a_while_and_what_was_known_counts(two_nodes: Cluster) -> None:
    asked: list[str] = []

    def fail(_: str, target: str) -> None:
        asked.append(target)
        raise Unanswered("away")

    client, clock = Intercepted(two_nodes.client), Clock()
    with suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})
    client.merge(NAMESPACES, NAME, {"metadata": {"annotations": {"topomend.io/relaunch": "false"}}})
    namespaces = OptedOutNamespaces(client, clock)
    assert namespaces.has(NAME)
    client.intercept = fail
    clock.now += FRESH_SECONDS
    assert [namespaces.has(NAME), namespaces.has(NAME)] == [True, True]
    assert [namespaces.has("other"), namespaces.has("other")] == [False, False]
    assert len(asked) == 2
