"""A refusal's cause and remedy as values for ``-o json`` and ``-o yaml``.

Owns the layout, which is an interface: scripts read it. Leaves printing to its users.
"""

from typing import Any

from topomend.explain.cause import Cause
from topomend.explain.nearest.nearest_amounts import NearestAmount
from topomend.explain.remedy import Remedy
from topomend.model.quantity import exact_bytes
from topomend.replay import qos


def refusal_record(cause: Cause, remedy: Remedy) -> dict[str, Any]:
    """``cause`` (kind, container, resources and sentence), ``remedy`` in words, ``nearest`` amounts, and ``settings``.

    Each of ``settings`` has ``changes`` of the KubeletConfiguration; None takes an option out.
    """
    return {
        "cause": {
            "kind": cause.kind.value,
            "container": cause.container,
            "resources": list(cause.resources),
            "sentence": cause.text,
        },
        "remedy": remedy.words,
        "nearest": [_nearest_record(amount) for amount in remedy.amounts],
        "settings": [{"words": setting.words, "changes": dict(setting.changes)} for setting in remedy.settings],
    }


def _nearest_record(amount: NearestAmount) -> dict[str, str]:
    """Amounts as quantities, as a manifest has them: ``24``, ``20Gi``."""
    return {
        "container": amount.container,
        "resource": amount.resource,
        "asked": _quantity(amount.resource, amount.asked),
        "admitted": _quantity(amount.resource, amount.admitted),
    }


def _quantity(resource: str, number: int) -> str:
    return exact_bytes(number) if qos.is_memory(resource) else str(number)
