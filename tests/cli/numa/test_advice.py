"""What ``kubectl numa make-room`` says without room. With room, and on real kubelets: ``test_make_room``."""

from dataclasses import replace

import pytest

from topomend.cli.numa.make_room import Advice, none_text
from topomend.cli.output.failures import NO, NOT_KNOWN

SAYS_NO = Advice("wide", None, may_be_evicted=False, unknown=())


@pytest.mark.parametrize(
    ("advice", "code", "words"),
    [
        (SAYS_NO, NO, "no node would admit it, whoever ended; see kubectl numa explain"),
        (replace(SAYS_NO, unknown=("a",)), NOT_KNOWN, "whoever ended; the state of 1 node is unknown; see"),
        (replace(SAYS_NO, is_complete=False), NOT_KNOWN, "no room was found, and there were too many sets of pods"),
    ],
)
def test_no_is_said_where_every_node_and_every_set_of_pods_was_asked_about(
    advice: Advice, code: int, words: str
) -> None:
    assert advice.code == code
    assert words in none_text(advice)
    assert advice.record()["fewest"] is advice.is_complete
