"""JSON values as the fields of KubeletConfiguration, by the rules of Go's decoders.

The kubelet decodes its file by sigs.k8s.io/json, where a name must match exactly, and what drop-ins were merged into by
encoding/json, where it matches in any case. A value of another type than the field's keeps a kubelet from starting, in
any field. A member that comes a second time is decoded into what the first one left. The content that results has the
names of v1beta1: structs and maps as dicts, durations as nanoseconds, quantities as their text, nothing for what is
not set.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from topomend.discover.documents.value import Members, Number, Value
from topomend.discover.kubelet_config.fields import ROOT, Types
from topomend.discover.kubelet_config.go_values import GoError, parse_duration
from topomend.replay.startup.quantity import InvalidQuantity, parse

Content = dict[str, Any]

_INTEGERS = {
    "int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1), "uint32": (0, (1 << 32) - 1)
}  # fmt: skip

_NOUNS = {"string": "a string", "bool": "true or false", "float64": "a number"}


@dataclass(frozen=True)
class Decoded:
    """A value that is decoded already."""

    content: Any


UNSET = Decoded(None)
"""In place of a field's default, which replaces what was decoded before."""


class WrongType(ValueError):
    """The value does not fit its field; the message names both."""


@dataclass
class Decoder:
    """Decodes values of one release. Problems are collected, so that everything else is still read.

    ``any_case`` is how encoding/json matches names; ``renamed`` are names that stand for others.
    """

    types: Types
    any_case: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unknown: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, name and struct of each member that is no field."""

    def configuration(self, value: Value, into: Content | None = None) -> Content:
        """The content of a whole document, decoded into ``into``."""
        content: Content = self._struct(ROOT, value, into, "") or {}
        return content

    def _decode(self, kind: str, value: Any, into: Any, path: str) -> Any:
        if isinstance(value, Decoded):
            return value.content
        if kind.startswith("*"):
            return None if value is None else self._decode(kind[1:], value, into, path)
        if kind.startswith("[]"):
            return self._list(kind[2:], value, into, path)
        if kind.startswith("map["):
            return self._map(kind.partition("]")[2], value, into, path)
        if kind in self.types:
            return self._struct(kind, value, into, path)
        if kind in _CUSTOM:
            return _CUSTOM[kind](value, path)
        return into if value is None else _scalar(kind, value, path)

    def _struct(self, struct: str, value: Any, into: Content | None, path: str) -> Content | None:
        if value is None:
            return into
        result: Content = dict(into or {})
        for name, inner in _pairs(value, path, "an object"):
            at = f"{path}.{name}" if path else name
            known = self._field(struct, name)
            if known is None:
                self.unknown.append((at, name, struct))
                continue
            try:
                decoded = self._decode(self.types[struct][known], inner, result.get(known), at)
            except WrongType as error:
                self.problems.append(str(error))
                continue
            result[known] = decoded
            if decoded is None:
                del result[known]
        return result

    def _field(self, struct: str, name: str) -> str | None:
        fields = self.types[struct]
        hidden = self.renamed.values()
        if name in fields and name not in hidden:
            return name
        if not self.any_case:
            return None
        folded = fold(name)
        by_fold = {fold(known): known for known in fields if known not in hidden}
        by_fold |= {fold(other): known for other, known in self.renamed.items() if known in fields}
        return by_fold.get(folded)

    def _list(self, kind: str, value: Any, into: list[Any] | None, path: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise wrong(path, value, "a list")
        before = [*(into or ())]
        return [
            self._element(kind, item, before[place] if place < len(before) else None, f"{path}[{place}]")
            for place, item in enumerate(value)
        ]

    def _map(self, kind: str, value: Any, into: Content | None, path: str) -> Content | None:
        if value is None:
            return None
        result: Content = dict(into or {})
        for name, inner in _pairs(value, path, "an object"):
            result[name] = self._element(kind, inner, None, f"{path}[{name!r}]")
        return result

    def _element(self, kind: str, value: Any, into: Any, path: str) -> Any:
        """A value in a list or map, which has the zero of its type where null leaves it alone."""
        decoded = self._decode(kind, value, into, path)
        return self._zero(kind) if decoded is None else decoded

    def _zero(self, kind: str) -> Any:
        if kind in self.types:
            return {}
        return {"string": "", "bool": False, "float64": 0.0, **dict.fromkeys(_INTEGERS, 0)}.get(kind)


def fold(name: str) -> str:
    """The name as encoding/json compares it: letters of ASCII in any case, and two signs that Unicode folds to them."""
    return re.sub("[a-z]+", lambda letters: letters[0].upper(), name).replace("\u212a", "K").replace("\u017f", "S")


def _pairs(value: Any, path: str, expected: str) -> Sequence[tuple[str, Any]]:
    if isinstance(value, Members):
        return value.pairs
    if isinstance(value, dict):
        return sorted(value.items())
    raise wrong(path, value, expected)


def _scalar(kind: str, value: Any, path: str) -> Any:
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "float64" and isinstance(value, Number):
        number = float(value.text)
        if abs(number) != float("inf"):
            return number
    if kind in _INTEGERS:
        least, most = _INTEGERS[kind]
        text = value.text if isinstance(value, Number) else ""
        if re.fullmatch("-?[0-9]{1,20}", text) and least <= int(text) <= most:
            return int(text)
        raise wrong(path, value, f"a whole number from {least} to {most}")
    raise wrong(path, value, _NOUNS[kind])


def _duration(value: Any, path: str) -> int:
    if value is not None and not isinstance(value, str):
        raise wrong(path, value, "a duration such as '10s'")
    try:
        return parse_duration(value or "")
    except GoError as error:
        raise WrongType(f"{path}: {error}") from error


def _duration_or_nanoseconds(value: Any, path: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _duration(value, path)
    nanoseconds: int = _scalar("int64", value, path)
    return nanoseconds


_UNESCAPED_SPACE = " \x85\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _quantity(value: Any, path: str) -> str:
    if value is None:
        return "0"
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str):
        raise wrong(path, value, "a quantity such as '1Gi'")
    # Quantity.UnmarshalJSON trims the JSON text: in it, a line break is a backslash and a letter.
    trimmed = text.strip(_UNESCAPED_SPACE)
    try:
        parse(trimmed)
    except InvalidQuantity as error:
        raise WrongType(f"{path}: {text[:60]!r}: {error}") from error
    return trimmed


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]([01]\d|2[0-4]):([0-5]\d|60))", re.ASCII)


def _time(value: Any, path: str) -> str | None:
    if value is None:
        return None
    matched = _TIME.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        raise wrong(path, value, "a time such as '2026-01-02T03:04:05Z'")
    try:
        datetime.fromisoformat(matched[1])
    except ValueError as error:
        raise wrong(path, value, "a time such as '2026-01-02T03:04:05Z'") from error
    return str(value)


_CUSTOM: Mapping[str, Callable[[Any, str], Any]] = {
    "v1.Duration": _duration,
    "v1.TimeOrMetaDuration": _duration_or_nanoseconds,
    "v1.Time": _time,
    "resource.Quantity": _quantity,
    "resource.QuantityValue": _quantity,
}
"""Types that decode themselves, null included."""


def wrong(path: str, value: Any, expected: str) -> WrongType:
    """The error for a value that is not ``expected``, a noun phrase."""
    return WrongType(f"{path or 'the document'}: {_shown(value)} where {expected} belongs")


def _shown(value: Any) -> str:
    if isinstance(value, Number):
        return value.text[:60]
    if isinstance(value, Members | dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return {True: "true", False: "false", None: "null"}.get(value) or f"{value!r:.60}"
