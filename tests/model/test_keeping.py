"""What is worked out of a frozen value is kept with it, and for nobody else."""

import gc
import weakref
from dataclasses import replace

from tests.builders import node_state


class Answers(list[str]):
    """What a test keeps."""


class Others(list[str]):
    """Something else."""


def test_a_value_keeps_one_object_of_a_class_and_an_equal_value_has_its_own() -> None:
    state = node_state()
    state.kept(Answers).append("answer")
    assert state.kept(Answers) == ["answer"]
    assert state.kept(Others) == []
    assert replace(state).kept(Answers) == []


def test_what_is_kept_is_no_part_of_the_value() -> None:
    state = node_state()
    twin = replace(state)
    state.kept(Answers).append("answer")
    assert state == twin
    assert repr(state) == repr(twin)


def test_what_is_kept_goes_with_its_value() -> None:
    state = node_state()
    kept = weakref.ref(state.kept(Answers))
    gc.disable()
    try:
        del state
        assert kept() is None, "without a collection of cycles"
    finally:
        gc.enable()
