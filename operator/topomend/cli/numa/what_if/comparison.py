"""The question of ``what-if``: its flags, and the simulations that answer it.

Owns which settings and nodes are compared. Leaves each simulation to ``decide/simulation/what_if``.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.flags.kubelet_flags import TOPOLOGY_MANAGER_POLICIES, TOPOLOGY_MANAGER_SCOPES, read_choice
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.input.duration import read_duration
from topomend.cli.numa.cluster.pods.arrivals import Arrivals, LeftOut
from topomend.cli.numa.what_if.printed import MOST_NAMED, Answer, echo_answers
from topomend.cli.output.console import waiting
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.cli.output.formats import JSON, TABLE, YAML, output_option
from topomend.decide.simulation.history import what_if_since
from topomend.decide.simulation.what_if import Grown, Outcome, Settings, is_asked, what_if, with_added
from topomend.model.nodes.node_pool import pools_of

MOST_ADDED = 1_000
"""How many nodes may be added to a pool."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Question:
    """The ``settings`` to try, and how many nodes more each of ``pools`` has meanwhile.

    ``filename`` has the pods; empty for those of the cluster. ``since``: those of so long, in their time.
    """

    settings: Sequence[Settings]
    pools: Sequence[tuple[str, int]]
    filename: str
    since: timedelta | None
    output: str

    def answer(self, snapshot: Snapshot, arrivals: Arrivals) -> None:
        """Simulate and print. The settings and nodes as they are come first. Raises BadInput, CannotAsk."""
        if not any(is_asked(snapshot, name) for name in snapshot.nodes):
            raise CannotAsk(f"no node's state is known, so no kubelet can be asked: {_why_none(snapshot)}")
        arrivals = _on_known_nodes(snapshot, arrivals)
        grown = _grown(snapshot, arrivals, self.pools)
        progress = Progress(len(self.settings) + 1, len(self._asked(arrivals)))
        with waiting(progress.words):
            answers = [Answer(Settings(), self._simulated(progress, Grown(snapshot, (), ()), arrivals, Settings()))]
            answers += [
                Answer(settings, self._simulated(progress, grown, arrivals, settings), len(grown.names))
                for settings in self.settings
            ]
        unknown = [name for name in snapshot.nodes if not is_asked(snapshot, name)]
        echo_answers(answers, arrivals, unknown, self.output)

    def _asked(self, arrivals: Arrivals) -> Sequence[Any]:
        """The pods that are asked about."""
        return arrivals.pods if self.since is None else arrivals.stays

    def _simulated(self, progress: "Progress", grown: Grown, arrivals: Arrivals, settings: Settings) -> Outcome:
        progress.begin()
        if self.since is None:
            return what_if(grown.snapshot, arrivals.pods, settings, grown.own, progress.settle)
        return what_if_since(grown.snapshot, arrivals.stays, settings, grown.own, progress.settle)


@dataclass
class Progress:
    """How far the ``simulations`` are, of so many ``pods`` each: another thread asks for the words."""

    simulations: int
    pods: int
    _begun: int = 0
    _settled: int = 0

    def begin(self) -> None:
        """The next simulation begins."""
        self._begun, self._settled = self._begun + 1, 0

    def settle(self) -> None:
        """It is known what becomes of one more pod."""
        self._settled += 1

    def words(self) -> str:
        """``simulation 2 of 3: 40,000 of 100,000 pods``."""
        return f"simulation {self._begun} of {self.simulations}: {self._settled:,} of {self.pods:,} pods"


def question_options(verb: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a verb the flags of the question, and pass it as its argument ``question``. Raises BadInput."""

    @click.option(
        "--policy",
        metavar="POLICY,...",
        default="",
        help="none, best-effort, restricted, single-numa-node: one or several.",
    )
    @click.option(
        "--scope", metavar="SCOPE,...", default="", help="container, pod, or both. Default: each kubelet's own."
    )
    @click.option(
        "--add-nodes",
        "added",
        metavar="POOL=NUMBER",
        multiple=True,
        help="As if the pool had so many nodes more, each a copy of its first node with the pods of DaemonSets alone.",
    )
    @click.option(
        "-f",
        "--filename",
        metavar="FILE",
        default="",
        type=click.Path(),
        help="These pods and workloads in the place of the cluster's pods; - is stdin.",
    )
    @click.option(
        "--since",
        metavar="DURATION",
        default="",
        help="The pods of the last 24h, say, each from its beginning to its end.",
    )
    @output_option(TABLE, JSON, YAML, pictures=True)
    @wraps(verb)
    def asked(  # noqa: PLR0913  one for each flag
        *, policy: str, scope: str, added: tuple[str, ...], filename: str, since: str, output: str, **arguments: Any
    ) -> _Result:
        if since and filename:
            raise BadInput("--since is about the cluster's pods, -f about those of a file; give one of them")
        duration = read_duration("--since", since) if since else None
        question = Question(_variants(policy, scope, added), _pools(added), filename, duration, output)
        return verb(question=question, **arguments)

    return asked


def _variants(policy: str, scope: str, added: Sequence[str]) -> list[Settings]:
    """The settings to try. Raises BadInput."""
    if not (policy or scope or added):
        raise BadInput("say what is to be different: --policy POLICY,..., --scope SCOPE,... or --add-nodes POOL=NUMBER")
    policies = _several("--policy", policy, TOPOLOGY_MANAGER_POLICIES)
    scopes = _several("--scope", scope, TOPOLOGY_MANAGER_SCOPES)
    return list(dict.fromkeys(Settings(one, other) for one in policies for other in scopes))


def _several(flag: str, text: str, known: Sequence[str]) -> list[str]:
    return [read_choice(flag, each.strip(), known) for each in text.split(",")] if text else [""]


def _pools(added: Sequence[str]) -> list[tuple[str, int]]:
    """How many nodes are added to each pool. Raises BadInput."""
    pools = []
    for text in added:
        pool, _, digits = text.rpartition("=")
        number = int(digits) if re.fullmatch("[0-9]{1,4}", digits) else 0
        if not pool or not 1 <= number <= MOST_ADDED:
            raise BadInput(f"--add-nodes {text!r} is not POOL=NUMBER, such as gpu=3, of at most {MOST_ADDED} nodes")
        pools.append((pool, number))
    return pools


def _grown(snapshot: Snapshot, arrivals: Arrivals, pools: Sequence[tuple[str, int]]) -> Grown:
    """The cluster with the nodes that are added. Raises BadInput."""
    grown = Grown(snapshot, (), ())
    there = sorted(set(pools_of(snapshot.nodes.values()).values()))
    for pool, number in pools:
        if pool not in there:
            near = did_you_mean(pool, there) or f"; there are: {', '.join(there)}"
            raise BadInput(f"--add-nodes {pool}={number}: no node is of pool {pool}{near}")
        more = with_added(grown.snapshot, arrivals.pods, pool, number)
        if more is None:
            raise CannotAsk(f"pool {pool} has no node to copy: none is Ready, takes pods and has a known state")
        grown = Grown(more.snapshot, (*grown.names, *more.names), (*grown.own, *more.own))
    return grown


def _on_known_nodes(snapshot: Snapshot, arrivals: Arrivals) -> Arrivals:
    """The pods without those on nodes that cannot be asked."""
    known = [arrival for arrival in arrivals.pods if not arrival.node or is_asked(snapshot, arrival.node)]
    unknown = [arrival for arrival in arrivals.pods if arrival.node and not is_asked(snapshot, arrival.node)]
    left_out = [LeftOut(each.pod.namespace, each.pod.name, _why_unknown(snapshot, each.node)) for each in unknown]
    stays = [stay for stay in arrivals.stays if not stay.arrival.node or is_asked(snapshot, stay.arrival.node)]
    return Arrivals(known, [*arrivals.left_out, *left_out], stays)


def _why_none(snapshot: Snapshot) -> str:
    """Why the state of each node is unknown, of the first few."""
    why = [_why_unknown(snapshot, name) for name in sorted(snapshot.nodes)]
    more = [f"and {len(why) - MOST_NAMED} more nodes"] if len(why) > MOST_NAMED else []
    return "; ".join([*why[:MOST_NAMED], *more]) or "there is no node"


def _why_unknown(snapshot: Snapshot, node: str) -> str:
    why = snapshot.why_unknown(node) if node in snapshot.nodes else "there is no such node"
    return f"{node}: {why}"
