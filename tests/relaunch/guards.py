"""The protocol without one of its guards: its own source, a condition of it taken out."""

import ast
import inspect
from dataclasses import dataclass

from tests.relaunch.walk import Bounds, Machine
from tests.relaunch.world import Rules

from topomend.relaunch import protocol


@dataclass(frozen=True)
class Guard:
    """What the guard is for; the text of the source that makes it, and the text without it; where its lack shows."""

    purpose: str
    text: str
    without: str
    bounds: Bounds


def lacking(guard: Guard) -> Machine:
    """The protocol without the guard. Its requests and answers are those of the protocol itself."""
    source = inspect.getsource(protocol)
    assert source.count(guard.text) == 1, f"the protocol holds {guard.text!r} {source.count(guard.text)} times"
    functions: list[ast.stmt] = [
        node for node in ast.parse(source.replace(guard.text, guard.without)).body if isinstance(node, ast.FunctionDef)
    ]
    names = dict(vars(protocol))
    exec(compile(ast.Module(functions, []), guard.purpose, "exec"), names)  # noqa: S102  our own source
    return Machine(names["next_request"], names["step"])


ALONE = Bounds(operators=1)
FAULTS = Bounds(operators=1, faults=2)
DELETION = Bounds(operators=1, faults=1, deletions=1)
SQUATTER = Bounds(operators=1, faults=1, deletions=1, squatters=1)
TWO = Bounds(operators=2, faults=1, deletions=1)
ALL = Bounds(operators=2, faults=1, deletions=1, squatters=1)

# That the pod is claimed before it is recorded and committed is an order, not a guard: once there is a record, nothing
# hangs on the finalizer any more.
RECORDS = Bounds(operators=1, faults=1, records=1)
DRAINED = Bounds(operators=1, drains=1)
ENDING = Bounds(operators=1, deletions=1, ends=1)
EDITED = Bounds(operators=1, faults=1, deletions=1, edits=1)
EDITED_RECORDS = Bounds(operators=1, faults=2, records=1, edits=1)
UNBOUND = Bounds(operators=1, faults=1, deletions=1, unbound=1)
UNBOUND_TWO = Bounds(operators=2, faults=1, deletions=1, unbound=1)
UNBOUND_RECORDS = Bounds(operators=1, faults=1, records=1, deletions=1, unbound=1)
UNBOUND_DRAINED = Bounds(operators=1, deletions=1, drains=1, unbound=1)
UNBOUND_ENDING = Bounds(operators=2, deletions=1, ends=1, unbound=1, fresh=1)
UNBOUND_DRAINED_ENDING = Bounds(operators=1, deletions=1, drains=1, ends=1, unbound=1, fresh=1)
UNBOUND_NOTED = Bounds(operators=1, records=1, unbound=1, noted=1, fresh=1)
UNBOUND_EDITED = Bounds(operators=1, faults=1, deletions=1, unbound=1, edits=1, fresh=1)
UNBOUND_EDITED_STALE = Bounds(operators=1, faults=2, deletions=1, unbound=1, edits=1)

GUARDS = [
    Guard("no stranger's pod is claimed", "if pod is None or pod.uid != progress.uid:", "if pod is None:", SQUATTER),
    Guard(
        "a claimed pod that somebody deletes leaves a record behind",
        "if pod.deleting and _is_claimed(pod) and not progress.denied:",
        "if False:",
        DELETION,
    ),
    Guard(
        "nobody waits for the end of a pod that only our finalizer holds",
        "    if _is_claimed(pod):\n"
        "        return (record.step is not Step.RECORDED and _protect_first(record)) or Unclaim(pod)\n",
        "",
        ALONE,
    ),
    Guard(
        "the finalizer goes before the record ends",
        "    if _is_claimed(pod):\n"
        "        return (record.step is not Step.RECORDED and _protect_first(record)) or Unclaim(pod)\n",
        "    if _is_claimed(pod) and record.step is not Step.RECORDED:\n        return Unclaim(pod)\n",
        DELETION,
    ),
    Guard(
        "the pod is deleted only once its record is committed",
        "return _protect_first(record) or Commit(pod, record)",
        "return Delete(pod)",
        ALONE,
    ),
    Guard(
        "the record is a copy of the pod before the pod is deleted",
        "return _protect_first(record) or Commit(pod, record)",
        "return _protect_first(record) or Mark(record, Step.COMMITTED)",
        DELETION,
    ),
    Guard(
        "a pod whose deletion came before the commit is not replaced",
        "    if record.step is Step.RECORDED:\n        return Mark(record, Step.CREATED, new_uid=pod.uid) if pod",
        "    if False:\n        return Mark(record, Step.CREATED, new_uid=pod.uid) if pod",
        DELETION,
    ),
    Guard(
        "a pod of another's making is not taken for the replacement",
        "    if not _made_from(pod, record):\n"
        '        return Mark(record, Step.SUPERSEDED, why=f"another pod took the name',
        '    if False:\n        return Mark(record, Step.SUPERSEDED, why=f"another pod took the name',
        SQUATTER,
    ),
    Guard(
        "a name that is taken ends the relaunch",
        "    if not _made_from(pod, record):\n"
        '        return Mark(record, Step.SUPERSEDED, why=f"another pod took the name',
        '    if not _made_from(pod, record):\n        return Pause(f"another pod took the name',
        SQUATTER,
    ),
    Guard(
        "what the API server denies is kept in a blocked record and no error",
        "        return Mark(record, Step.BLOCKED, why=progress.denied)",
        "        return Mark(record, Step.CANCELLED, why=progress.denied)",
        FAULTS,
    ),
    Guard(
        "only the pod that the record stands for is ungated",
        "    if pod.uid != record.new_uid:\n        return _delete_duplicate(progress, pod, record) or Mark(",
        "    if not _made_from(pod, record):\n        return _delete_duplicate(progress, pod, record) or Mark(",
        TWO,
    ),
    Guard(
        "a replacement that was deleted is not waited for",
        '        return Mark(record, Step.CANCELLED, why="the replacement was deleted before it was ungated")',
        '        return Pause("the replacement")',
        DELETION,
    ),
    Guard(
        "a pod that lost its gate is not ungated again",
        "    if RELAUNCH_GATE not in pod.gates:\n        return Mark(",
        "    if False:\n        return Mark(",
        FAULTS,
    ),
    Guard(
        "the record says what was launched only once it is",
        "    if RELAUNCH_GATE not in pod.gates:\n        return Mark(",
        "    if True:\n        return Mark(",
        ALONE,
    ),
    Guard(
        "a record that ended on a read from before is opened again for the pod that waits",
        "return Mark(record, Step.CREATED) if waits else None",
        "return None",
        FAULTS,
    ),
    Guard(
        "a refused pod that is read from before ends no relaunch",
        "    if record.manifest_hash != progress.digest:\n        return _changed(progress, pod, record)\n",
        "    if record.step is not Step.COMMITTED:\n        return Mark(record, Step.CANCELLED)\n",
        Bounds(operators=1, faults=3),
    ),
    Guard(
        "a refused pod that is read from before does not set the record back",
        "return Commit(pod, record) if progress.contradicted else Claim(pod)",
        "return Commit(pod, record)",
        TWO,
    ),
    Guard(
        "a pod of our making that no record stands for is removed",
        "return Delete(pod) if progress.confirmed else Confirm(record)",
        "return None",
        TWO,
    ),
    Guard(
        "the pod that the record stands for is not removed",
        "return _reopen(pod, record) or _delete_duplicate(progress, pod, record)",
        "return _delete_duplicate(progress, pod, record)",
        FAULTS,
    ),
    Guard(
        "a record that somebody deletes before the commit goes",
        "        return Unprotect(record) if record.protected else Pause(END_OF_RECORD)\n",
        "        return Pause(END_OF_RECORD)\n",
        RECORDS,
    ),
    Guard(
        "a record that has ended gives its finalizer back",
        "return Unprotect(record) if record.protected else Stop(record.step.value)",
        "return Stop(record.step.value)",
        ALONE,
    ),
    Guard(
        "a record whose namespace ends is not waited for",
        "    if progress.namespace_ends:\n",
        "    if False:\n",
        ENDING,
    ),
    Guard(
        "a drain gives a pod back that nothing was done about",
        "    if progress.draining:\n        return _give_back(pod, record)\n    if record.is_of_unbound:",
        "    if progress.draining:\n        return Stop(DRAINED)\n    if record.is_of_unbound:",
        DRAINED,
    ),
    Guard(
        "a drain gives no pod back that somebody may be deleting",
        "    if record.step is Step.RECORDED:\n        return _recorded(progress, pod, record)\n",
        "    if record.step is Step.RECORDED or progress.draining:\n        return _recorded(progress, pod, record)\n",
        DRAINED,
    ),
    Guard(
        "a drain lets a replacement go",
        "    if progress.draining:\n        return Launch(pod, ())\n",
        "    if progress.draining:\n        return Stop(DRAINED)\n",
        DRAINED,
    ),
    Guard(
        "a pod that a scheduler has bound stays",
        "    if refused and refused.node and record.is_of_unbound:\n",
        "    if False:\n",
        UNBOUND,
    ),
    Guard(
        "the record of a pod that was bound ends before the finalizer goes",
        "    if not record.step.ended:\n        return Mark(record, Step.CANCELLED, why=BOUND)\n"
        "    if _is_claimed(pod):\n        return Unclaim(pod)\n",
        "    if _is_claimed(pod):\n        return Unclaim(pod)\n"
        "    if not record.step.ended:\n        return Mark(record, Step.CANCELLED, why=BOUND)\n",
        UNBOUND,
    ),
    Guard(
        "an unbound pod that is claimed has a record, also where none was read",
        "    if not progress.denied:\n        return Record(pod)\n    is_useless",
        "    if True:\n        return Unclaim(pod)\n    is_useless",
        UNBOUND,
    ),
    Guard(
        "an unbound pod whose record somebody removed gets another",
        "    if not progress.denied:\n        return Record(pod)\n    is_useless",
        "    is_useless",
        UNBOUND_RECORDS,
    ),
    Guard(
        "an unbound pod is not given back because its record is denied to who did not read it",
        "    return Unclaim(pod) if is_useless else Pause(progress.denied)",
        "    return Unclaim(pod)",
        UNBOUND_TWO,
    ),
    Guard(
        "an unbound pod is given back in a namespace that ends, where no record can be created",
        "    is_useless = progress.namespace_ends or (pod.deleting and not pod.node)\n",
        "    is_useless = pod.deleting and not pod.node\n",
        UNBOUND_DRAINED_ENDING,
    ),
    Guard(
        "the record of an unbound pod stays while another operator may be claiming the pod",
        "    if record.deleting:\n        return Claim(pod)\n",
        "    if record.deleting:\n        return Unprotect(record)\n",
        UNBOUND_ENDING,
    ),
    Guard(
        "the record of an unbound pod has our finalizer before the pod has",
        "    return _protect_first(record) or Claim(pod)\n",
        "    return Claim(pod)\n",
        UNBOUND_NOTED,
    ),
    Guard(
        "the record of an unbound pod that was changed ends before the pod is given back",
        "(_protect_first(record) or Commit(pod, record)) if is_its else Mark(record, Step.CANCELLED, why=CHANGED)",
        "(_protect_first(record) or Commit(pod, record)) if is_its else Unclaim(pod)",
        UNBOUND_EDITED,
    ),
    Guard(
        "a pod that was changed after the commit is not waited for",
        "return Mark(record, Step.CANCELLED, why=CHANGED) if is_certain else Claim(pod)",
        "return Pause(CHANGED) if is_certain else Claim(pod)",
        EDITED,
    ),
    Guard(
        "a pod that is read from before ends no relaunch of a pod that was changed",
        "    is_certain = progress.contradicted or pod.deleting\n",
        "    is_certain = True\n",
        UNBOUND_EDITED_STALE,
    ),
    Guard(
        "no replacement of a later record is taken for a duplicate",
        "return Delete(pod) if progress.confirmed else Confirm(record)",
        "return Delete(pod)",
        EDITED_RECORDS,
    ),
    Guard(
        "a drain ends the record of an unbound pod before it gives the pod back",
        "    is_first = _is_claimed(pod) and not record.is_of_unbound\n",
        "    is_first = _is_claimed(pod)\n",
        UNBOUND_DRAINED,
    ),
    Guard(
        "what was known is forgotten once a precondition fails",
        "    return Progress(progress.uid, progress.record_name, progress.may_start, draining=progress.draining)\n",
        '    return replace(progress, record=UNREAD, nodes=None, denied="")\n',
        Bounds(operators=2),
    ),
]

PRECONDITIONS = {
    "claiming names the pod": (Rules(claim_precondition=False), ALL),
    "taking the finalizer off names the pod": (Rules(unclaim_precondition=False), ALL),
    "deleting names the pod": (Rules(delete_precondition=False), ALL),
    "launching names the pod": (Rules(launch_precondition=False), ALL),
    "marking names the record's version": (Rules(mark_precondition=False), ALL),
    "the finalizer keeps the record": (Rules(record_finalizer=False), RECORDS),
    "a pod has one record": (Rules(record_once=False), TWO),
    "the replacement has a gate": (Rules(gate=False), TWO),
    "the finalizer holds the pod": (Rules(finalizer=False), TWO),
    "deleting an unbound pod names the version that a binding changes": (Rules(delete_precondition=False), UNBOUND),
    "the finalizer tells whose deletion it was, after a pod was bound": (Rules(finalizer=False), UNBOUND),
}
