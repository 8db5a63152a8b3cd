"""Which merged hints each policy admits."""

import pytest

from topomend.replay.topology.hints import Answer, Hints, Offer
from topomend.replay.topology.merge import Hint, NUMAInfo
from topomend.replay.topology.policies import decide
from topomend.replay.topology.policy_names import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE

INFO = NUMAInfo(0b11)
ONLY_0, ONLY_1, BOTH = Hints(masks=(0b01,), width=1), Hints(masks=(0b10,), width=1), Hints(masks=(0b11,), width=2)


@pytest.mark.parametrize(
    ("offers", "admitted_by"),
    [
        ((ONLY_0, ONLY_0), {BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE}),
        ((BOTH,), {BEST_EFFORT, RESTRICTED}),
        ((ONLY_0, ONLY_1), {BEST_EFFORT}),
        ((Answer.IMPOSSIBLE,), {BEST_EFFORT}),
        ((Answer.NO_PREFERENCE,), {BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE}),
    ],
    ids=["one NUMA node", "two NUMA nodes preferred", "different NUMA nodes", "impossible", "no preference"],
)
def test_a_policy_admits_the_hints_that_it_promises(offers: tuple[Offer, ...], admitted_by: set[str]) -> None:
    policies = (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
    assert {policy for policy in policies if decide(policy, INFO, offers)[1]} == admitted_by


def test_a_tie_break_chooses_the_numa_node_under_single_numa_node_alone() -> None:
    either = Hints(masks=(0b01, 0b10), width=1)
    assert decide(SINGLE_NUMA_NODE, INFO, [either], max)[0] == Hint(0b10, preferred=True)
    assert decide(RESTRICTED, INFO, [either], max)[0] == Hint(0b01, preferred=True)
