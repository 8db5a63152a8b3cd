"""Text of strangers in one line that is safe to show: in conditions, events, logs and on terminals.

Device plugins, kubelets and users write what ends up there. Unescaped, a control character rewrites a terminal, a
line break forges a line of a log, and a mark of direction turns a sentence around.
"""

_ELLIPSIS = "…"


def plain(text: str, most: int) -> str:
    """``text`` in one line of at most ``most`` characters: white space as single blanks, what cannot be shown escaped.

    Only the beginning of an endless text is looked at.
    """
    line = visible(" ".join(text[: 4 * most].split()))
    is_cut = len(text) > 4 * most or len(line) > most
    return line[: most - 1] + _ELLIPSIS if is_cut else line


def visible(text: str) -> str:
    """``text`` in one line, where all that is not printed as itself is escaped: line breaks, controls, marks of
    direction, and what takes no room. What is visible stays as it is."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def beginning(value: object, most: int) -> str:
    """The first ``most`` characters of any value as Python writes it; its type where Python cannot.

    It writes no whole number of more than 4,300 digits, and no list within 1,000 others.
    """
    try:
        return repr(value)[:most]
    except (ValueError, RecursionError):
        return f"one {type(value).__name__} too large to show"


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
