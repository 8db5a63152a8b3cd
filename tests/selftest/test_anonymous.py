"""A report for strangers has no name of another pod, and everything that admission reads."""

from tests.builders import guaranteed_pod, node_state, pod, running

from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit
from topomend.selftest.anonymous import without_names

OWN = "topomend-selftest-abcde"


def busy() -> NodeState:
    return running(
        node_state(memory_manager="Static"),
        pod("secret-launch", "cpu=2 memory=1Gi", namespace="stealth", uid="f00d"),
        pod("mine", "cpu=1 memory=1Mi", namespace=OWN),
    )


def test_no_name_of_another_pod_is_left() -> None:
    shown = str(without_names(busy(), OWN))
    assert not any(word in shown for word in ("secret", "stealth", "f00d", "c1"))
    assert "mine" in shown


def test_a_kubelet_answers_from_it_as_before() -> None:
    for cpus in range(1, 6):
        asked = guaranteed_pod("asked", cpus)
        assert admit(without_names(busy(), OWN), asked)[0] == admit(busy(), asked)[0]
