"""The annotations of a namespace, read from a real API server."""

from contextlib import suppress

import pytest
from tests.clusters import Cluster

from topomend.decide.eligibility import Limits, wrong_value
from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import NAMESPACES
from topomend.reconcile.namespace_limits import NamespaceLimits

pytestmark = pytest.mark.cluster

DEFAULTS = Limits("the operator's default", 5)

TYPO = "no\n"
WRONG = f"of namespace limits-typo {wrong_value(TYPO)}"


@pytest.mark.parametrize(
    ("name", "annotations", "limits"),
    [
        ("limits-none", {}, DEFAULTS),
        ("limits-on", {"topomend.io/relaunch": "true"}, Limits("", 5)),
        (
            "limits-off",
            {"topomend.io/relaunch": "false"},
            Limits('of namespace limits-off topomend.io/relaunch is "false"'),
        ),
        (
            "limits-typo",
            {"topomend.io/relaunch": TYPO, "topomend.io/max-attempts": "-3"},
            Limits(WRONG, wrong_value=WRONG),
        ),
        (
            "limits-all",
            {"topomend.io/max-attempts": "2", "topomend.io/name-policy": "Suffix"},
            Limits(DEFAULTS.opted_out, 2, "Suffix"),
        ),
    ],
)
def test_a_namespace_decides_for_its_pods_and_the_operators_mode_for_the_others(
    name: str, annotations: dict[str, str], limits: Limits, two_nodes: Cluster
) -> None:
    metadata = {"name": name, "annotations": annotations}
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    assert NamespaceLimits(two_nodes.client, DEFAULTS).limits(name) == limits


def test_a_namespace_that_is_gone_has_the_operators_limits(two_nodes: Cluster) -> None:
    assert NamespaceLimits(two_nodes.client, DEFAULTS).limits("nowhere") == DEFAULTS
