"""The table of feature gates is written from what each release registers."""

from typing import Any

from verify.config_oracle.known_gates import RELEASES, TABLE, table

from topomend.replay.startup.known_gates import GATES


def test_consecutive_releases_of_one_state_are_one_span() -> None:
    beta, stable = ["BETA", True, False], ["", True, True]
    found: dict[int, dict[str, Any]] = {
        30: {"gates": {"A": beta, "Gone": ["ALPHA", False, False]}, "dependencies": None},
        31: {"gates": {"A": beta}, "dependencies": {"A": ["C", "B"]}},
        32: {"gates": {"A": stable}, "dependencies": {"A": ["B", "C"]}},
    }
    written = table(found)
    assert "A 30-31:b+ 32:s+!\nGone 30:a-\n" in written
    assert "\n31-32 A B C\n" in written


def test_the_table_in_use_is_of_these_releases() -> None:
    text = TABLE.read_text()
    assert all(release in text for release in RELEASES)
    assert len(GATES.splitlines()) > 300
