import gc
import weakref

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod

from topomend.replay.admission import admit
from topomend.replay.fast_path import capacity
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.fast_path.capacity import FreeCapacity, prepare

GPU = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2"
ASKING = pod("p", "cpu=2 memory=1Gi v.com/gpu=1")


def test_what_was_free_is_forgotten_with_the_state() -> None:
    state = node_state(GPU)
    FastAdmission(ASKING).admits(state)
    assert state.kept(FreeCapacity)._devices
    gone = weakref.ref(state)
    gc.disable()
    try:
        del state
        assert gone() is None, "without a collection of cycles"
    finally:
        gc.enable()


def test_what_is_free_is_read_as_a_state_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    state = admit(node_state(GPU), pod("q", "cpu=3 memory=1Gi"))[1]
    prepare(state)
    prepare(node_state(GPU, "unknown"))  # whose kubelet does not start
    for part in ("pool_of", "_numa_memory", "_capacity_of_devices"):
        monkeypatch.setattr(capacity, part, lambda *_: pytest.fail("read again"))
    assert not FastAdmission(ASKING).admits(state)
