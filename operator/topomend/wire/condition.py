"""Convert a standard condition (metav1.Condition) to and from its API object."""

from typing import Any

from topomend.model.condition import Condition
from topomend.wire.document import Document


def condition_fields(condition: Condition) -> dict[str, Any]:
    """The condition as the API has it, without a time where it has none."""
    fields = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    return fields | ({"lastTransitionTime": condition.last_transition_time} if condition.last_transition_time else {})


def read_condition(condition: Document) -> Condition:
    """The condition in an object from an untrusted writer. Raises MalformedObject."""
    return Condition(
        type=condition["type"].text(),
        status=condition["status"].text(),
        reason=condition["reason"].text(""),
        message=condition["message"].text(""),
        last_transition_time=condition["lastTransitionTime"].text(""),
    )
