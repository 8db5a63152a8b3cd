"""Volumes of gated pods, read from a real API server, and what happens where they cannot be read."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, pod_manifest, refused_pod, snapshot_of
from tests.clock import Clock
from tests.clusters import Cluster
from tests.intercepted import Intercepted

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.kube.errors import NotFound, ServerFailed, TooManyRequests, Unanswered
from topomend.kube.errors import refused as answer
from topomend.kube.resources import CLAIMS, PODS, VOLUMES
from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement, WatchedPod
from topomend.reconcile.placement.volumes import (
    AGAIN,
    ANSWER_SECONDS,
    COMING_SECONDS,
    DENIED_SECONDS,
    FRESH_SECONDS,
    LATE_SECONDS,
    READERS,
    REST_SECONDS,
    RETRY_SECONDS,
    TURNS_SECONDS,
    Volumes,
)
from topomend.reconcile.result import DONE, Result
from topomend.reconcile.store import Store
from topomend.wire.pods.scheduling import MAX_CLAIMS
from topomend.wire.volume import BOUND_ANNOTATION, MAX_VALUES

pytestmark = pytest.mark.cluster

NAMESPACE = "default"
HERE = (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)
THERE = (NodeSelectorTerm((Requirement("zone", "In", ("b",)),)),)


class Scene:
    """Pods that wait in a snapshot, whose volumes are read. ``asked`` are the paths of all requests.

    ``binds``: whether claims are bound as they are made.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._made = cluster.client, list[tuple[Any, dict[str, Any]]]()
        self.store, self.clock, self.asked = Store(), Clock(), list[str]()
        self.fail: Callable[[str], None] = lambda _: None
        self.binds = True
        self.volumes = Volumes(Intercepted(cluster.client, self._seen), self.store, self.clock)
        self.store.snapshot = snapshot_of()

    def _seen(self, _: str, target: str) -> None:
        self.asked.append(target.rpartition("/")[2])
        self.fail(target)

    def disk(self, name: str, *zones: str, claim: str = "", of: str = "", **reference: str) -> None:
        """A volume of these zones, of the claim ``of``, and the claim that is bound to it."""
        own = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        spec: dict[str, Any] = own | {"capacity": {"storage": "1Gi"}, "nfs": {"server": "none", "path": "/"}}
        spec["claimRef"] = {"namespace": NAMESPACE, "name": of or claim or name, **reference}
        if zones:
            term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        self._create(VOLUMES, "PersistentVolume", name, spec)
        self.claim(claim or name, volume=name)

    def claim(self, name: str, volume: str = "") -> None:
        """A claim, without a volume unless one is named: as under WaitForFirstConsumer."""
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec |= {"storageClassName": "", "volumeName": volume} if volume else {"storageClassName": "waits"}
        self._create(CLAIMS, "PersistentVolumeClaim", name, spec, NAMESPACE)

    def _create(self, resource: Any, kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> None:
        """A claim that names a volume is bound at once, as its controller would have it a moment later."""
        annotations = {BOUND_ANNOTATION: "yes"} if self.binds and "volumeName" in spec else {}
        content = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "annotations": annotations}}
        self._made.append((resource, self._cluster.create(resource, content | {"spec": spec}, namespace)))

    def remove(self) -> None:
        """Remove all volumes and claims, whatever protects them."""
        for resource, made in reversed(self._made):
            name, namespace = made["metadata"]["name"], made["metadata"].get("namespace", "")
            self._cluster.delete(resource, name, namespace, uid=made["metadata"]["uid"])
            with suppress(NotFound):
                self._cluster.merge(resource, name, {"metadata": {"finalizers": None}}, namespace)
        self._made.clear()

    def own(self, claim: str, pod: WatchedPod) -> WatchedPod:
        """Have the claim be one that was made for the pod, and ends with it. Returns the pod with its uid.

        The API server knows the pod, or its claim would be collected as garbage.
        """
        made = self._cluster.create(PODS, pod_manifest(pod.name, gates=["elsewhere.example/gate"]), NAMESPACE)
        self._made.insert(0, (PODS, made))  # to be removed last, or the claim is gone before
        uid = made["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid, "controller": True}
        self._cluster.merge(CLAIMS, claim, {"metadata": {"ownerReferences": [owner]}}, NAMESPACE)
        return replace(pod, uid=uid)

    def waiting(self, *claims: str, name: str = "p") -> WatchedPod:
        """A pod with these claims, as the watch brings it."""
        placement = Placement(volumes=None if claims else ())
        pod = gated_pod(name, namespace=NAMESPACE, claims=claims, placement=placement)
        self.store.apply(changes.PodUpdated(pod, self.clock.now))
        return pod

    def known(self, name: str = "p") -> Any:
        """The terms that the snapshot has of the pod's volumes."""
        return self.store.snapshot.gated[NAMESPACE, name].placement.volumes


@pytest.fixture
def scene(two_nodes: Cluster) -> Iterator[Scene]:
    scene = Scene(two_nodes)
    yield scene
    scene.remove()


def test_a_pod_without_claims_asks_for_nothing(scene: Scene) -> None:
    pod = scene.waiting()
    assert scene.volumes.look_up(pod) == DONE
    assert scene.volumes.again(pod) is None
    assert scene.asked == []
    assert scene.known() == ()


def test_the_terms_of_all_volumes_that_have_any_are_known(scene: Scene) -> None:
    scene.disk("vol-here", "a", claim="data")
    scene.disk("vol-there", "b")
    scene.disk("vol-everywhere")
    assert scene.volumes.look_up(scene.waiting("data", "vol-everywhere", "vol-there")) == DONE
    assert scene.known() == (HERE, THERE)


def test_a_replacement_asks_for_its_volumes_itself(scene: Scene) -> None:
    scene.disk("vol-here", "a")
    assert scene.volumes.of(scene.waiting("vol-here")) == (HERE,)
    assert scene.volumes.of(scene.waiting("none")) is None
    assert scene.volumes.of(scene.waiting()) == ()


def test_the_volume_of_a_claim_that_ends_with_a_refused_pod_is_not_where_its_replacement_has_to_be(
    scene: Scene,
) -> None:
    scene.disk("vol-here", "a")
    scene.disk("vol-there", "b", claim="p-scratch")
    refused = scene.own("p-scratch", refused_pod("p", namespace=NAMESPACE, claims=("vol-here", "p-scratch")))
    assert scene.volumes.of(refused) == (HERE,)
    scene.clock.now += FRESH_SECONDS
    assert scene.volumes.of(replace(refused, phase="Pending")) == (HERE, THERE)


def test_pods_that_share_a_claim_ask_once_and_again_after_a_moment(scene: Scene) -> None:
    scene.disk("vol-here", "a")
    for number in range(3):
        assert scene.volumes.look_up(scene.waiting("vol-here", name=f"p{number}")) == DONE
        assert scene.known(f"p{number}") == (HERE,)
    assert scene.asked == ["vol-here", "vol-here"]
    scene.clock.now += FRESH_SECONDS
    scene.volumes.look_up(scene.waiting("vol-here", name="late"))
    assert len(scene.asked) == 4


def test_a_claim_that_is_another_by_now_is_read_anew_while_the_pod_waits(scene: Scene) -> None:
    scene.disk("vol-here", "a", claim="data")
    pod = scene.waiting("data")
    scene.volumes.look_up(pod)
    scene.remove()
    scene.disk("vol-there", "b", claim="data")
    scene.volumes.look_up(pod)
    assert scene.known() == (HERE,), "it was read just now"
    scene.clock.now += FRESH_SECONDS
    assert scene.volumes.again(pod) == Result(0.0)
    scene.volumes.look_up(pod)
    assert scene.known() == (THERE,)
    scene.remove()
    for _ in range(20):
        scene.clock.now += AGAIN.longest
        assert scene.volumes.look_up(pod) == DONE
    assert scene.known() is None, "a claim that was deleted is on no node, as far as is known"


def test_where_a_claim_without_a_volume_will_be_only_the_scheduler_knows(scene: Scene) -> None:
    scene.claim("waits")
    scene.disk("vol-here", "a")
    assert scene.volumes.look_up(scene.waiting("vol-here", "waits")) == DONE
    assert scene.known() is None


@pytest.mark.parametrize("missing", ["claim", "volume", "another claim's"])
def test_a_claim_or_volume_that_is_not_there_yet_is_waited_for_shortly(scene: Scene, missing: str) -> None:
    """No scheduler binds the pod without either. A tenant who writes another's volume into a claim learns nothing."""
    if missing == "volume":
        scene.claim("data", volume="vol-none")
    if missing == "another claim's":
        scene.disk("vol-here", "a", claim="data", of="secret")
    pod = scene.waiting("data")
    assert scene.volumes.look_up(pod) == Result(RETRY_SECONDS)
    scene.clock.now += COMING_SECONDS
    assert scene.volumes.look_up(pod) == DONE
    assert scene.known() is None


def test_a_claim_that_names_a_volume_to_which_it_is_not_bound_is_waited_for_shortly(scene: Scene) -> None:
    """kube-scheduler passes the pod over until then, and tries pods that come meanwhile. The volume is an earlier
    claim's of this name, so its controller never binds it. Kept: ``verify.preemption``, seed 20261127, cluster 702."""
    scene.binds = False
    scene.disk("vol-here", "a", claim="data", uid="an-earlier-one")
    pod = scene.waiting("data")
    assert not scene.volumes.were_late(pod)
    assert scene.volumes.look_up(pod) == Result(RETRY_SECONDS)
    assert scene.volumes.were_late(pod)
    scene.clock.now += COMING_SECONDS
    assert scene.volumes.look_up(pod) == DONE
    assert scene.known() == (HERE,)
    assert scene.volumes.were_late(pod)
    other = scene.waiting("data", name="other")
    assert scene.volumes.of(other) == (HERE,)
    assert scene.volumes.look_up(other) == Result(RETRY_SECONDS), "it is not bound for another pod either"
    scene.clock.now += LATE_SECONDS
    assert not scene.volumes.were_late(pod), "it is not passed over for ever"


def test_a_claim_that_comes_shortly_after_its_pod_is_known(scene: Scene) -> None:
    pod = scene.waiting("vol-here")
    assert scene.volumes.look_up(pod) == Result(RETRY_SECONDS)
    scene.disk("vol-here", "a")
    assert scene.volumes.look_up(pod) == DONE
    assert scene.known() == (HERE,)


def test_a_pod_with_a_thousand_claims_asks_for_none(scene: Scene) -> None:
    assert scene.volumes.look_up(scene.waiting(*(f"c{number}" for number in range(MAX_CLAIMS + 1)))) == DONE
    assert scene.known() is None
    assert scene.asked == []


def test_while_answers_are_awaited_for_some_pods_no_worker_waits_long_for_another(scene: Scene) -> None:
    """As with a thousand pods of a tenant: those that find no turn are tried again, and then go without."""
    scene.claim("waits")
    unlucky, results = scene.waiting("waits", name="unlucky"), list[Result]()

    def meanwhile(_: str) -> None:
        reading = len(scene.asked)
        if reading < READERS:
            scene.volumes.look_up(scene.waiting("waits", name=f"reader-{reading}"))
            return
        results.append(scene.volumes.look_up(unlucky))
        scene.clock.now += TURNS_SECONDS
        results.append(scene.volumes.look_up(unlucky))

    scene.fail = meanwhile
    assert scene.volumes.look_up(scene.waiting("waits", name="reader-0")) == DONE
    assert results == [Result(RETRY_SECONDS), DONE]
    assert len(scene.asked) == READERS


def test_a_volume_of_hostile_size_is_not_known(scene: Scene) -> None:
    scene.disk("vol-large", *(f"z{number}" for number in range(MAX_VALUES + 1)))
    assert scene.volumes.look_up(scene.waiting("vol-large")) == DONE
    assert scene.known() is None


@pytest.mark.parametrize(
    "error",
    [
        lambda: TooManyRequests(429, "TooManyRequests", "later", 1.0),
        lambda: Unanswered("no answer"),
    ],
    ids=["too many requests", "unanswered"],
)
def test_after_an_answer_that_did_not_come_nobody_is_asked_for_a_while(
    scene: Scene, error: Callable[[], Exception]
) -> None:
    scene.disk("vol-here", "a")

    def fail(_: str) -> None:
        scene.clock.now += ANSWER_SECONDS
        raise error()

    scene.fail = fail
    for number in range(100):
        assert scene.volumes.look_up(scene.waiting("vol-here", name=f"p{number}")) == DONE
        assert scene.known(f"p{number}") is None
    assert len(scene.asked) == 1
    scene.fail = lambda _: None
    scene.clock.now += REST_SECONDS
    scene.volumes.look_up(scene.waiting("vol-here", name="late"))
    assert scene.known("late") == (HERE,)


def test_a_claim_that_can_never_be_read_concerns_its_own_pods_alone(scene: Scene) -> None:
    scene.disk("vol-here", "a")
    scene.disk("vol-broken", "a")

    def fail(target: str) -> None:
        if target.endswith("/vol-broken"):
            raise ServerFailed(500, "InternalError", "illegal base64 data")

    scene.fail = fail
    assert scene.volumes.look_up(scene.waiting("vol-broken", name="broken")) == DONE
    assert scene.known("broken") is None
    assert scene.volumes.look_up(scene.waiting("vol-here")) == DONE
    assert scene.known() == (HERE,)


def test_answers_that_take_long_together_end_the_reading_of_that_pod_alone(scene: Scene) -> None:
    claims = [f"vol-{number}" for number in range(4)]
    for claim in claims:
        scene.disk(claim)

    def dawdle(_: str) -> None:
        scene.clock.now += 0.75 * ANSWER_SECONDS

    scene.fail = dawdle
    assert scene.volumes.look_up(scene.waiting(*claims)) == DONE
    assert scene.known() is None
    assert len(scene.asked) == 2
    scene.fail = lambda _: None
    scene.disk("vol-here", "a")
    scene.volumes.look_up(scene.waiting("vol-here", name="next"))
    assert scene.known("next") == (HERE,)


@pytest.mark.parametrize("plural", ["persistentvolumeclaims", "persistentvolumes"])
def test_without_the_right_nobody_is_asked_and_the_log_says_so_once(
    scene: Scene, plural: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.disk("vol-here", "a")

    def deny(target: str) -> None:
        if f"/{plural}/" in target:
            raise answer(403, b"no right")

    scene.fail = deny
    for number in range(3):
        assert scene.volumes.look_up(scene.waiting("vol-here", name=f"p{number}")) == DONE
        assert scene.known(f"p{number}") is None
    assert sum("cannot be read" in record.message for record in caplog.records) == 1
    scene.fail = lambda _: None
    scene.clock.now += DENIED_SECONDS
    scene.volumes.look_up(scene.waiting("vol-here", name="late"))
    assert scene.known("late") == (HERE,)


def test_what_is_read_of_a_pod_that_has_gone_changes_nothing(scene: Scene) -> None:
    scene.disk("vol-here", "a")
    pod = scene.waiting("vol-here")
    gone = apply(scene.store.snapshot, changes.PodRemoved(pod.namespace, pod.name, pod.uid, 1.0))
    scene.store.snapshot = gone
    assert scene.volumes.look_up(pod) == DONE
    assert scene.store.snapshot == gone
