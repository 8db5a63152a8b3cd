"""A refusal's cause and remedy as values for ``-o json`` and ``-o yaml``.

Owns the layout, which is an interface: scripts read it. Leaves printing to its users.
"""

from typing import Any

from topomend.decide.cause import Cause
from topomend.decide.nearest.nearest_amounts import NearestAmount
from topomend.decide.remedy import Remedy
from topomend.model.quantity import exact_bytes
from topomend.replay import qos


def refusal_record(cause: Cause, remedy: Remedy) -> dict[str, Any]:
    """``cause`` (kind, container, resources and sentence), ``remedy`` in words, and ``nearest`` amounts."""
    return {
        "cause": {
            "kind": cause.kind.value,
            "container": cause.container,
            "resources": list(cause.resources),
            "sentence": cause.text,
        },
        "remedy": remedy.words,
        "nearest": [_nearest_record(amount) for amount in remedy.amounts],
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
