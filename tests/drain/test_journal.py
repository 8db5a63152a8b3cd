"""What a drain reports: what it did, and what it could not do."""

import pytest

from topomend.drain.journal import Journal


@pytest.mark.parametrize(
    ("dry", "line", "summary"),
    [
        (False, "pod a: cleaned", "drained: 2 pods cleaned, 1 relaunches ended"),
        (True, "pod a: cleaned (dry run)", "would be drained: 2 pods cleaned, 1 relaunches ended"),
    ],
)
def test_everything_done_is_one_line_and_counted_by_its_kind(dry: bool, line: str, summary: str) -> None:
    lines: list[str] = []
    journal = Journal(lines.append, dry=dry)
    for kind in ("pods cleaned", "relaunches ended", "pods cleaned"):
        journal.did(kind, "pod a: cleaned")
    journal.note("waiting")
    assert lines == [line, line, line, "waiting"]
    assert (journal.count(), journal.summary()) == (3, summary)


def test_a_drain_without_anything_to_do_says_so() -> None:
    assert Journal(print, dry=False).summary() == "drained: nothing to do"


def test_what_a_later_attempt_drained_no_longer_remains() -> None:
    journal = Journal(print, dry=False)
    journal.report_remaining("pod b", "it changes too often")
    journal.report_remaining("pod a", "no answer")
    journal.resolve("pod b")
    journal.resolve("pod c")
    assert journal.remaining == (("pod a", "no answer"),)
