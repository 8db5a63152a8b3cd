"""Text of strangers in one line that is safe to show: in conditions, events and logs.

Device plugins, kubelets and users write what ends up there. Unescaped, a control character rewrites a terminal, a
line break forges a line of a log, and a mark of direction turns a sentence around.
"""

_ELLIPSIS = "…"


def plain(text: str, most: int) -> str:
    """``text`` in one line of at most ``most`` characters: white space as single blanks, what cannot be shown escaped.

    Only the beginning of an endless text is looked at.
    """
    line = " ".join(text[: 4 * most].split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else _escaped(letter) for letter in line)
    is_cut = len(text) > 4 * most or len(line) > most
    return line[: most - 1] + _ELLIPSIS if is_cut else line


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
