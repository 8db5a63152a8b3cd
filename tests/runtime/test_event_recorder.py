"""Events as they are posted: their words fit the API server's limit, in bytes."""

import pytest

from topomend.runtime.event_recorder import MAX_NOTE, _cut


@pytest.mark.parametrize(
    "note", ["x" * 5000, "é" * 2000, "€" * 1000 + "x", "\ud800" * 3000], ids=["ascii", "two", "three", "broken"]
)
def test_a_note_that_is_too_long_is_cut_to_the_bytes_that_an_event_may_have(note: str) -> None:
    cut = _cut(note)
    assert MAX_NOTE - 6 < len(cut.encode()) <= MAX_NOTE
    assert cut.endswith("…")


def test_a_note_that_fits_stays() -> None:
    assert _cut("x" * MAX_NOTE) == "x" * MAX_NOTE
