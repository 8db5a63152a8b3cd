"""Texts that the kubelet parses by Go's rules: booleans and numbers of flags; the rest is in ``replay.startup``."""

import re

from topomend.model.bitmask import MAX_ID, CPUSet
from topomend.replay.startup.go_text import InvalidText, duration_of
from topomend.replay.startup.state import checkpoint_json
from topomend.replay.startup.state.checkpoints import parse_cpuset

_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


class GoError(ValueError):
    """Go refuses the text; the message is Go's own where people know it."""


def parse_duration(text: str) -> int:
    """Nanoseconds (time.ParseDuration)."""
    try:
        return duration_of(text)
    except InvalidText as error:
        raise GoError(str(error)) from error


def parse_cpu_list(text: str) -> CPUSet:
    """A set of CPUs (k8s.io/utils/cpuset:Parse). Spaces and empty parts are errors there."""
    try:
        cpus = parse_cpuset(text)
    except checkpoint_json.GoError as error:
        raise GoError(str(error)) from error
    if cpus >> MAX_ID:
        raise GoError(f"{text[:40]!r} is beyond the {MAX_ID} CPUs that are supported")
    return cpus


def parse_bool(text: str) -> bool:
    """strconv.ParseBool."""
    if text not in (*_TRUE, *_FALSE):
        raise GoError(f'strconv.ParseBool: parsing "{text[:40]}": invalid syntax')
    return text in _TRUE


def parse_integer(text: str, least: int, most: int) -> int:
    """strconv.ParseInt with base 0, as flags have it."""
    number = text.replace("_", "")
    matched = re.fullmatch(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))", number)
    if matched is None or len(number) > 80:
        raise GoError(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    sign, *parts = matched.groups()
    base, digits = next((base, part) for base, part in zip((16, 2, 8, 10), parts, strict=True) if part is not None)
    value = -int(digits, base) if sign == "-" else int(digits, base)
    if not least <= value <= most:
        raise GoError(f'strconv.ParseInt: parsing "{text[:40]}": value out of range')
    return value
