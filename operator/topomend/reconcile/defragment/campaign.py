"""Moves pods for better places: a search finds the moves, and one after another is carried out, slowly.

Before each eviction the pods of the nodes that matter are listed once more and the move is proven once more, alone; its
target is held, and the pod's controller read once more; and no other pod is evicted until the next one runs or is given
up. Where a move does not bring what it promised, its pool rests, longer each time. Owns when a move begins and ends.
Leaves which moves are best to ``decide/defragment``, which pods may be moved to ``movable_pods``, when a pool rests to
``quiet``, and the nodes for the next pod to the workers, who ask ``move_under_way``.

Nothing is remembered beyond a restart: a pod that came less than an hour ago is not moved, and whoever begins to lead
waits first.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from topomend.alignment.requested import aligned_numa_nodes
from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import PodAssumed, PodForgotten
from topomend.cache.snapshot import Snapshot
from topomend.decide.defragment.candidates import kinds_now
from topomend.decide.defragment.movable import OWNER_CHANGES, WORDS
from topomend.decide.defragment.moves import Defragmented, Limits, Move
from topomend.decide.defragment.search import defragment
from topomend.decide.queue.order import Reservation
from topomend.kube.errors import APIError, Conflict, Forbidden, NotFound, Refused, ServerFailed, Unanswered
from topomend.model.pods.evictable_pod import EvictablePod
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.collaborators import Collaborators
from topomend.reconcile.defragment.movable_pods import LEAST_AGE_SECONDS, Found, MovablePods
from topomend.reconcile.defragment.quiet import Quiet
from topomend.reconcile.metrics.pods import ELSEWHERE, KEPT, LOST, MOVED
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.object_faults import concerns_all
from topomend.reconcile.optional_right import OptionalRight
from topomend.reconcile.placement.move_under_way import MoveUnderWay, UnderWay, stand_in_of
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import is_unchanged
from topomend.relaunch import pod_requests
from topomend.replay.effort import Effort, TurnOver
from topomend.runtime.backoff import Exponential
from topomend.wire.document import MalformedObject

AGAIN_SECONDS = 60.0
"""When to look again after a move that could not begin, and while something else is going on."""

KEPT_SECONDS = 600.0
"""How long a pod is left alone that the API server kept, or whose move was not proven the second time."""

TURN_SECONDS, SEARCH_SECONDS = 20.0, 300.0
"""How long a search may work, and how long it may take beside all that the operator does meanwhile."""

COMES_SECONDS, RUNS_SECONDS = 120.0, 900.0
"""How long after the moved pod's grace period its next one has to come, and to run: it may pull an image."""

PLACED_SECONDS = 10.0
"""How long the next pod waits for one of its nodes before it may go to any: its place was taken by a pod that topomend
does not see."""

PUBLISHED_SECONDS = 60.0
"""How long the next pod may run before its node's agent publishes it."""

HOLD_SECONDS = 10.0
"""How often the place is held anew: an assumption ends by itself."""

RESTS = Exponential(3600.0, 86_400.0)
"""How long a pool rests after moves in a row that did not bring what they promised."""

MAX_ENTRIES = 10_000

_RIGHT = {"verb": "list", "group": "apps", "version": "v1", "resource": "replicasets"}
"""What only the ClusterRole of the component gives: preemption has the right to evict too."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A move that was proven on this snapshot."""

    move: Move
    pod: EvictablePod
    decided_on: Snapshot


class Campaign:
    """For one thread, but for ``take_over``.

    ``count`` has the totals of the node of this name counted anew. ``preempting``: whether places are held for which
    pods were evicted. ``reserved``: the reservations for pods that wait for others to end. ``now``: the time of day.
    """

    def __init__(  # noqa: PLR0913  what it decides on
        self,
        parts: Collaborators,
        limits: NamespaceLimits,
        settings: Settings,
        move: MoveUnderWay,
        *,
        count: Callable[[str], None],
        preempting: Callable[[], bool],
        reserved: Callable[[], Sequence[Reservation]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._store, self._clock = parts.client, parts.store, parts.clock
        self._announcer, self._metrics = parts.announcer, parts.metrics
        self._settings, self._move, self._count, self._reserved = settings, move, count, reserved
        self._pods = MovablePods(
            parts.client, parts.store, limits, parts.volumes, settings.defragment_priority, now=now
        )
        self._quiet = Quiet(parts.store, preempting, parts.clock)
        self._resting: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._failures: dict[str, int] = {}
        self._due, self._moves_done, self._held_at = self._clock() + self._distance, 0, 0.0
        self._running_since: float | None = None
        self._takes_over = False
        self._right = OptionalRight(
            parts.client,
            _RIGHT,
            log=_log,
            without="no pod is moved; install the component defragment",
            clock=parts.clock,
        )

    @property
    def _distance(self) -> float:
        """Seconds between two moves."""
        return 3600.0 / self._settings.defragment_rate

    def take_over(self) -> None:
        """Another operator has led since, and may have moved a pod a moment ago."""
        self._takes_over = True

    def check(self) -> None:
        """Begin a move, or look what has become of the one under way. Raises APIError."""
        if not self._settings.defragment or self._right.is_missing:
            return
        if self._takes_over:
            self._begin_to_lead()
        self._quiet.look()
        with self._right.used():
            if self._move.current:
                self._follow(self._move.current)
            elif self._clock() >= self._due:
                self._due = self._clock() + AGAIN_SECONDS
                self._begin()

    def _begin_to_lead(self) -> None:
        self._takes_over, self._moves_done = False, 0
        self._due = self._clock() + self._distance
        self._move.end()
        self._quiet.forget()

    # Beginning

    def _begin(self) -> None:
        pools = self._quiet.pools()
        if not pools or (why := self._quiet.why_not()):
            _log.debug("no pod is moved now: %s", why if pools else "all pools of nodes rest")
            return
        found = self._pods.of_cluster(self._left_alone())
        try:
            _, answer = self._search(found, pools, self._settings.defragment_moves - self._moves_done)
            if not answer.moves:
                self._end_campaign()
                return
            first = answer.moves[0]
            chosen = self._proven_again(found.evictable[first.pod.pod.uid], first, found)
        except TurnOver:
            _log.warning("no pod is moved: the search takes more than %.0f s of work", TURN_SECONDS)
            self._end_campaign()
            return
        if chosen is None:
            self._leave_alone(first.pod.pod.uid)
        elif not self._quiet.why_not():
            self._evict(chosen)

    def _left_alone(self) -> Collection[str]:
        now = self._clock()
        return {uid for uid, until in self._resting.items() if now < until}

    def _leave_alone(self, uid: str, seconds: float = KEPT_SECONDS) -> None:
        self._resting[uid] = self._clock() + seconds

    def _end_campaign(self) -> None:
        self._moves_done = 0
        self._due = self._clock() + max(self._distance, self._settings.defragment_minutes * 60)

    def _search(self, found: Found, pools: Sequence[str], moves: int) -> tuple[Snapshot, Defragmented]:
        """The snapshot, and the best moves on it. Raises Overspent, TurnOver."""
        limits = Limits(moves, self._settings.defragment_threshold / 100)

        def work(effort: Effort) -> tuple[Snapshot, Defragmented]:
            snapshot = self._store.snapshot
            counted, pods = found.counted(snapshot, {reservation.node for reservation in self._reserved()})
            answer = defragment(
                counted, lambda nodes: kinds_now(snapshot, nodes), pods, limits, names=pools, effort=effort
            )
            return snapshot, answer

        return within_shares(self._store, work, TURN_SECONDS)

    def _proven_again(self, pod: EvictablePod, first: Move, before: Found) -> _Chosen | None:
        """The move of this pod, by the pods of its nodes as they are now; None where it is no good any more."""
        nodes = dict.fromkeys((first.origin.node, first.target.node, *first.others, *first.cordoned))
        for node in nodes:
            self._count(node)
        found = self._pods.again(pod, nodes, before)
        if found is None:
            return None
        snapshot, answer = self._search(found, (first.pool,), 1)
        if not answer.moves or not _names(answer.moves[0]) <= nodes.keys():
            return None
        return _Chosen(answer.moves[0], found.evictable[pod.pod.uid], snapshot)

    def _evict(self, chosen: _Chosen) -> None:
        """Hold the place and evict the pod, unless one of the nodes has changed since the move was proven."""
        move, pod, now = chosen.move, chosen.pod.pod, self._clock()
        snapshot = self._store.snapshot
        if not all(is_unchanged(chosen.decided_on, snapshot, name) for name in _names(move)):
            return
        stand_in = stand_in_of(move)
        if self._store.assume(stand_in, (move.target.node,), chosen.decided_on, now):
            return
        comes_by = now + chosen.pod.grace_seconds + COMES_SECONDS
        under_way = UnderWay(move, pod, stand_in, comes_by, comes_by + RUNS_SECONDS)
        self._move.begin(under_way)
        self._held_at, self._running_since = now, None
        if not self._may_still_go(under_way, chosen.pod):
            return
        try:
            self._client.evict(pod.name, pod.namespace, uid=pod.uid)
        except (Unanswered, ServerFailed):
            self._due = self._clock() + self._distance  # it may be evicted: that shows
            raise
        except (NotFound, Conflict):
            self._give_up(under_way)
            return
        except APIError as error:
            self._give_up(under_way)
            self._keep(pod, error)
            return
        self._due = self._clock() + self._distance
        name = f"{pod.namespace}/{pod.name}"
        _log.info("%s was evicted from %s, to come to %s", name, move.origin.node, move.target.node)
        self._announcer.moves(pod, move)

    def _may_still_go(self, under_way: UnderWay, pod: EvictablePod) -> bool:
        """Whether its controller still has all of its pods and makes none, now that the place is held. Raises APIError.

        The proof took time, and to a controller that is scaled up the place would be as good for another pod.
        """
        try:
            why = self._pods.why_stays(pod)
        except BaseException:
            self._give_up(under_way)
            raise
        if not why and self._move.evict(self._store.snapshot.gated.values()):
            return True
        self._give_up(under_way)
        self._stays(under_way.pod, WORDS[why or OWNER_CHANGES])
        return False

    def _keep(self, pod: WatchedPod, error: APIError) -> None:
        """The API server does not let the pod go now: that concerns this pod alone, unless it concerns all."""
        if not isinstance(error, Refused) or concerns_all(error):
            raise error
        if isinstance(error, Forbidden) and self._right.is_denied_by(error):
            raise error
        self._stays(pod, f"{error}")

    def _stays(self, pod: WatchedPod, why: str) -> None:
        self._leave_alone(pod.uid)
        self._metrics.move_ended(KEPT)
        _log.info("%s/%s is not moved: %s", pod.namespace, pod.name, why)

    def _give_up(self, under_way: UnderWay) -> None:
        """The place is held no longer, and nobody is kept from any node."""
        self._move.end()
        self._store.apply(PodForgotten(under_way.stand_in.namespace, under_way.stand_in.name))

    # What becomes of it

    def _follow(self, under_way: UnderWay) -> None:
        """A pod that cannot be read, whoever made it so, keeps no move under way; nor does one refused for long."""
        now = self._clock()
        self._hold(under_way, now)
        try:
            self._look_after(under_way, now)
        except MalformedObject as error:
            self._fail(under_way, LOST, f"what became of it cannot be read: {error}")
        except Refused as error:
            if concerns_all(error) or now <= under_way.runs_by:
                raise
            self._fail(under_way, LOST, f"what became of it cannot be told: {error}")

    def _look_after(self, under_way: UnderWay, now: float) -> None:
        """Raises APIError, MalformedObject."""
        if under_way.next_pod is None:
            if now > under_way.comes_by:
                self._give_up_waiting(under_way)
            return
        name, uid = under_way.next_pod
        pod = pod_requests.read(self._client, under_way.pod.namespace, name)
        if pod is None or pod.uid != uid or pod.deleting:
            self._move.next_is_gone()
            return
        self._running_since = (self._running_since or now) if pod.phase == "Running" else None
        if pod.phase == "Failed":
            self._fail(under_way, LOST, f"its next pod {name} has failed")
        elif pod.phase == "Running":
            self._judge(under_way, pod, now)
        elif now > under_way.runs_by:
            self._fail(under_way, LOST, f"its next pod {name} does not run")
        elif pod.gates and now - self._gated_since(pod, now) > PLACED_SECONDS:
            self._move.let_go()
            self._store.apply(PodForgotten(under_way.stand_in.namespace, under_way.stand_in.name))

    def _give_up_waiting(self, under_way: UnderWay) -> None:
        """No next pod has come. Where it is not known whether the pod was evicted, it may be there still."""
        pod = pod_requests.read(self._client, under_way.pod.namespace, under_way.pod.name)
        if pod and pod.uid == under_way.pod.uid and not pod.deleting:
            self._leave_alone(pod.uid)
            self._metrics.move_ended(KEPT)
            self._give_up(under_way)
        else:
            self._fail(under_way, LOST, "no next pod came that waits for topomend")

    def _gated_since(self, pod: WatchedPod, now: float) -> float:
        return self._store.snapshot.gated_since.get((pod.namespace, pod.name), now)

    def _hold(self, under_way: UnderWay, now: float) -> None:
        """Hold the place anew until the next pod is assumed in it."""
        key = under_way.stand_in.namespace, under_way.stand_in.name
        if key in self._store.snapshot.assumed and now - self._held_at >= HOLD_SECONDS:
            self._held_at = now
            self._store.apply(PodAssumed(under_way.stand_in, (under_way.move.target.node,), now))

    def _judge(self, under_way: UnderWay, pod: WatchedPod, now: float) -> None:
        """The next pod runs: is it where it was told?"""
        move = under_way.move
        where = f"its next pod {pod.name} came to {pod.node}"
        if pod.node not in (move.target.node, *move.others):
            self._fail(under_way, ELSEWHERE, where)
            return
        publication = self._store.snapshot.publications.get(pod.node)
        if publication is None or (pod.namespace, pod.name) not in publication.shown:
            if now - (self._running_since or now) > PUBLISHED_SECONDS:
                self._fail(under_way, ELSEWHERE, f"{where}, whose agent does not publish it")
            return
        numa_nodes = aligned_numa_nodes(publication.state, pod.pod)
        if pod.node == move.target.node and numa_nodes != move.target.numa_nodes:
            self._fail(under_way, ELSEWHERE, f"{where}, to another NUMA node")
            return
        self._failures.pop(move.pool, None)
        self._announcer.moved(under_way.pod, move, pod.name, pod.node)
        self._end(under_way, MOVED)

    def _fail(self, under_way: UnderWay, result: str, why: str) -> None:
        """Have the pool rest, longer each time."""
        pool = under_way.move.pool
        failures = self._failures[pool] = self._failures.get(pool, 0) + 1
        self._quiet.rest(pool, RESTS.seconds(failures))
        self._announcer.not_as_told(under_way.pod, under_way.move, why, RESTS.seconds(failures))
        self._end(under_way, result)

    def _end(self, under_way: UnderWay, result: str) -> None:
        self._give_up(under_way)
        self._metrics.move_ended(result)
        if under_way.next_pod:  # the API server's clock may be another one than this machine's
            self._leave_alone(under_way.next_pod[1], LEAST_AGE_SECONDS)
        self._moves_done += 1
        if self._moves_done >= self._settings.defragment_moves:
            self._end_campaign()


def _names(move: Move) -> set[str]:
    """The nodes on which a move depends most: where the pod leaves, and where it may come to."""
    return {move.origin.node, move.target.node, *move.others}
