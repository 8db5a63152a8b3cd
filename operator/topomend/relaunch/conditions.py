"""The conditions of a record: ``Succeeded`` sums up, ``NoNodeCanEverAdmit`` asks for a person.

Pure: what they say is decided elsewhere, their times are arguments.
"""

from dataclasses import replace

from topomend.model.relaunch import Relaunch, RelaunchCondition, Step

SUCCEEDED = "Succeeded"
NEVER = "NoNodeCanEverAdmit"

_STATUS = {Step.LAUNCHED: "True", Step.CANCELLED: "False", Step.SUPERSEDED: "False"}

Conditions = tuple[RelaunchCondition, ...]


def at_step(record: Relaunch, step: Step, message: str, now: str) -> Conditions:
    """The conditions once ``step`` is done: Succeeded says how far it is; that no node fits is no longer so."""
    succeeded = RelaunchCondition(SUCCEEDED, _STATUS.get(step, "Unknown"), step.value, message, now)
    relieved = [RelaunchCondition(NEVER, "False", "NodeAdmits", "", now)] if record.condition(NEVER) else []
    return tuple(_since(record, each) for each in (succeeded, *relieved))


def waiting(record: Relaunch, reason: str, message: str, now: str, *, never: bool) -> Conditions:
    """The conditions of a record whose pod waits: for what, and whether for something that no node can give."""
    word = NEVER if never else reason
    told = RelaunchCondition(NEVER, "True", word, message, now) if never else RelaunchCondition(NEVER, "False", word)
    succeeded = RelaunchCondition(SUCCEEDED, "Unknown", word, message, now)
    return tuple(_since(record, each) for each in (succeeded, replace(told, last_transition_time=now)))


def _since(record: Relaunch, condition: RelaunchCondition) -> RelaunchCondition:
    """The condition with the time at which its status became what it is."""
    before = record.condition(condition.type)
    if before is None or before.status != condition.status:
        return condition
    return replace(condition, last_transition_time=before.last_transition_time)
