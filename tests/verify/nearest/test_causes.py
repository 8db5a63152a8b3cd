"""Every sentence about a refusal is true, on random nodes of 1 to 34 NUMA nodes. ``make nearest`` asks many more."""

from collections.abc import Callable, Iterable
from itertools import count

import pytest
from tests.builders import node_state, pod
from tests.seeds import SEED
from verify.nearest import causes
from verify.nearest.counterfactual import RefusedPod, refused_on_many, refused_pods
from verify.nearest.remedies import wrong_remedies

from topomend.explain.cause import Cause, Kind
from topomend.explain.remedy import Remedy, remedy_of
from topomend.replay.admission import admit

REFUSED = RefusedPod(0, node_state(), pod("p", "cpu=5 memory=1Gi"))


def faults(refused: RefusedPod) -> list[str]:
    remedy = remedy_of(refused.state, refused.pod, admit(refused.state, refused.pod)[0])
    return causes.wrong_causes(refused)[1] + wrong_remedies(refused, remedy)


@pytest.mark.parametrize("seed", [SEED])
@pytest.mark.parametrize(("draw", "least"), [(refused_pods, 120), (refused_on_many, 30)], ids=["usual", "many"])
def test_causes_and_remedies_are_true(draw: Callable[[int], Iterable[RefusedPod]], least: int, seed: int) -> None:
    checked = 0
    for number in count(seed):
        for refused in draw(number):
            assert faults(refused) == [], (number, refused.pod)
            checked += 1
        if checked >= least:
            return


@pytest.mark.parametrize(
    "sentence",
    [
        "cpu requests 5 and fits no NUMA node: free 3 on NUMA 0, 4 on NUMA 1, lacks 2",
        "cpu fits NUMA 0 only",
        "its resources prefer different numbers of NUMA nodes: cpu (5) prefers 2, memory (1Gi) prefers 1; restricted",
    ],
)
def test_a_sentence_that_is_false_is_found(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    false = Cause(Kind.NOT_ENOUGH_FREE, "c0", ("cpu",), sentence)
    monkeypatch.setattr(causes, "cause_of", lambda *_: false)
    assert causes.wrong_causes(REFUSED)[1]


@pytest.mark.parametrize("way", ["with 5 CPUs", "once ns/q ends", "with more luck", "without vendor.com/gpu"])
def test_a_remedy_that_does_not_help_is_found(way: str) -> None:
    assert wrong_remedies(REFUSED, Remedy(changes=(way,)))
