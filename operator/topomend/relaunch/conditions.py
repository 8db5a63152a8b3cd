"""Build the conditions of a record: ``Succeeded`` sums up, ``NoNodeCanEverAdmit`` asks for a person.

Owns types, statuses and transition times. Leaves reasons and messages to the caller. Pure: the time is an argument.
"""

from topomend.base.plain_text import plain
from topomend.model.condition import Condition
from topomend.model.relaunch_record import Relaunch, Step

SUCCEEDED = "Succeeded"
NEVER = "NoNodeCanEverAdmit"

_STATUS = {Step.LAUNCHED: "True", Step.CANCELLED: "False", Step.SUPERSEDED: "False"}

MAX_MESSAGE = 4096
"""Characters of a condition's message; the API server takes 32768."""

Conditions = tuple[Condition, ...]


def at_step(record: Relaunch, step: Step, message: str, now: str) -> Conditions:
    """The conditions once ``step`` is done. ``now`` is the time as RFC 3339.

    ``Succeeded`` names the step. ``NoNodeCanEverAdmit``, where the record has it, turns False: it no longer applies.
    """
    succeeded = Condition(SUCCEEDED, _STATUS.get(step, "Unknown"), step.value, plain(message, MAX_MESSAGE), now)
    retracted = [Condition(NEVER, "False", "NodeAdmits", "", now)] if record.condition(NEVER) else []
    return tuple(_with_transition_time(record, condition) for condition in (succeeded, *retracted))


def waiting(record: Relaunch, reason: str, message: str, now: str, *, never: bool) -> Conditions:
    """The conditions of a record whose pod waits. ``now`` is the time as RFC 3339.

    ``reason`` is one CamelCase word. ``never`` is whether no node would admit the pod even when empty.
    """
    reason_or_never, message = NEVER if never else reason, plain(message, MAX_MESSAGE)
    no_node = (
        Condition(NEVER, "True", reason_or_never, message, now) if never else Condition(NEVER, "False", reason_or_never)
    )
    succeeded = Condition(SUCCEEDED, "Unknown", reason_or_never, message, now)
    return tuple(
        _with_transition_time(record, condition)
        for condition in (succeeded, no_node._replace(last_transition_time=now))
    )


def _with_transition_time(record: Relaunch, condition: Condition) -> Condition:
    """The condition with the time of its last transition: the recorded one as long as the status stays the same."""
    recorded = record.condition(condition.type)
    if recorded is None or recorded.status != condition.status:
        return condition
    return condition._replace(last_transition_time=recorded.last_transition_time)
