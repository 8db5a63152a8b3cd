"""Drop-ins merged over the content of the file, as cmd/kubelet/app/server.go:mergeKubeletConfigurations does it.

The kubelet writes what it has read as JSON, merges each drop-in as a JSON merge patch (RFC 7396), where names must
match exactly, and decodes the result, where they match in any case. So of two names of one field, the one that comes
later in the order of bytes is decoded last. Kubelets before 1.32 write the JSON in the names of their own type, with
every field, and decode the result over what they had read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from topomend.discover.documents.json_values import json_number
from topomend.discover.documents.value import Members, NotADocument, Number, Value
from topomend.discover.kubelet_config.decode import UNSET, Content, Decoded, Decoder
from topomend.discover.kubelet_config.fields import ROOT, Types, defaulted, internal_names
from topomend.replay.startup.defaults import with_defaults
from topomend.replay.startup.feature_gates import FeatureGates

VERSIONED_MINOR = 32
"""Kubernetes 1.32 merges in v1beta1, and checks the kind of drop-ins."""

_DERIVED = ("serializeImagePulls", "crashLoopBackOff", "imagePullCredentialsVerificationPolicy")
_UPDATE, _REPORT = "nodeStatusUpdateFrequency", "nodeStatusReportFrequency"
_SECOND = 10**9

INTERNAL_NAMES = {"ResolverConfig": "resolvConf"}
"""The one field that has another name in the kubelet's own type: no drop-in can set it before 1.32."""


def merged(base: Content, drop_ins: Sequence[Members], types: Types, minor: int) -> tuple[Content, Decoder]:
    """The content with every drop-in merged over it, and the decoder that knows its problems."""
    is_versioned = minor >= VERSIONED_MINOR
    # What depends on feature gates is in the content, if it has a default at all.
    defaults = {name: inner for name, inner in defaulted().items() if name not in _DERIVED}
    document = _Writer(types, is_versioned).struct(ROOT, base, {**defaults, "crashLoopBackOff": {}})
    for drop_in in drop_ins:
        _merge(document, drop_in)
    decoder = Decoder(types, any_case=True, renamed={} if is_versioned else INTERNAL_NAMES)
    content = decoder.configuration(document, None if is_versioned else base)
    if is_versioned and not content.get(_REPORT):
        # By now the other frequency has its default, which this one follows.
        content[_REPORT] = content.get(_UPDATE) or 10 * _SECOND
    return content, decoder


def with_derived_defaults(content: Content, minor: int) -> Content:
    """The content with the defaults that depend on other fields (apis/config/v1beta1/defaults.go).

    The kubelet fills them in as soon as it has read its file: what drop-ins and flags change later leaves them alone.
    """
    filled = with_defaults(content, FeatureGates(minor, content.get("featureGates", {})))
    derived = {name: filled[name] for name in _DERIVED if name in filled}
    return {**content, **derived, _REPORT: content.get(_REPORT) or content.get(_UPDATE) or 300 * _SECOND}


def with_all_defaults(content: Content, types: Types, minor: int) -> Content:
    """The content with the defaults that a check looks at. What is zero from now on stays zero.

    A field without a default here, whose type is no pointer, is absent if it is zero.
    """
    gates = FeatureGates(minor, content.get("featureGates", {}))
    return with_defaults(_without_zeros(content, types[ROOT], types), gates)


def _without_zeros(content: Content, fields: Mapping[str, str], types: Types) -> Content:
    kept = {}
    for name, value in content.items():
        kind = fields[name]
        if isinstance(value, dict) and kind.removeprefix("*") in types:
            kept[name] = _without_zeros(value, types[kind.removeprefix("*")], types)
        elif kind.startswith("*") or value is False or value not in ("", 0):
            kept[name] = value
    return kept


class _Writer:
    """Content as JSON, with decoded values at its leaves."""

    def __init__(self, types: Types, is_versioned: bool) -> None:
        self._types, self._is_versioned = types, is_versioned

    def struct(self, struct: str, content: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that are set or have a default; before 1.32 every field of the kubelet's own structs."""
        names = {} if self._is_versioned else internal_names(struct)
        # Structs that both types share, such as that of logging, have the names and omissions of v1beta1.
        omits = not names
        result = {}
        for name, kind in self._types[struct].items():
            written = self._field(kind, content.get(name), defaults.get(name), omits=omits)
            if written is not None:
                result[names.get(name, name)] = written
        return result

    def _field(self, kind: str, content: Any, default: Any, *, omits: bool) -> Any:
        is_struct = kind.removeprefix("*") in self._types
        if is_struct and (content is not None or isinstance(default, dict)):
            return self.struct(kind.removeprefix("*"), content or {}, default or {})
        # Empty values that are no pointers are left out (omitempty).
        if content is None or (omits and not kind.startswith("*") and content in ("", 0, [], {})):
            return UNSET if default or not omits else None
        return self._value(kind.removeprefix("*"), content)

    def _value(self, kind: str, content: Any) -> Any:
        if content is None:
            return UNSET
        if kind.startswith("[]"):
            return [self._value(kind[2:], item) for item in content]
        if kind.startswith("map["):
            return {name: self._value(kind.partition("]")[2], item) for name, item in content.items()}
        return self.struct(kind, content, {}) if kind in self._types else Decoded(content)


def _merge(document: dict[str, Any], patch: Members) -> None:
    for name, value in patch.pairs:
        before = document.get(name)
        if value is None:
            document.pop(name, None)
        elif isinstance(before, dict):
            if isinstance(value, Members):
                _merge(before, value)
            else:
                document[name] = value
        else:
            document[name] = _without_nulls(value)


def _without_nulls(value: Value) -> Any:
    """The value without the members that are null; those of lists stay."""
    if isinstance(value, Members):
        return {name: _without_nulls(content) for name, content in value.pairs if content is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def as_unstructured(value: Value) -> Value:
    """A drop-in's value after Go has held it without types: numbers are int64 or float64. Raises NotADocument."""
    if isinstance(value, Number):
        return Number(_go_number(value.text))
    if isinstance(value, Members):
        return Members(tuple((name, as_unstructured(content)) for name, content in value.pairs))
    if isinstance(value, list):
        return [as_unstructured(item) for item in value]
    return value


def _go_number(text: str) -> str:
    if not set(text) & set(".eE") and len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63:
        return str(int(text))
    try:
        return json_number(float(text))
    except NotADocument as error:
        raise NotADocument(f"{text[:60]} is too large for a number") from error
