"""How trials are printed: a table for people, a document for programs, a report for strangers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topomend import __version__
from topomend.cli.numa import export
from topomend.cli.numa.selftest.trials import Outcome
from topomend.cli.output.formats import Row
from topomend.cli.simulate.verdict import verdict_record
from topomend.model.bitmask import format_id_list, members
from topomend.model.condition import Summary
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.verdict import Verdict
from topomend.replay.topology.policy_names import NONE
from topomend.selftest.anonymous import without_names
from topomend.selftest.cases import Case
from topomend.selftest.compare import Agreement, Answer, Prediction, Seen, held_text
from topomend.selftest.manifest import pod_manifest
from topomend.wire.published.node_topology import node_topology, status_of

PLANNED = ("CASE", "ASKS FOR", "PREDICTED")
HEADING = (*PLANNED, "HAPPENED", "RESULT")

_NOTHING = "-"


def planned_row(case: Case, predicted: Prediction) -> Row:
    """A case that is not tried yet."""
    cells = (case.name, case.what, _predicted_text(case, predicted))
    return Row((case.name,), cells, planned_record(case, predicted), case.name)


def row(outcome: Outcome) -> Row:
    """A case that was tried."""
    case, predicted, answer = outcome.case, outcome.predicted, outcome.answer
    cells = (
        case.name,
        case.what,
        _predicted_text(case, predicted) if predicted else _NOTHING,
        _answer_text(case, predicted.seen.state, answer) if predicted and answer else _NOTHING,
        outcome.judgement.agreement.value,
    )
    return Row((case.name,), cells, record(outcome), case.name)


def _predicted_text(case: Case, predicted: Prediction) -> str:
    verdict = predicted.verdict
    return _text(case, predicted.seen.state, verdict, predicted.allocation)


def _answer_text(case: Case, state: NodeState, answer: Answer) -> str:
    return _text(case, state, answer, answer.allocation)


def _text(case: Case, state: NodeState, answer: Verdict | Answer, allocation: PodAllocation | None) -> str:
    if not answer.admitted:
        return f"refused: {answer.reason}"
    return held_text(state, allocation, [container.name for container in case.containers])


def summary(state: NodeState, outcomes: Sequence[Outcome], planned: int) -> str:
    """``gpu-1 (kubelet v1.37.2, restricted, scope pod): 14 of 15 agree, 1 differs``."""
    kubelet = state.kubelet
    policy = kubelet.topology_manager_policy
    scope = f", scope {kubelet.topology_manager_scope}" if policy != NONE else ""
    counts = Counter(outcome.judgement.agreement for outcome in outcomes)
    differing, unsure, missing = counts[Agreement.DIFFERS], counts[Agreement.UNSURE], planned - len(outcomes)
    parts = [f"{counts[Agreement.AGREES]} of {planned} agree"]
    parts += [f"{differing} differ{'s' if differing == 1 else ''}"] if differing else []
    parts += [f"{unsure} unsure"] if unsure else []
    parts += [f"{missing} not tried"] if missing else []
    return f"{state.name} (kubelet {kubelet.version}, {policy}{scope}): {', '.join(parts)}"


def reasons(outcomes: Iterable[Outcome]) -> Iterable[str]:
    """A line for each thing that differs or is not known."""
    return (f"{outcome.case.name}: {why}" for outcome in outcomes for why in outcome.judgement.why)


# Documents


def planned_document(node: str, cases: Sequence[tuple[Case, Prediction]], left_out: Sequence[str]) -> dict[str, Any]:
    """What ``--dry-run`` answers programs."""
    return {
        "node": node,
        "cases": [planned_record(case, predicted) for case, predicted in cases],
        "notTried": list(left_out),
    }


def document(
    node: str, outcomes: Sequence[Outcome], *, planned: int, left_out: Sequence[str], notes: Sequence[str]
) -> dict[str, Any]:
    """What programs read; docs/reference.md lists the fields."""
    counts = Counter(outcome.judgement.agreement for outcome in outcomes)
    return {
        "node": node,
        "counts": {
            **{agreement.value: counts[agreement] for agreement in Agreement},
            "notTried": planned - len(outcomes),
        },
        "cases": [record(outcome) for outcome in outcomes],
        "notTried": list(left_out),
        "notes": list(notes),
    }


def planned_record(case: Case, predicted: Prediction | None) -> dict[str, Any]:
    """A case and its prediction."""
    return {
        "name": case.name,
        "asksFor": case.what,
        "predicted": None if predicted is None else verdict_record(predicted.verdict),
    }


def record(outcome: Outcome) -> dict[str, Any]:
    """A case and what became of it."""
    return planned_record(outcome.case, outcome.predicted) | {
        "happened": None if outcome.answer is None else _answer_record(outcome.answer),
        "result": outcome.judgement.agreement.value,
        "why": list(outcome.judgement.why),
    }


def _answer_record(answer: Answer) -> dict[str, Any]:
    containers = answer.allocation.containers if answer.allocation else ()
    return {
        "admitted": answer.admitted,
        "reason": answer.reason,
        "message": answer.message,
        "containers": [_held_record(container) for container in containers],
    }


def _held_record(container: ContainerAllocation) -> dict[str, Any]:
    return {
        "name": container.name,
        "cpus": format_id_list(container.cpus),
        "memory": [
            {"type": block.resource, "numaNodes": list(members(block.numa_nodes)), "bytes": block.size}
            for block in container.memory
        ],
        "devices": {devices.resource: list(devices.ids) for devices in container.devices},
    }


# The report


def report(
    answer: Mapping[str, Any], outcomes: Iterable[Outcome], node: Mapping[str, Any], seen: Seen, server: str
) -> dict[str, Any]:
    """The contents of a bug report: the answer, versions, the Node and its state, without names of others' pods.

    It is a list that ``topomend simulate --node`` reads. Of each case that differs it has the pod and the state from
    which it was predicted.
    """
    differing = [outcome for outcome in outcomes if outcome.judgement.agreement is not Agreement.AGREES]
    return {
        "versions": {"topomend": __version__, "apiServer": server, "kubelet": seen.state.kubelet.version},
        "selftest": {**answer, "predictedFrom": [_basis(each) for each in differing if each.predicted]},
        "apiVersion": "v1",
        "kind": "List",
        "items": [export.node(node), _anonymous(seen.state, "")],
    }


def _basis(outcome: Outcome) -> dict[str, Any]:
    predicted = outcome.predicted
    assert predicted is not None  # noqa: S101 - the caller has asked
    own = predicted.verdict.namespace
    return {
        "case": outcome.case.name,
        "used": dict(predicted.seen.used),
        "pod": pod_manifest(outcome.case, predicted.seen.node, own, "any"),
        "nodeTopology": _anonymous(predicted.seen.state, own),
    }


def _anonymous(state: NodeState, own_namespace: str) -> dict[str, Any]:
    return node_topology(state.name, status_of(without_names(state, own_namespace), Summary()))
