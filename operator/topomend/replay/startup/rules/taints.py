"""The taints with which a node registers.

Source: pkg/kubelet/apis/config/validation/validation.go:ValidateKubeletConfiguration,
pkg/util/taints/taints.go:CheckTaintValidation, apimachinery pkg/api/validate/content.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.rules.limits import INVALID

_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile("(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_MAX_NAME, _MAX_DOMAIN = 63, 253


def registered_taints(config: Configuration) -> Iterator[str]:
    """Each taint's key, value and effect; it may not say when it was added."""
    for taint in config.structs("registerWithTaints"):
        key, value, effect = taint.text("key"), taint.text("value"), taint.text("effect")
        added = taint.text("timeAdded")
        if not (is_key(key) and is_value(value) and effect in _EFFECTS):
            yield f"invalid taint: {{{key} {value} {effect} {_time(added)}}}"
        if added:
            yield INVALID + "taint.TimeAdded is not nil"


def is_key(key: str) -> bool:
    """Whether this is a qualified name (apimachinery pkg/api/validate/content/kube.go:IsLabelKey)."""
    domain, slash, name = key.rpartition("/")
    if slash and not (len(domain) <= _MAX_DOMAIN and _DOMAIN.fullmatch(domain)):
        return False
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def is_value(value: str) -> bool:
    """Whether this is a label's value, which may be empty."""
    return not value or (len(value) <= _MAX_NAME and _NAME.fullmatch(value) is not None)


def _time(text: str) -> str:
    """As Go prints a metav1.Time, of a kubelet in the time zone UTC."""
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC) if text else None
    except (ValueError, OverflowError):
        return text
    return "<nil>" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} +0000 UTC"
