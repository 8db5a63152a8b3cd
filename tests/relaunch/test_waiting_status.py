"""The reason why a refused pod waits, in its record on a real API server: written once, and again where it changes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.builders import pod_manifest
from tests.clock import Clock
from tests.clusters import Cluster

from topomend.kube.resources import RELAUNCHES
from topomend.model.relaunch_record import NodeVerdict, Relaunch, Step
from topomend.relaunch.manifest import digest
from topomend.relaunch.waiting_status import REPEAT_SECONDS, Note, WaitingStatus
from topomend.wire.relaunch_record import read_relaunch

pytestmark = pytest.mark.cluster

MANIFEST = pod_manifest("train", "cpu=5 memory=64Mi")
DRAFT = Relaunch(
    "default",
    "train-1",
    "train",
    "uid",
    "numa-a",
    "TopologyAffinityError",
    "",
    1,
    MANIFEST,
    manifest_hash=digest(MANIFEST),
)
NOTE = Note("NoNodeAdmitsNow", "numa-b lacks 1 CPU", verdicts=(NodeVerdict("numa-b", admitted=False),))
NOW = "2026-01-01T00:00:00Z"


class Records:
    """The record on the API server, and notes about it by a clock that the test moves."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self.clock = cluster, Clock()
        self.status = WaitingStatus(cluster.client, self.clock, lambda: NOW)

    def begin(self, note: Note = NOTE) -> Relaunch:
        self.status.begin(DRAFT, note)
        return self.read()

    def add(self, note: Note) -> Relaunch:
        self.status.add(self.read(), note)
        return self.read()

    def read(self) -> Relaunch:
        return read_relaunch(self._cluster.client.get(RELAUNCHES, DRAFT.name, DRAFT.namespace))


@pytest.fixture
def records(two_nodes: Cluster) -> Iterator[Records]:
    yield Records(two_nodes)
    two_nodes.remove_all()


def reason(record: Relaunch) -> tuple[str, str, str]:
    succeeded = record.condition("Succeeded")
    assert succeeded is not None
    return succeeded.status, succeeded.reason, succeeded.message


def test_a_record_is_begun_with_the_reason_why_its_pod_waits(records: Records) -> None:
    record = records.begin()
    assert (record.step, record.manifest, record.protected) == (Step.RECORDED, {}, False)
    assert reason(record) == ("Unknown", NOTE.reason, NOTE.message)
    assert (record.verdicts, record.start_time) == (NOTE.verdicts, NOW)


def test_a_note_that_says_nothing_new_is_not_written(records: Records) -> None:
    record = records.begin()
    records.clock.now += 2 * REPEAT_SECONDS
    assert records.add(NOTE).version == record.version


def test_another_message_is_written_at_most_every_half_minute_and_another_reason_at_once(records: Records) -> None:
    record = records.begin()
    reworded = replace(NOTE, message="numa-b lacks 2 CPUs")
    records.clock.now += REPEAT_SECONDS - 1
    assert records.add(reworded).version == record.version
    records.clock.now += 1
    assert reason(records.add(reworded)) == ("Unknown", NOTE.reason, reworded.message)
    never = Note("NoNodeCanEverAdmit", "closest: numa-b", never=True)
    condition = records.add(never).condition("NoNodeCanEverAdmit")
    assert condition is not None
    assert (condition.status, condition.message) == ("True", never.message)


def test_a_note_without_verdicts_keeps_those_of_the_last(records: Records) -> None:
    records.begin()
    assert records.add(Note("CreatorMayNot", "somebody may not create pods")).verdicts == NOTE.verdicts


@pytest.mark.parametrize("step", [Step.COMMITTED, Step.BLOCKED, Step.LAUNCHED])
def test_a_relaunch_that_goes_on_or_has_ended_is_not_said_to_wait(step: Step, records: Records) -> None:
    record = records.begin()
    records.status.add(replace(record, step=step), Note("CreatorMayNot", "somebody may not create pods"))
    assert records.read().version == record.version


def test_a_note_that_the_api_server_refuses_is_dropped(records: Records, two_nodes: Cluster) -> None:
    """Notes are for people; a pod whose reason cannot be written is relaunched all the same."""
    records.begin()
    stale = replace(records.read(), version="1")
    records.status.add(stale, Note("CreatorMayNot", "somebody may not create pods"))
    assert reason(records.read()) == ("Unknown", NOTE.reason, NOTE.message)
    records.status.begin(replace(DRAFT, namespace="nowhere"), NOTE)
    records.status.begin(replace(DRAFT, name="other", refused_by=""), NOTE)
    assert len(two_nodes.records()) == 1
