"""What is known of the volumes of a gated or refused pod stays known as long as it is the same pod."""

from dataclasses import replace

from tests.builders import gated_pod, refused_pod

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement, WatchedPod

TERMS = ((NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),),)
POD = gated_pod("p", claims=("data",), placement=Placement({"pool": "x"}, volumes=None))
READ = changes.PodVolumesRead(POD.namespace, POD.name, POD.uid, TERMS)
WATCHED = apply(Snapshot(), changes.PodUpdated(POD, 1.0))


def kept(snapshot: Snapshot) -> WatchedPod:
    return snapshot.gated[POD.namespace, POD.name]


def test_what_was_read_is_part_of_the_pods_placement() -> None:
    assert kept(apply(WATCHED, READ)).placement == Placement({"pool": "x"}, volumes=TERMS)


def test_it_outlasts_events_and_lists_of_the_same_pod() -> None:
    later = replace(POD, version="6")
    known = apply(WATCHED, READ)
    for change in (changes.PodUpdated(later, 2.0), changes.PodsListed((later,), "7", 2.0)):
        assert kept(apply(known, change)) == replace(later, placement=kept(known).placement)


def test_it_is_known_of_a_refused_pod_too() -> None:
    refused = refused_pod(claims=("data",), placement=POD.placement)
    read = changes.PodVolumesRead(refused.namespace, refused.name, refused.uid, TERMS)
    known = apply(apply(Snapshot(), changes.PodUpdated(refused, 1.0)), read)
    for change in (changes.PodUpdated(replace(refused, version="6"), 2.0), changes.PodsListed((refused,), "7", 2.0)):
        assert apply(known, change).refused[refused.uid].pod.placement.volumes == TERMS
    another = replace(refused, uid="another")
    assert apply(known, changes.PodUpdated(another, 2.0)).refused["another"].pod.placement.volumes is None


def test_another_pod_of_the_name_has_volumes_of_its_own() -> None:
    another = replace(POD, uid="another")
    assert kept(apply(apply(WATCHED, READ), changes.PodUpdated(another, 2.0))).placement.volumes is None
    assert apply(apply(Snapshot(), changes.PodUpdated(another, 1.0)), READ).gated[POD.namespace, POD.name] == another


def test_what_is_no_longer_known_is_forgotten() -> None:
    forgotten = apply(apply(WATCHED, READ), READ._replace(volumes=None))
    assert kept(forgotten) == POD
    assert apply(Snapshot(), READ) == Snapshot()
