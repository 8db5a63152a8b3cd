"""Random values in YAML that look like another type, with tags and anchors, and texts that are slightly wrong."""

from random import Random

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


def scalar(random: Random) -> str:
    text = random.choice(SCALARS)
    if random.random() < 0.1:
        text = f"{random.choice(TAGS)} {text}"
    if random.random() < 0.08:
        text = f"&{random.choice('ab')} {text}"
    if random.random() < 0.05:
        return f"*{random.choice('ab')}"
    return text


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
