"""The drawing of a node; on nodes that real agents publish it is tested in tests/live."""

from tests.builders import node_state

from topomend.cli.numa.render import draw


def test_an_option_that_no_released_kubelet_knows_is_said_with_the_node() -> None:
    packing = node_state(options="prefer-most-allocated-numa-node=true", gates="TopologyManagerPolicyAlphaOptions")
    (remark,) = set(draw(packing)) - set(draw(node_state()))
    assert remark == (
        "not modelled by replay: released kubelets do not start with option prefer-most-allocated-numa-node; "
        "replay follows its KEP"
    )
