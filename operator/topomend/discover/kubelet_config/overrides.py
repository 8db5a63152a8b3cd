"""The kubelet's flags over its file and drop-ins (cmd/kubelet/app/server.go:kubeletConfigFlagPrecedence).

Which flags override which fields is data (``fields``); owns how each type of flag reads its values.
"""

import csv
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topomend.discover.host_files import SourceUnreadable
from topomend.discover.kubelet_config.decode import Content
from topomend.discover.kubelet_config.fields import flags as known_flags
from topomend.discover.kubelet_config.go_values import GoError, parse_bool, parse_duration, parse_integer
from topomend.discover.kubelet_config.kubelet_process import Flags
from topomend.replay.startup.quantity import InvalidQuantity, parse
from topomend.replay.startup.rules.taints import is_key, is_value

_INTEGERS = {"int32": 31, "int64": 63}


def overridden(content: Content, flags: Flags, minor: int) -> Content:
    """``content`` with every flag of a minor release in place of its field. Raises SourceUnreadable."""
    result = content
    for name, (kind, path, separator) in known_flags().items():
        # An empty address leaves the field alone (pkg/util/flag/flags.go:IPVar).
        values = [text for text in flags.get(name, ()) if text or kind != "ip"]
        if values:
            try:
                value = _value(name, kind, values, separator, minor)
            except GoError as error:
                raise _refused(name, flags[name][-1], str(error)) from error
            result = _with(result, path, value)
    if reserved := [part for value in flags.get("reserved-memory", ()) if value for part in value.split(";")]:
        result = {**result, "reservedMemory": [_reservation(part) for part in reserved]}
    return result


def _with(content: Content, path: Sequence[str], value: Any) -> Content:
    first, *rest = path
    before = content.get(first) or {}
    if rest:
        return {**content, first: _with(before, rest, value)}
    if first == "featureGates":
        # This is the only map that keeps the file's keys which the flag does not name.
        return {**content, first: {**before, **value}}
    if first == "vmodule":
        return {**content, first: [*before, *value]}
    return {**content, first: value}


def _value(name: str, kind: str, values: Sequence[str], separator: str, minor: int) -> Any:
    if kind == "stringSlice":
        return [item for text in values for item in _listed(text)]
    if kind in _ADDED_UP:
        return _ADDED_UP[kind](values)
    if kind == "mapStringString":
        return _pairs(name, values, separator, is_whole=name in _whole(minor))
    if kind == "mapStringBool":
        return {key: parse_bool(value) for key, value in _pairs(name, values, separator).items()}
    # Each value must be one of the type, and the last counts.
    return [_single(kind, value) for value in values][-1]


def _single(kind: str, text: str) -> Any:
    if kind == "bool":
        # Without a value it means true, and the next argument is another flag.
        return text.startswith("--") or parse_bool(text)
    if kind in _SINGLE:
        return _SINGLE[kind](text)
    if kind in _INTEGERS:
        return parse_integer(text, -(1 << _INTEGERS[kind]), (1 << _INTEGERS[kind]) - 1)
    return parse_duration(text) if kind == "duration" else text


def _listed(text: str) -> list[str]:
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise GoError(str(error)) from error


def _whole(minor: int) -> tuple[str, ...]:
    """The flags that take one option each time: its value may contain commas (options.go:NewMapStringStringNoSplit)."""
    return ("cpu-manager-policy-options", *(["topology-manager-policy-options"] if minor < 31 else []))


def _pairs(name: str, values: Sequence[str], separator: str, *, is_whole: bool = False) -> dict[str, str]:
    """``key=value,...``; repeated flags add up (component-base/cli/flag)."""
    parts = values if is_whole else [part for text in values for part in text.split(",") if part]
    pairs = {}
    for part in parts:
        key, found, value = part.partition(separator)
        if not found:
            raise _refused(name, part, f"which is not KEY{separator}VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def _headers(values: Sequence[str]) -> dict[str, list[str]]:
    """``name:value,...`` (component-base/cli/flag/colon_separated_multimap_string_string.go)."""
    headers: dict[str, list[str]] = {}
    for part in _parts(values):
        name, colon, value = part.partition(":")
        if not colon:
            raise GoError("malformed pair, expect string:string")
        headers.setdefault(name.strip(), []).append(value.strip())
    return headers


def _verbosities(values: Sequence[str]) -> list[Content]:
    """``pattern=N,...`` (component-base/logs/api/v1/pflags.go)."""
    items = []
    for part in _parts(values):
        pattern, equals, level = part.partition("=")
        if not (pattern and equals and level) or "=" in level:
            raise GoError("syntax error: expect comma-separated list of filename=N")
        items.append({"filePattern": pattern, "verbosity": _unsigned(level, 31)})
    return items


def _parts(values: Sequence[str]) -> list[str]:
    return [part for text in values for part in text.split(",") if part]


def _unsigned(text: str, bits: int) -> int:
    if not re.fullmatch("[0-9]{1,20}", text) or int(text) >= 1 << bits:
        raise GoError(f'strconv.ParseUint: parsing "{text[:40]}": invalid syntax or value out of range')
    return int(text)


def _taints(text: str) -> list[Content]:
    """``key=value:effect,...`` (pkg/util/flag/flags.go:RegisterWithTaintsVar, pkg/util/taints/taints.go:ParseTaints).

    The last flag counts. A taint that ends in a dash is one to remove, of which a node that registers has none.
    """
    taints: dict[tuple[str, str], Content] = {}
    for spec in text.split(",") if text else ():
        taint = _taint(spec.removesuffix("-"))
        if spec.endswith("-"):
            continue
        if not taint["effect"]:
            raise GoError(f"invalid taint spec: {spec[:60]}")
        if (taint["effect"], taint["key"]) in taints:
            raise GoError(f"duplicated taints with the same key and effect: {spec[:60]}")
        taints[taint["effect"], taint["key"]] = taint
    return list(taints.values())


def _taint(spec: str) -> Content:
    identity, colon, effect = spec.partition(":")
    if colon and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise GoError(f"invalid taint effect: {effect[:40]}, unsupported taint effect")
    key, _, value = identity.partition("=") if colon else (identity, "", "")
    if not (is_key(key) and is_value(value)):
        raise GoError(f"invalid taint spec: {spec[:60]}")
    return {"key": key, "value": value, "effect": effect}


def _quantity(text: str) -> str:
    try:
        parse(text)
    except InvalidQuantity as error:
        raise GoError(str(error)) from error
    return text


def _address(text: str) -> str:
    """k8s.io/utils/net:ParseIPSloppy, which allows zeros before a number of IPv4."""
    address = text if ":" in text else re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        raise GoError(f"{text[:60]!r} is not a valid IP address") from error
    if "%" in address:
        raise GoError(f"{text[:60]!r} is not a valid IP address")
    return text


_ADDED_UP: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "colonSeparatedMultimapStringString": _headers,
    "pattern=N,...": _verbosities,
}
"""Types of which repeated flags add up."""

_SINGLE: Mapping[str, Callable[[str], Any]] = {
    "[]v1.Taint": _taints,
    "quantity": _quantity,
    "ip": _address,
    "Level": lambda text: _unsigned(text, 31),
}
"""Types of which the last flag counts."""


def _reservation(text: str) -> Content:
    """``NUMA:RESOURCE=QUANTITY,...`` as the file would have it (pkg/util/flag/flags.go:ReservedMemoryVar)."""
    node, _, limits = text.partition(":")
    if not re.fullmatch("[+-]?[0-9]{1,9}", node):
        raise _refused("reserved-memory", text, "which does not begin with a NUMA node's id")
    return {"numaNode": int(node), "limits": dict(_limit(text, part) for part in limits.split(","))}


def _limit(text: str, part: str) -> tuple[str, str]:
    resource, equals, quantity = part.partition("=")
    if not equals:
        raise _refused("reserved-memory", text, "in which a limit is not RESOURCE=QUANTITY")
    if resource != "memory" and not resource.startswith("hugepages-"):
        raise _refused("reserved-memory", text, "in which a resource is neither memory nor hugepages-SIZE")
    try:
        return resource, _quantity(quantity)
    except GoError as error:
        raise _refused("reserved-memory", text, str(error)) from error


def _refused(name: str, value: str, why: str) -> SourceUnreadable:
    return SourceUnreadable(f"is overridden by --{name} with {value[:60]!r}, {why}")
