"""How long a kubelet would walk, and when replay says that it hangs."""

import pytest

from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks
from topomend.replay.topology.walk_time import (
    MAX_LISTED_NODES,
    MAX_PERMUTATIONS,
    MAX_SHORT_LIST,
    check_list,
    check_walk,
    is_too_long,
)


def test_an_hour_is_the_longest_walk() -> None:
    check_walk([MAX_PERMUTATIONS])
    check_walk([MAX_SHORT_LIST, MAX_SHORT_LIST])
    assert not is_too_long(MAX_PERMUTATIONS)
    assert is_too_long(MAX_PERMUTATIONS + 1)
    assert is_too_long((MAX_SHORT_LIST + 1) ** 2)


@pytest.mark.parametrize(
    ("lengths", "duration"),
    [
        ([MAX_PERMUTATIONS + 1], "1.0 hours"),
        ([MAX_PERMUTATIONS, 47], "47.0 hours"),
        ([MAX_PERMUTATIONS, 48], "2 days"),
        ([MAX_PERMUTATIONS, 24, 730], "730 days"),
        ([MAX_PERMUTATIONS, 24, 366, 20], "20 years"),
    ],
)
def test_a_longer_walk_is_a_hang_with_its_estimated_time(lengths: list[int], duration: str) -> None:
    with pytest.raises(KubeletBreaks, match=f"which takes {duration} or longer") as caught:
        check_walk(lengths)
    assert caught.value.reason == KUBELET_WOULD_HANG


def test_a_machine_of_which_all_masks_are_made_within_an_hour_has_33_numa_nodes() -> None:
    check_list((1 << 33) - 1)
    assert MAX_LISTED_NODES == 33


@pytest.mark.parametrize(
    ("nodes", "sets", "duration"), [(34, "1.7e+10", "1.2 hours"), (40, "1.1e+12", "3 days"), (64, "1.8e+19", "146,")]
)
def test_more_masks_are_a_hang_with_its_estimated_time(nodes: int, sets: str, duration: str) -> None:
    with pytest.raises(KubeletBreaks) as caught:
        check_list((1 << nodes) - 1)
    assert caught.value.reason == KUBELET_WOULD_HANG
    assert f"make all {sets} sets of {nodes} NUMA nodes" in caught.value.why
    assert f"which takes {duration}" in caught.value.why
