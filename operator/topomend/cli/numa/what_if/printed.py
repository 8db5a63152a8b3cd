"""What ``what-if`` prints: a line for each simulation, and which pods are refused or wait."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from topomend.cli.numa.cluster.pods.arrivals import Arrivals
from topomend.cli.output.console import echo, echo_answer, echo_data
from topomend.cli.output.formats import DOCUMENTS, echo_document
from topomend.cli.output.table import echo_table
from topomend.cli.output.terminal import BAD, GOOD, UNSURE, Style
from topomend.decide.simulation.what_if import Arrival, Outcome, Settings
from topomend.picture.form import PICTURES

MOST_NAMED = 3
"""How many pods, or nodes, a line for people names."""

_AS_IT_IS = "as it is"

_HEADING = ("POLICY", "SCOPE", "NODES", "ADMITTED", "REFUSED", "ELSEWHERE", "WAITING", "ALIGNED", "TOGETHER", "REASONS")


@dataclass(frozen=True)
class Answer:
    """What becomes of the pods with these settings, and so many nodes more than there are."""

    settings: Settings
    outcome: Outcome
    added: int = 0

    @property
    def elsewhere(self) -> int:
        """How many refused pods another node would admit."""
        return sum(bool(refused.elsewhere) for refused in self.outcome.refused)

    @property
    def reasons(self) -> Counter[str]:
        """How many pods are refused, by the kubelet's reason."""
        return Counter(refused.reason for refused in self.outcome.refused)

    @property
    def label(self) -> str:
        """The settings in words."""
        settings = self.settings
        scope = f"scope {settings.scope}" if settings.scope else ""
        added = f"{self.added} more node{'' if self.added == 1 else 's'}" if self.added else ""
        return ", ".join(filter(None, (settings.policy, scope, added))) or _AS_IT_IS

    @property
    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        settings, outcome = self.settings, self.outcome
        counts = outcome.nodes, outcome.admitted, len(outcome.refused), self.elsewhere, len(outcome.waiting)
        return (
            settings.policy or _AS_IT_IS,
            settings.scope or _AS_IT_IS,
            *map(str, counts),
            f"{outcome.aligned} of {outcome.exclusive}",
            f"{outcome.together} of {outcome.exclusive}",
            ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common()) or "-",
        )

    @property
    def styles(self) -> dict[str, Style]:
        """Those of the cells on a terminal, by their headings."""
        outcome = self.outcome
        return {
            "REFUSED": BAD if outcome.refused else GOOD,
            "WAITING": UNSURE if outcome.waiting else GOOD,
            "ALIGNED": _style_of_all(outcome.aligned, outcome.exclusive),
            "TOGETHER": _style_of_all(outcome.together, outcome.exclusive),
        }

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        outcome = self.outcome
        return {
            "policy": self.settings.policy,
            "scope": self.settings.scope,
            "addedNodes": self.added,
            "nodes": outcome.nodes,
            "admitted": outcome.admitted,
            "refused": len(outcome.refused),
            "elsewhere": self.elsewhere,
            "waiting": len(outcome.waiting),
            "exclusive": outcome.exclusive,
            "aligned": outcome.aligned,
            "together": outcome.together,
            "reasons": [{"reason": reason, "pods": count} for reason, count in self.reasons.most_common()],
            "refusedPods": [
                {
                    **_named(refused.arrival),
                    "node": refused.arrival.node,
                    "reason": refused.reason,
                    "elsewhere": refused.elsewhere,
                }
                for refused in outcome.refused
            ],
            "waitingPods": [_named(arrival) for arrival in outcome.waiting],
            "notStarted": [{"node": node, "error": error} for node, error in outcome.not_started.items()],
        }


def _style_of_all(number: int, of_all: int) -> Style:
    return GOOD if number == of_all else UNSURE


def echo_answers(answers: Sequence[Answer], arrivals: Arrivals, unknown: Sequence[str], output: str) -> None:
    """Print the answers, and what is left out of all of them. ``unknown`` are the nodes that could not be asked."""
    if output in DOCUMENTS:
        document = {
            "pods": len(arrivals.pods),
            "outcomes": [answer.record() for answer in answers],
            "leftOut": [asdict(left_out) for left_out in arrivals.left_out],
            "unknownNodes": list(unknown),
        }
        echo_document(document, output)
        return
    if output in PICTURES:
        echo_data(drawn(answers, arrivals, unknown, output))
        return
    echo_table([_HEADING, *(answer.cells for answer in answers)], [answer.styles for answer in answers])
    echo_answer(line for answer in answers for line in _lines(answer))
    for line in _not_asked(arrivals, unknown):
        echo(line, err=True)


def _not_asked(arrivals: Arrivals, unknown: Sequence[str]) -> Iterator[str]:
    """What is left out of all answers."""
    if arrivals.left_out:
        named = [f"{each.namespace}/{each.name} ({each.why})" for each in arrivals.left_out]
        yield f"{len(named)} pod{_s(named)} left out: {_first(named)}"
    if unknown:
        yield f"the state of {len(unknown)} node{_s(unknown)} is unknown: {_first(unknown)}"


def drawn(answers: Sequence[Answer], arrivals: Arrivals, unknown: Sequence[str], output: str) -> str:
    """The picture of the answers, with every pod that is refused or waits in a table."""
    # The drawings are loaded where one is asked for.
    from topomend.picture import simulations  # noqa: PLC0415
    from topomend.picture.drawing import page  # noqa: PLC0415
    from topomend.picture.drawing.document import Table  # noqa: PLC0415

    pods = [
        *(
            (each.label, _shown(one.arrival), one.arrival.node, one.reason, one.elsewhere or "-")
            for each in answers
            for one in each.outcome.refused
        ),
        *((each.label, _shown(one), "-", "waits", "-") for each in answers for one in each.outcome.waiting),
    ]
    tables = [Table("Simulations", _HEADING, [answer.cells for answer in answers])]
    if pods:
        tables.append(Table("Pods that are refused or wait", ("Settings", "Pod", "Node", "Why", "Elsewhere"), pods))
    words = [line for answer in answers for line in _lines(answer)]
    drawings = [simulations.Simulation(each.label, each.outcome, each.elsewhere) for each in answers]
    return page.written(simulations.picture_of(drawings, [*words, *_not_asked(arrivals, unknown)], tables), output)


def _lines(answer: Answer) -> Iterator[str]:
    """Which pods are refused or wait, and which kubelets would not start."""
    outcome = answer.outcome
    if refused := [f"{_shown(each.arrival)} on {each.arrival.node}" for each in outcome.refused]:
        yield f"{answer.label}: refused: {_first(refused)}"
    if waiting := [_shown(arrival) for arrival in outcome.waiting]:
        yield f"{answer.label}: waiting: {_first(waiting)}"
    for error, count in Counter(outcome.not_started.values()).items():
        nodes = [node for node, why in outcome.not_started.items() if why == error]
        yield f"{answer.label}: {count} kubelet{_s(nodes)} would not start ({_first(nodes)}): {error}"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _s(several: Sequence[Any]) -> str:
    return "" if len(several) == 1 else "s"


def _shown(arrival: Arrival) -> str:
    return f"{arrival.pod.namespace}/{arrival.pod.name}"


def _named(arrival: Arrival) -> dict[str, str]:
    return {"namespace": arrival.pod.namespace, "name": arrival.pod.name}
