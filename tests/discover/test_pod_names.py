"""Random pods come and end between polls. The kubelet lists names and writes uids; the node has the pairs."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from tests.discover.machines import container, pod
from tests.discover.test_allocations import Kubelet, keep_memory
from tests.seeds import SEED

from topomend.discover.allocations import AllocationReader

KINDS = {"one": ("main",), "two": ("main", "beside"), "none": ()}
"""The containers of a pod that hold memory, 1 GiB each of NUMA node 0."""

NAMES = "abcdef"
WALKS, POLLS = 12, 40


@dataclass
class Node:
    """The active pods by name, and the kinds of the entries in the kubelet's files by uid."""

    random: Random
    folders: Path | None
    active: dict[str, tuple[str, str]] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)

    def change(self) -> None:
        """A pod ends, or one comes. A kubelet that admits one first purges the entries of those that have ended."""
        free = [name for name in NAMES if name not in self.active]
        if self.active and (not free or self.random.random() < 0.45):
            uid, _ = self.active.pop(self.random.choice(sorted(self.active)))
            if self.folders and self.random.random() < 0.7:
                (self.folders / uid).rmdir()
            return
        uid, kind = f"{self.random.getrandbits(40):010x}", self.random.choice(sorted(KINDS))
        self.active[self.random.choice(free)] = uid, kind
        self.entries = dict(self.active.values())
        if self.folders:
            (self.folders / uid).mkdir(parents=True)

    def show(self, kubelet: Kubelet) -> None:
        """List and write what the kubelet would, in any order."""
        listed = self.random.sample(sorted(self.active.items()), len(self.active))
        memory = {0: 1 << 30}
        kubelet.shows(
            *(
                pod(name, *([container(each, memory=memory) for each in KINDS[kind]] or [container("main")]))
                for name, (_, kind) in listed
            )
        )
        entries = self.random.sample(sorted(self.entries.items()), len(self.entries))
        keep_memory(kubelet, **{uid: list(KINDS[kind]) for uid, kind in entries if KINDS[kind]})
        kubelet.admit(**{uid: list(KINDS[kind]) or ["main"] for uid, kind in entries})

    @property
    def holding(self) -> dict[str, str]:
        """The uids of the pods that hold something, by name."""
        return {name: uid for name, (uid, kind) in self.active.items() if KINDS[kind]}


@pytest.mark.parametrize("first", [0, pytest.param(SEED, marks=pytest.mark.night)], ids=["kept walks", "random walks"])
@pytest.mark.parametrize("with_folders", [False, True], ids=["with files alone", "with folders of pods"])
def test_every_pod_that_holds_something_is_shown_and_none_with_another_pods_uid(
    with_folders: bool, first: int, tmp_path: Path
) -> None:
    told = 0
    for number in range(WALKS):
        folder = tmp_path / str(number)
        folder.mkdir()
        kubelet = Kubelet(folder)
        kubelet.start()
        try:
            told += _walk(kubelet, Random(f"walk {first + number}"), with_folders)
        finally:
            kubelet.stop()
    assert told > WALKS * POLLS / 4, "uids are hardly ever known"


def _walk(kubelet: Kubelet, random: Random, with_folders: bool) -> int:
    """Compare each poll of a walk, in which agents restart now and then. Returns how often a uid was told."""
    node = Node(random, kubelet.folder / "pods" if with_folders else None)
    reader, told = AllocationReader(kubelet.socket, kubelet.folder), 0
    for poll in range(POLLS):
        for _ in range(random.randint(0, 3)):
            node.change()
        node.show(kubelet)
        if random.random() < 0.05:
            reader = AllocationReader(kubelet.socket, kubelet.folder)
        allocations = reader.read()
        shown = {each.name: each.uid for each in allocations.pods}
        assert (allocations.reason, shown.keys()) == ("", node.holding.keys()), f"poll {poll}"
        assert {name: uid for name, uid in shown.items() if uid}.items() <= node.holding.items(), f"poll {poll}"
        told += sum(map(bool, shown.values()))
    return told
