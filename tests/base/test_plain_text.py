"""What strangers wrote is shown in one line, as it is where it may be."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topomend.base.plain_text import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("NUMA 0 lacks 3 CPUs; «größer» 日本", "NUMA 0 lacks 3 CPUs; «größer» 日本"),
        ("two\nlines\r\n\tand   blanks ", "two lines and blanks"),
        ("\x1b[2Jgone\x00\x7f", "\\x1b[2Jgone\\x00\\x7f"),
        ("admin\u202etxt.exe\u2066", "admin\\u202etxt.exe\\u2066"),
        ("half \ud800 a letter", "half \\ud800 a letter"),
        ("", ""),
    ],
    ids=["as it is", "white space", "of terminals", "of direction", "surrogates", "nothing"],
)
def test_what_cannot_be_shown_is_escaped_and_the_rest_stays(text: str, shown: str) -> None:
    assert plain(text, 200) == shown


@given(st.text(), st.integers(1, 50))
def test_it_is_one_printable_line_and_never_longer(text: str, most: int) -> None:
    line = plain(text, most)
    assert line.isprintable()
    assert len(line) <= most
    line.encode()


def test_a_text_that_is_cut_says_so_and_an_endless_one_takes_no_time() -> None:
    assert plain("abcdef", 6) == "abcdef"
    assert plain("abcdefg", 6) == "abcde…"
    begun = time.thread_time()
    assert len(plain("\x00" * (1 << 26), 100)) == 100
    assert time.thread_time() - begun < 5
