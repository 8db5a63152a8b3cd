"""Random texts that are nearly YAML or JSON: scalars that look like another type, tabs, anchors, merges, bytes."""

import json
from random import Random
from typing import Any

SCALARS = [
    "a",
    "b-c",
    "x",
    "y",
    "n",
    "yes",
    "No",
    "ON",
    "off",
    "true",
    "False",
    "NULL",
    "null",
    "~",
    ".nan",
    ".inf",
    "-.inf",
    "0",
    "1",
    "-1",
    "+1",
    "00",
    "07",
    "08",
    "0o7",
    "0O7",
    "0x1f",
    "0X1F",
    "0b11",
    "-0b11",
    "0B1",
    "1_000",
    "_1",
    "1__0",
    "1.0",
    "1.",
    ".5",
    "-.5",
    "+.5",
    "1e3",
    "1E3",
    "1.5e3",
    "1e-7",
    "1e21",
    "1e22",
    "123456789012345678901",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "-1e400",
    "1e-400",
    "0.1",
    "100000000.0",
    "2001-12-14",
    "2001-12-14T21:59:43Z",
    "2001-13-14",
    "190:20:30",
    "12:30",
    "0.0",
    "-0",
    "-0.0",
    "3.0e0",
    "<<",
    "=",
    "!",
    "&",
    "*",
    "|",
    ">",
    "%",
    "@",
    "`",
    "-",
    "?",
    ":",
    ",",
    "[]",
    "{}",
    "''",
    '""',
    "#",
    "-",
    "--",
    "---",
    "...",
    "0x",
    "0b",
    "0o",
    "1k",
    "10Mi",
    "100m",
    "0-3",
    "0,1",
    '"1"',
    "'1'",
    '"a\\tb"',
    '"\\u00e9"',
    '"\\x41"',
    "'it''s'",
    "!!str",
    "1e+3",
    "1:2",
    "a:b",
    "a#b",
    "aé",
]
TAGS = [
    "!!str",
    "!!int",
    "!!float",
    "!!bool",
    "!!null",
    "!!binary",
    "!!timestamp",
    "!foo",
    "!",
    "!!merge",
    "!<a>",
    "!!seq",
]
PIECES = [
    "\t",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\r",
    ":",
    ": ",
    "- ",
    "? ",
    ",",
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    "#",
    " #",
    "&a ",
    "*a",
    "<<: ",
    "<<: *a",
    "|",
    ">",
    "|-",
    ">+",
    "|2",
    "%YAML 1.1\n---\n",
    "%YAML 1.2\n---\n",
    "%TAG ! x\n---\n",
    "---\n",
    "\n---\n",
    "...\n",
    "\n...\n",
    "!",
    "!!",
    "\u2028",
    "\u0085",
    "\x00",
    "\x07",
    "\x7f",
    "\u00a0",
    "\ud7ff",
    "\ufffe",
    "\ufeff",
    "\\/",
    "\\'",
    '"a/b"',
    "\U0001f600",
    "\\",
    "\\n",
    "0",
    "a",
    "~",
    "@",
    "`",
    "*",
    "&",
]


def random_text(random: Random) -> bytes:
    """A text, often slightly wrong."""
    text = _valid(random)
    for _ in range(random.choice((0, 0, 1, 1, 2, 4))):
        text = mutated(random, text)
    raw = text.encode(errors="surrogatepass")
    if random.random() < 0.03:
        at = random.randrange(len(raw) + 1)
        raw = raw[:at] + bytes([random.randrange(256)]) + raw[at:]
    if random.random() < 0.02:
        raw = text.encode(random.choice(("utf-16", "utf-8-sig", "utf-16-le")), errors="surrogatepass")
    return raw


def _valid(random: Random) -> str:
    if random.random() < 0.3:
        return json.dumps(
            random_value(random), indent=random.choice((None, 1, "\t")), ensure_ascii=random.random() < 0.5
        )
    head = random.choice(("", "", "", "---\n", "--- ", "# c\n", "%YAML 1.1\n---\n"))
    tail = random.choice(("", "", "", "\n", "---\n", "\n...\n", "---\na: 1\n", "---\n[", "# c"))
    return head + block(random, 0, 3) + tail


def random_value(random: Random, depth: int = 3) -> Any:
    kind = random.random()
    if depth and kind < 0.4:
        return {scalar(random): random_value(random, depth - 1) for _ in range(random.randrange(4))}
    if depth and kind < 0.55:
        return [random_value(random, depth - 1) for _ in range(random.randrange(4))]
    return random.choice((None, True, False, 0, 1, -1, 1.5, 1e30, 1 << 63, 1 << 70, "", "a", "\t", "é", "0", "true"))


def scalar(random: Random) -> str:
    text = random.choice(SCALARS)
    if random.random() < 0.1:
        text = f"{random.choice(TAGS)} {text}"
    if random.random() < 0.08:
        text = f"&{random.choice('ab')} {text}"
    if random.random() < 0.05:
        return f"*{random.choice('ab')}"
    return text


def block(random: Random, indent: int, depth: int) -> str:
    """A map or list in block style, or a scalar or collection in flow style."""
    kind = random.random()
    pad = " " * indent
    gap = random.choice((" ", " ", " ", "  ", "\t", " \t"))
    if depth and kind < 0.5:
        lines = []
        for _ in range(random.randrange(1, 4)):
            key = random.choice((scalar(random), random.choice("abcd"), random.choice("abcd")))
            if random.random() < 0.1:
                lines.append(f"{pad}<<:{gap}{random.choice(('*a', '*b', '[*a, *b]', '{a: 1}', '1'))}\n")
            elif depth > 1 and random.random() < 0.4:
                anchor = random.choice(("", "", " &a", " &b", " !!map"))
                lines.append(f"{pad}{key}:{anchor}\n{block(random, indent + random.choice((1, 2)), depth - 1)}")
            else:
                lines.append(
                    f"{pad}{key}:{gap}{flow(random, 2)}{random.choice(('', '', ' # c', chr(9), chr(9) + '# c'))}\n"
                )
        return "".join(lines)
    if depth and kind < 0.65:
        return "".join(f"{pad}-{gap}{flow(random, 2)}\n" for _ in range(random.randrange(1, 4)))
    if kind < 0.72:
        style = random.choice(("|", ">", "|-", ">-", "|+"))
        return f"{pad}{style}\n{pad} {random.choice(SCALARS)}\n{pad} {random.choice(SCALARS)}\n"
    return f"{pad}{flow(random, 2)}\n"


def flow(random: Random, depth: int) -> str:
    kind = random.random()
    if depth and kind < 0.15:
        inner = [
            f"{scalar(random)}:{random.choice((' ', '', chr(9)))}{flow(random, depth - 1)}"
            for _ in range(random.randrange(3))
        ]
        return "{" + random.choice((", ", ",", ",\n ")).join(inner) + "}"
    if depth and kind < 0.3:
        return (
            "["
            + random.choice((", ", ",", ",\t")).join(flow(random, depth - 1) for _ in range(random.randrange(3)))
            + "]"
        )
    return scalar(random)


def mutated(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    kind = random.random()
    if kind < 0.5:
        return text[:at] + random.choice(PIECES) + text[at:]
    if kind < 0.8:
        return text[:at] + text[at + random.randrange(1, 4) :]
    other = random.randrange(len(text) + 1)
    return text[:at] + text[min(at, other) : max(at, other)] + text[at:]
