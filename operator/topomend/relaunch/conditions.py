"""Build the conditions of a record: ``Succeeded`` sums up, ``NoNodeCanEverAdmit`` asks for a person.

Owns types, statuses and transition times. Leaves reasons and messages to the caller. Pure: the time is an argument.
"""

from dataclasses import replace

from topomend.model.relaunch import Relaunch, RelaunchCondition, Step

SUCCEEDED = "Succeeded"
NEVER = "NoNodeCanEverAdmit"

_STATUS = {Step.LAUNCHED: "True", Step.CANCELLED: "False", Step.SUPERSEDED: "False"}

Conditions = tuple[RelaunchCondition, ...]


def at_step(record: Relaunch, step: Step, message: str, now: str) -> Conditions:
    """The conditions once ``step`` is done. ``now`` is the time as RFC 3339.

    ``Succeeded`` names the step. ``NoNodeCanEverAdmit``, where the record has it, turns False: it no longer applies.
    """
    succeeded = RelaunchCondition(SUCCEEDED, _STATUS.get(step, "Unknown"), step.value, message, now)
    retracted = [RelaunchCondition(NEVER, "False", "NodeAdmits", "", now)] if record.condition(NEVER) else []
    return tuple(_with_transition_time(record, condition) for condition in (succeeded, *retracted))


def waiting(record: Relaunch, reason: str, message: str, now: str, *, never: bool) -> Conditions:
    """The conditions of a record whose pod waits. ``now`` is the time as RFC 3339.

    ``reason`` is one CamelCase word. ``never`` is whether no node would admit the pod even when empty.
    """
    reason_or_never = NEVER if never else reason
    no_node = (
        RelaunchCondition(NEVER, "True", reason_or_never, message, now)
        if never
        else RelaunchCondition(NEVER, "False", reason_or_never)
    )
    succeeded = RelaunchCondition(SUCCEEDED, "Unknown", reason_or_never, message, now)
    return tuple(
        _with_transition_time(record, condition)
        for condition in (succeeded, replace(no_node, last_transition_time=now))
    )


def _with_transition_time(record: Relaunch, condition: RelaunchCondition) -> RelaunchCondition:
    """The condition with the time of its last transition: the recorded one as long as the status stays the same."""
    recorded = record.condition(condition.type)
    if recorded is None or recorded.status != condition.status:
        return condition
    return replace(condition, last_transition_time=recorded.last_transition_time)
