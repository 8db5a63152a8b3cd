"""The metric of each pool's fragmentation: the share of what is free that the pods that typically come cannot use.

Typical pods of a pool are those that hold something on its nodes, and those that wait for a node and may go there. They
are counted anew each MIX_SECONDS. A scrape asks nodes that have changed, and all nodes about kinds that are new, for at
most ASKING_SECONDS of work; the others keep their answers, and nodes that were not asked yet are left out. Owns what is
remembered. Leaves the number to ``decide.fragmentation``, the kinds to ``decide.typical_pods`` and pools to
``model.node_pool``.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.pools.fragmentation import NodeAnswers, Questions, counts, fragmentation_of
from topomend.decide.pools.typical_pods import (
    NODES_TRIED,
    Kinds,
    Mix,
    kinds_held,
    kinds_waiting,
    merged,
    mix_of,
    of_each_namespace,
)
from topomend.model.nodes.node_pool import pools_of
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.reconcile.metrics.pools import MAX_RESOURCES, Room
from topomend.replay.effort import Effort, Overspent, Shares

MIX_SECONDS = 60.0
"""How long a mix is used before pods are counted anew, unless some pool has none. That takes 0.1 s on 1,000 nodes."""

ASKING_SECONDS = 0.2
"""How long a scrape works on nodes. On 1,000 nodes the first seven take 1.0 s together, later ones 0.03 s."""

HASTE = 10
"""How many times less a node may take for a metric than for a decision."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Read:
    """What is remembered of a node in this ``room``. ``answers`` None: it cannot be asked, or it takes too long."""

    room: Room
    kinds: Kinds
    answers: NodeAnswers | None


class Fragmentation(Collector):
    """The figures of an operator that acts; any other one shows none, because its snapshot lacks assumed pods.

    Several threads may scrape; they take turns.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], leads: Callable[[], bool]) -> None:
        self._snapshot, self._leads = snapshot, leads
        self._known: dict[str, _Read] = {}  # those first that were read longest ago
        self._mixes: Mapping[str, Mix] = {}
        self._counted = float("-inf")
        self._lock = threading.Lock()

    def describe(self) -> list[GaugeMetricFamily]:
        """The metric without samples, so that the registry reserves its name."""
        return [
            GaugeMetricFamily(
                "topomend_operator_pool_fragmentation_ratio",
                "The share of what is free that typical pods cannot use, by pool and resource, from 0 to 1; absent "
                "where nothing is free or no typical pod asks for it.",
                labels=("pool", "resource"),
            )
        ]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The figures now (prometheus_client.Collector)."""
        [family] = self.describe()
        if self._leads():
            with self._lock:
                for labels, share in self._shown():
                    family.add_metric(labels, share)
        return [family]

    def _shown(self) -> Sequence[tuple[tuple[str, str], float]]:
        """The figures; none where one of the pods that wait cannot be counted: an error would fail the whole scrape."""
        try:
            return list(self._shares(self._snapshot()))
        except Exception as error:  # noqa: BLE001  whatever one pod is, all other metrics are shown
            _log.error("the fragmentation is not shown: unexpected: %r", error)
            _log.debug("where it happened", exc_info=True)
            return ()

    def _shares(self, snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], float]]:
        pools = {node: pool for node, pool in pools_of(snapshot.nodes.values()).items() if counts(snapshot, node)}
        effort, began = Shares(_hasty), time.thread_time()
        questions = {pool: Questions(mix, effort) for pool, mix in self._mixes.items()}
        self._read_changed(snapshot, pools, questions, effort, began + ASKING_SECONDS / 2)
        if time.monotonic() - self._counted >= MIX_SECONDS:
            self._count(snapshot, pools)
            questions = {pool: Questions(mix, effort) for pool, mix in self._mixes.items()}
        self._ask_further(snapshot, pools, questions, effort, began + ASKING_SECONDS)
        for pool, answers in sorted(self._answers_by_pool(pools).items()):
            figures = sorted(fragmentation_of(answers, self._mixes[pool]).items())[:MAX_RESOURCES]
            yield from (((pool, resource), figure.share) for resource, figure in figures if figure.share is not None)

    def _read_changed(
        self,
        snapshot: Snapshot,
        pools: Mapping[str, str],
        questions: Mapping[str, Questions],
        effort: Effort,
        until: float,
    ) -> None:
        """Read nodes that have changed; the others of them keep their old answers until it is their turn."""
        for name in self._known.keys() - pools.keys():
            del self._known[name]
        new = [name for name in pools if name not in self._known]
        changed = [name for name, known in self._known.items() if not known.room.is_of(snapshot.publications[name])]
        for name in (*new, *changed):
            if time.thread_time() > until:
                return
            publication, asked = snapshot.publications[name], questions.get(pools[name])
            answers = _answers(publication, asked, {}, effort) if asked else NodeAnswers({})
            self._known.pop(name, None)  # to the end
            self._known[name] = _Read(Room(publication), _kinds_of(publication), answers)

    def _ask_further(
        self,
        snapshot: Snapshot,
        pools: Mapping[str, str],
        questions: Mapping[str, Questions],
        effort: Effort,
        until: float,
    ) -> None:
        """Ask the nodes about kinds that were not typical when they were read."""
        keys = {pool: mix.keys for pool, mix in self._mixes.items()}
        for name, known in self._known.items():
            pool = pools[name]
            if pool not in keys or known.answers is None or known.answers.admits.keys() == keys[pool]:
                continue
            if time.thread_time() > until:
                return
            answers = _answers(snapshot.publications[name], questions[pool], known.answers.admits, effort)
            self._known[name] = replace(known, answers=answers)

    def _answers_by_pool(self, pools: Mapping[str, str]) -> Mapping[str, Sequence[NodeAnswers]]:
        """The answers of those nodes that were asked about all of their pool's mix."""
        keys = {pool: mix.keys for pool, mix in self._mixes.items()}
        found: dict[str, list[NodeAnswers]] = {pool: [] for pool in keys}
        for name, known in self._known.items():
            pool = pools[name]
            if pool in keys and known.answers and known.answers.admits.keys() == keys[pool]:
                found[pool].append(known.answers)
        return found

    def _count(self, snapshot: Snapshot, pools: Mapping[str, str]) -> None:
        """Count the typical pods anew. Nodes that took too long get another chance."""
        nodes: dict[str, list[str]] = {}
        for name, pool in pools.items():
            nodes.setdefault(pool, []).append(name)
        self._mixes = self._mixes_of(snapshot, nodes)
        is_complete = len(self._known) == len(pools) and all(mix.pods for mix in self._mixes.values())
        if is_complete:  # otherwise the next scrape counts more of them
            self._counted = time.monotonic()
            for name, known in self._known.items():
                if known.answers is None:
                    self._known[name] = replace(known, answers=NodeAnswers({}))

    def _mixes_of(self, snapshot: Snapshot, nodes: Mapping[str, Sequence[str]]) -> Mapping[str, Mix]:
        waiting = of_each_namespace(_waiting(snapshot))
        return {
            pool: mix_of(
                merged(
                    (
                        *(self._known[name].kinds for name in names if name in self._known),
                        kinds_waiting(waiting, [snapshot.nodes[name] for name in names[:NODES_TRIED]]),
                    )
                )
            )
            for pool, names in nodes.items()
        }


def _hasty() -> float:
    """A clock that runs fast: a node gets a part of the time that it has for a decision."""
    return time.thread_time() * HASTE


def _kinds_of(publication: Publication) -> Kinds:
    try:
        return kinds_held(publication.remaining)
    except Exception as error:  # noqa: BLE001  whatever one node has published, the others are shown
        _log.error("the pods of %s are no typical ones: unexpected: %r", publication.state.name, error)
        _log.debug("where it happened", exc_info=True)
        return {}


def _answers(
    publication: Publication, questions: Questions, known: Mapping[Hashable, bool], effort: Effort
) -> NodeAnswers | None:
    """A node's answers; None of one whose replay takes too long."""
    try:
        return questions.ask(publication.state_with_assumed(effort), known)
    except Overspent:
        return None
    except Exception as error:  # noqa: BLE001  whatever one node has published, the others are shown
        _log.error("%s is left out of the fragmentation: unexpected: %r", publication.state.name, error)
        _log.debug("where it happened", exc_info=True)
        return None


def _waiting(snapshot: Snapshot) -> Iterator[tuple[Pod, Placement]]:
    """The pods that wait for a node: gated, or refused and not running again."""
    refused = (refusal.pod for refusal in snapshot.refused.values())
    return ((watched.pod, watched.placement) for watched in chain(snapshot.gated.values(), refused))
