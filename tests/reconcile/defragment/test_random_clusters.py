"""The campaign on random clusters whose pods come and go, with an operator that restarts now and then.

The scheduler takes any node that is named for a pod. Whatever happens, each next pod is admitted and runs, limits hold,
and no move has the fragmentation of the pool rise.
"""

from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from random import Random

import pytest
from tests.builders import node_state, pod
from tests.reconcile.defragment.model import SETTINGS, Model
from tests.seeds import cases

from topomend.cache.snapshot import Snapshot
from topomend.decide.defragment.candidates import kinds_now
from topomend.decide.pools.fragmentation import overall
from topomend.decide.pools.pools import pools
from topomend.reconcile.defragment import quiet
from topomend.replay.admission import admit

GPU = "vendor.com/gpu"
KINDS = ("cpu=1 memory=1Gi", "cpu=2 memory=1Gi", "cpu=3 memory=1Gi", "cpu=4 memory=1Gi", f"cpu=1 memory=1Gi {GPU}=1")
SHAPE = f"sockets:2 cores:4 memory:16Gi device:{GPU}@0=2,1=2"
DISTANCE = 60.0
HOUR = 3600.0


class RandomCluster:
    """Two to four nodes. ``churns``: pods come and go while the campaign is under way."""

    def __init__(self, seed: int, *, churns: bool) -> None:
        random = self.random = Random(seed)
        policy = random.choice(("single-numa-node", "single-numa-node", "restricted"))
        states = [node_state(SHAPE, policy, name=f"n{number}") for number in range(random.randint(2, 4))]
        moves = random.randint(1, 4)
        settings = replace(SETTINGS, defragment_moves=moves, defragment_rate=HOUR / DISTANCE, defragment_minutes=5.0)
        self.model = Model(*states, settings=settings, random=random)
        self.count, self.churns = 0, churns
        for name in self.model.states:
            for _ in range(random.randrange(8)):
                self.come(name)
        for key in list(self.model.server.pods):
            if random.random() < 0.35:
                self.model.end(key)
        for number in range(random.randrange(3) if churns else 0):
            self.model.wait(f"want{number}", random.choice(KINDS))

    def come(self, name: str) -> None:
        """A pod of one of five workloads, where it fits."""
        kind = self.random.randrange(len(KINDS))
        self.count += 1
        there = self.model.store.snapshot.nodes[name]
        fits = admit(self.model.states[name], pod("tried", KINDS[kind]))[0].admitted
        if fits and there.used is not None and there.used.get("cpu", 0) + 4000 <= there.allocatable["cpu"]:
            self.model.run(f"p{self.count}", KINDS[kind], name, owner=f"w{kind}")

    def change(self) -> None:
        """A pod comes or goes, or the operator restarts."""
        server = self.model.server
        running = [key for key, each in server.pods.items() if each["status"]["phase"] == "Running"]
        settled = [key for key in running if "deletionTimestamp" not in server.pods[key]["metadata"]]
        owned = [key for key in settled if "ownerReferences" in server.pods[key]["metadata"]]
        chance = self.random.random()
        if chance < 0.4 and owned:
            self.model.end(self.random.choice(owned))
        elif chance < 0.8:
            self.come(self.random.choice(list(self.model.states)))
        else:
            self.model.campaign = self.model.new_campaign()
            self.model.campaign.take_over()

    def run(self, seconds: float) -> None:
        model = self.model
        ends = model.clock.now + seconds
        while model.clock.now < ends:
            before, evicted = model.store.snapshot, len(model.server.evicted)
            number = number_of(before)
            model.tick(20.0 if model.move.current is None else 0.5)
            if len(model.server.evicted) > evicted:
                while model.move.current:
                    model.tick()
                if not self.churns and number is not None:
                    after = number_of(model.store.snapshot)
                    assert after is None or after < number, "it falls, for nobody takes the room"
            elif self.churns and not model.move.current and self.random.random() < 0.1:
                self.change()


def number_of(snapshot: Snapshot) -> float | None:
    [pool] = pools(snapshot, lambda nodes: kinds_now(snapshot, nodes))
    return overall({each.name: each.fragmented for each in pool.resources if each.fragmented})


def check(model: Model) -> None:
    """What always holds."""
    assert model.refused == []
    assert set(model.results()) <= {"moved"}
    assert not [each for each in model.server.pods.values() if "deletionTimestamp" in each["metadata"]]
    moved = {content["metadata"]["uid"] for _, content in model.server.evicted}
    assert len(moved) == len(model.server.evicted)
    times = [time for time, _ in model.server.evicted]
    assert all(later - earlier >= DISTANCE for earlier, later in pairwise(times))
    for time, content in model.server.evicted:
        came = datetime.fromisoformat(content["metadata"]["creationTimestamp"])
        assert (model.time() - came).total_seconds() - (model.clock.now - time) >= HOUR
    waiting = {name for _, name in model.store.snapshot.gated}
    assert not [name for name in waiting if not name.startswith("want")], "each next pod runs"


@pytest.mark.parametrize("part", range(cases(1, 15)))
def test_every_next_pod_is_admitted_and_the_fragmentation_falls(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.0)
    seeds = [Random(part).randrange(1 << 30) + number for number in range(35)]
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    moves = 0
    for seed in seeds:
        cluster = RandomCluster(seed, churns=False)
        cluster.run(900.0)
        check(cluster.model)
        moves += len(cluster.model.moves())
    assert moves, "the clusters must be fragmented"


@pytest.mark.parametrize("part", range(cases(1, 12)))
def test_no_pod_is_moved_twice_an_hour_while_pods_come_and_go_and_the_operator_restarts(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.0)
    seeds = [Random(100 + part).randrange(1 << 30) + number for number in range(9)]
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    moves = 0
    for seed in seeds:
        cluster = RandomCluster(seed, churns=True)
        cluster.run(2.2 * HOUR)
        check(cluster.model)
        moves += len(cluster.model.moves())
    assert moves, "the clusters must be fragmented"
