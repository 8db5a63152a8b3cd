"""Values live as long as the object that they were computed from."""

import gc
from dataclasses import replace

from tests.builders import node_state

from topomend.replay.identity_cache import IdentityCache


def test_a_subject_has_one_value_and_an_equal_one_has_its_own() -> None:
    cache: IdentityCache[object, list[str]] = IdentityCache(list)
    state = node_state()
    twin = replace(state)
    cache.of(state).append("answer")
    assert cache.of(state) == ["answer"]
    assert cache.of(twin) == []
    assert len(cache) == 2


def test_a_value_is_dropped_with_its_subject() -> None:
    cache: IdentityCache[object, list[str]] = IdentityCache(list)
    state = node_state()
    cache.of(state)
    del state
    gc.collect()
    assert len(cache) == 0
