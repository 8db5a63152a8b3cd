"""What the nodes say of one pod: why the kubelet of one refuses it, which others would admit it, and its history.

Owns the lines of an answer and its record. Leaves how the nodes are asked to ``ask``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topomend.cli.numa.cluster.devices.claims import Claims, claim_records
from topomend.cli.numa.cluster.devices.device_claims import can_have
from topomend.cli.numa.explain.node_answer import (
    NodeAnswer,
)
from topomend.cli.numa.explain.waiting_pod.wait import NO_WAIT, Wait
from topomend.cli.output.formats import WIDE
from topomend.decide.claims.beside_devices import preference_words
from topomend.decide.claims.device_claims import ClaimAnswer, Sharing
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.decide.diagnosis.node_status import UNKNOWN
from topomend.model.pods.pod import Pod
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch.conditions import SUCCEEDED


@dataclass(frozen=True)
class Answer:
    """What is known of one pod: the answer of ``node`` (all nodes if empty), that of every node, and its history.

    ``claims`` are the devices that a pod on a node has by claims. ``needs_claims`` is whether the pod has any, and
    ``by_claims`` says of the nodes that would admit it whether its devices could be where they would place it.
    ``totals_checked`` is whether the requests of the other pods were read, ``nodes_known`` whether the user may read
    what the nodes publish. ``notes`` say why totals were not checked, unless the user may not read them at all, and
    where volumes are not known.
    ``wait`` is what is known besides of a pod that waits for a node.
    """

    pod: Pod
    node: str
    on_node: NodeAnswer
    diagnosis: Diagnosis
    relaunches: tuple[Relaunch, ...]
    claims: Claims
    needs_claims: bool
    totals_checked: bool
    nodes_known: bool = True
    notes: tuple[str, ...] = ()
    wait: Wait = NO_WAIT
    by_claims: Mapping[str, ClaimAnswer] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """The exit code."""
        return self.on_node.code

    @property
    def admitting(self) -> list[str]:
        """The nodes that would admit the pod."""
        return [candidate.node for candidate in self.diagnosis.candidates]

    def lines(self, output: str, most_rejected: int | None = None) -> list[str]:
        """The lines of an answer, and of ``wide`` all nodes that would admit the pod.

        ``most_rejected`` is of how many nodes it is said why they would not; None is of all.
        """
        elsewhere = [*_elsewhere(self, None if output == WIDE else 5, most_rejected, is_wide=output == WIDE)]
        return [
            *self.on_node.lines,
            *elsewhere,
            *self.notes,
            *self.wait.room,
            *self.wait.next,
            *_relaunched(self.relaunches),
        ]

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        return {
            "namespace": self.pod.namespace,
            "name": self.pod.name,
            "node": self.node or None,
            "admitted": True if self.on_node.aligned is False else self.on_node.admits,
            **({} if self.on_node.aligned is None else {"aligned": self.on_node.aligned}),
            "explanation": list(self.on_node.lines),
            "totalsChecked": self.totals_checked,
            **self.on_node.refusal,
            **({"waiting": self.wait.record()} if self.wait != NO_WAIT else {}),
            **({"claims": claim_records(self.claims.devices)} if self.claims.devices else {}),
            "nodes": [
                *(
                    {"node": one.node, "admits": True, "place": one.place, **self._claims_record(one.node)}
                    for one in self.diagnosis.candidates
                ),
                *(
                    {
                        "node": one.node,
                        "admits": None if one.reason == UNKNOWN else False,
                        "reason": one.reason,
                        "explanation": self.diagnosis.explanation(one),
                    }
                    for one in self.diagnosis.rejected
                ),
            ],
            "relaunches": [
                {
                    "name": relaunch.name,
                    "refusedBy": relaunch.refused_by,
                    "reason": relaunch.reason,
                    "step": relaunch.step.value,
                    "newPod": relaunch.new_name or None,
                }
                for relaunch in self.relaunches
            ],
        }

    def _claims_record(self, node: str) -> dict[str, Any]:
        answer = self.by_claims.get(node)
        return {"claims": {"sharing": answer.sharing.value, "explanation": answer.words}} if answer else {}


def _elsewhere(answer: Answer, most: int | None, most_rejected: int | None, *, is_wide: bool) -> Iterator[str]:
    """What the other nodes say: of at most ``most`` that would admit the pod, and ``most_rejected`` that would not.

    For a pod that waits the latter are a table, and ``is_wide`` has all sentences too.
    """
    others = [candidate for candidate in answer.diagnosis.candidates if candidate.node != answer.node]
    rejected = [rejected for rejected in answer.diagnosis.rejected if rejected.node != answer.node]
    if not answer.nodes_known:
        yield "which nodes would admit it is not known, as you may not read what they publish"
        return
    where, other = ("elsewhere: ", "other ") if answer.node else ("", "")
    having = [candidate for candidate in others if can_have(answer.by_claims.get(candidate.node))]
    if others:
        none = f"no {other}node that would admit it has the devices of its claims"
        shown = ", ".join(candidate.place for candidate in having[:most])
        yield f"{where}{f'{shown} would admit it now' if having else none}"
        yield from (f"  {line}" for line in _claim_lines(answer, [candidate.node for candidate in others[:most]]))
    elif not rejected:
        yield f"{where}there is no {other}node"
    elif any(one.reason == UNKNOWN for one in rejected):
        yield f"{where}no {other}node is known to admit it now"
    else:
        yield f"{where}no {other}node would admit it now"
    if answer.wait.rows:
        yield from (f"  {line}" for line in answer.wait.table(is_wide=is_wide))
        if not is_wide:
            yield from (f"  {answer.diagnosis.explanation(one)}" for one in answer.wait.told_of(rejected))
            return
    for one in rejected[:most_rejected]:
        yield f"  {answer.diagnosis.explanation(one)}"
    if most_rejected is not None and len(rejected) > most_rejected:
        yield f"  and {len(rejected) - most_rejected} more nodes, with -o wide"


def _claim_lines(answer: Answer, nodes: Sequence[str]) -> Iterator[str]:
    """What the nodes say of the pod's claims, in this order; of nothing that is known, that the scheduler decides."""
    known = [answer.by_claims[node] for node in nodes if node in answer.by_claims]
    yield from (each.words for each in known)
    # The node that the pod is on is not asked, and one that refused it stays the last.
    if not answer.node and (words := preference_words(answer.by_claims, len(answer.diagnosis.candidates))):
        yield words
    if answer.needs_claims and (not known or any(each.sharing is Sharing.UNKNOWN for each in known)):
        yield "which of these can have its claims is for the scheduler to say"


def _relaunched(relaunches: Iterable[Relaunch]) -> Iterator[str]:
    """A line for each relaunch, with the columns of ``kubectl get relaunches``."""
    for relaunch in relaunches:
        succeeded = relaunch.condition(SUCCEEDED)
        status = succeeded.reason if succeeded else relaunch.step.value
        new_pod = f", new pod {relaunch.new_name}" if relaunch.new_name else ""
        yield f"relaunch {relaunch.name}: refused by {relaunch.refused_by} ({relaunch.reason}), {status}{new_pod}"
