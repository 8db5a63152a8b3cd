"""The drawing of a node; on nodes that real agents publish it is tested in tests/live."""

from tests.replay.nodes import TWO, node

from topomend.cli.numa.render import draw


def test_an_option_that_no_released_kubelet_knows_is_said_with_the_node() -> None:
    packing = node(TWO, options="prefer-most-allocated-numa-node=true", gates="TopologyManagerPolicyAlphaOptions")
    (remark,) = set(draw(packing)) - set(draw(node(TWO)))
    assert remark == (
        "not modelled by replay: released kubelets up to 1.36 refuse to start with option "
        "prefer-most-allocated-numa-node, which was replayed as its KEP tells it"
    )
