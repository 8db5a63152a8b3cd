"""Which records the snapshot keeps."""

from dataclasses import replace

from tests.builders import applied

from topomend.cache import changes
from topomend.model.relaunch_record import Relaunch, Step


def test_only_open_records_are_kept() -> None:
    record = Relaunch("ns", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1, {}, version="3")
    snapshot = applied(changes.RelaunchUpdated(record))
    assert set(snapshot.relaunches) == {("ns", "p-1")}
    assert not applied(changes.RelaunchUpdated(replace(record, step=Step.LAUNCHED)), to=snapshot).relaunches
    assert not applied(changes.RelaunchesListed((), "4"), to=snapshot).relaunches
