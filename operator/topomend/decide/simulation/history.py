"""What if kubelets had had another policy, or a pool more nodes, while pods came and ended: as ``what_if``, in time.

Each pod comes when it came, and runs for as long as it ran. One that its own node refuses, and one that never had a
node, goes to the best node that admits it, then or when a pod ends: as topomend relaunches and steers them. Owns the
order of comings and ends. Leaves each answer to ``what_if``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.node_status import Question, question_about
from topomend.decide.simulation.what_if import Arrival, Outcome, Refused, Run, Settings, Settled, outcome_of, unheard
from topomend.replay.fast_path.admission import PodShape

MOST_TRIED = 200
"""How many of the pods that wait are asked about at each end, those that began to wait first."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod that came at the time ``came`` and ended at ``ended``, in seconds; None: it has not ended."""

    arrival: Arrival
    came: float
    ended: float | None = None


def what_if_since(
    snapshot: Snapshot,
    stays: Iterable[Stay],
    settings: Settings,
    uncounted: Iterable[Arrival] = (),
    settled: Settled = unheard,
) -> Outcome:
    """What becomes of these pods. Each of those with a node has one that ``is_asked``; the rest as in ``what_if``.

    The pods of one time come in the order given. What happens after the last coming or end that was is left out. A pod
    counts as settled once it has come.
    """
    ordered = sorted(stays, key=lambda stay: stay.came)
    history = _History(Run(snapshot, settings))
    for arrival in uncounted:
        history.run.ask(arrival.node, arrival.pod, counted=False)
    for stay in ordered:
        history.pass_until(stay.came)
        history.come(stay)
        settled()
    history.pass_until(max((stay.ended or stay.came for stay in ordered), default=0.0))
    return history.outcome()


class _History:
    """The pods that have come so far. ``_ends`` is a heap of times, each with a number, a node and a pod."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._ends: list[tuple[float, int, str, Stay]] = []
        self._waiting: list[tuple[Stay, Question]] = []
        self._refused: dict[int, tuple[Stay, str]] = {}
        self._elsewhere: dict[int, str] = {}
        self._begun = 0

    def come(self, stay: Stay) -> None:
        """Have the pod come."""
        arrival = stay.arrival
        if arrival.node:
            reason = self.run.ask(arrival.node, arrival.pod)
            if not reason:
                self._begin(stay, arrival.node, stay.came)
                return
            self._refused[id(stay)] = stay, reason
            if arrival.of_each_node:
                return
        node = self.run.place(arrival)
        if node:
            self._begin_elsewhere(stay, node, stay.came)
        else:
            self._waiting.append((stay, question_about(arrival.pod, arrival.placement)))

    def pass_until(self, time: float) -> None:
        """Have all pods end that end by then, and those that wait begin in their places."""
        while self._ends and self._ends[0][0] <= time:
            now, _, node, stay = heappop(self._ends)
            self.run.end(node, stay.arrival.pod)
            self._begin_waiting(node, now)

    def outcome(self) -> Outcome:
        """What has become of the pods."""
        refused = [
            Refused(stay.arrival, reason, self._elsewhere.get(number, ""))
            for number, (stay, reason) in self._refused.items()
        ]
        waiting = [stay.arrival for stay, _ in self._waiting if id(stay) not in self._refused]
        return outcome_of(self.run, refused, waiting)

    def _begin_waiting(self, node: str, now: float) -> None:
        """Only this node has changed. Where it has no room for one pod, it has none for others of that kind."""
        left: list[tuple[Stay, Question]] = []
        hopeless: set[PodShape] = set()
        for stay, question in self._waiting[:MOST_TRIED]:
            if question.kind not in hopeless and self.run.place_on(node, question):
                self._begin_elsewhere(stay, node, now)
                continue
            hopeless.add(question.kind)
            left.append((stay, question))
        self._waiting[:MOST_TRIED] = left

    def _begin_elsewhere(self, stay: Stay, node: str, now: float) -> None:
        self._elsewhere[id(stay)] = node
        self._begin(stay, node, now)

    def _begin(self, stay: Stay, node: str, now: float) -> None:
        if stay.ended is not None:
            self._begun += 1
            heappush(self._ends, (now + stay.ended - stay.came, self._begun, node, stay))
