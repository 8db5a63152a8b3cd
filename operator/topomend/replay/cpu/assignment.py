"""Choose CPUs for a request: packed by best fit, or distributed evenly over NUMA nodes.

Source: pkg/kubelet/cm/cpumanager/cpu_assignment.go, with its quirks:

- A socket or a core counts as free if it has the machine's average number of CPUs free.
- A free element is taken with all its CPUs, also those that are not free.
- The distributed search reads combinations that later ones have overwritten in memory.

``replay/gates.py:NEXT`` has none of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest

from topomend.model.bitmask import CPUSet, members
from topomend.replay.cpu.topology import CPUTopology
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import KUBELET_WOULD_HANG, KubeletBreaks

MOST_COMBINATIONS = 200_000
"""The combinations of NUMA nodes after which replay gives up and reports that the kubelet hangs."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """The policy options that decide how CPUs are chosen.

    ``spread``: distribute-cpus-across-cores. ``uncore_cache``: prefer-align-cpus-by-uncorecache. ``group``: the number
    of CPUs that the distributed search takes at a time, None for packed. The others depend on the kubelet's version
    (``gates``). ``started_cores``: an odd request may take one thread of a cache's core. ``bounded``: the distributed
    search takes no more CPUs of a NUMA node than are free there. ``by_socket``: it prefers combinations on one socket.
    ``own_sizes``: a core or socket is free if all CPUs of its own are. ``over_cores``: ``spread`` takes a thread of
    every core of a socket first. ``whole_caches_first``: before parts of caches. ``apart``: no combination overwrites
    another. ``whole_groups``: a remainder is counted in groups. ``least_nodes``: the distributed search uses at least
    so many NUMA nodes, if it can.
    """

    spread: bool = False
    uncore_cache: bool = False
    group: int | None = None
    started_cores: bool = True
    bounded: bool = False
    by_socket: bool = False
    own_sizes: bool = False
    over_cores: bool = False
    whole_caches_first: bool = False
    apart: bool = False
    whole_groups: bool = False
    least_nodes: int = 0


@dataclass(frozen=True, slots=True)
class AssignmentError:
    """The CPUs cannot be chosen; ``text`` is the kubelet's error."""

    text: str


def take(
    topology: CPUTopology, free: CPUSet, count: int, strategy: Strategy, effort: Effort = UNLIMITED
) -> CPUSet | AssignmentError:
    """Choose ``count`` CPUs from ``free`` (policy_static.go:takeByTopology).

    Raises KubeletBreaks if the kubelet's search would not end.
    """
    if strategy.group is None or count % strategy.group:
        return _take_packed(topology, free, count, strategy)
    return _take_distributed(topology, free, count, strategy, effort)


class _Accumulator:
    """The CPUs taken so far (``result``), the remaining ``free`` ones, and the number still ``needed``.

    Source: cpuAccumulator, numaFirst, socketsFirst.
    """

    def __init__(self, topology: CPUTopology, free: CPUSet, count: int) -> None:
        self.topology = topology
        self.free = free & topology.cpus
        self.needed = count
        self.result = 0

    @property
    def satisfied(self) -> bool:
        return self.needed < 1

    @property
    def failed(self) -> bool:
        return self.needed > self.free.bit_count()

    def take(self, cpus: CPUSet) -> None:
        """Take ``cpus``. CPUs that were taken before reduce ``needed`` once more, as in the kubelet."""
        self.result |= cpus
        self.free &= ~self.result
        self.needed -= cpus.bit_count()

    def take_whole(self, elements: Mapping[int, CPUSet], order: Iterable[int], is_free: Callable[[int], bool]) -> None:
        """Take the elements of ``order`` that are free on entry, each unless it is larger than what is still needed."""
        for number in [number for number in order if is_free(number)]:
            if self.needed >= elements[number].bit_count():
                self.take(elements[number])

    # Orders (cpuAccumulator.sort): elements with a free CPU, those with the fewest free CPUs first, equals by id.

    def _sorted(self, elements: Mapping[int, CPUSet], numbers: Iterable[int], within: CPUSet = -1) -> list[int]:
        free = self.free
        keyed = [
            ((elements[number] & free).bit_count(), number) for number in numbers if elements[number] & within & free
        ]
        keyed.sort()
        return [number for _, number in keyed]

    def numa_nodes(self) -> list[int]:
        topology = self.topology
        # Case: NUMA nodes contain sockets, or are the sockets. They are sorted by themselves (numaFirst).
        if topology.numa_first:
            return self._sorted(topology.numa_nodes, topology.numa_nodes)
        # Case: sockets contain NUMA nodes. Those of one socket stay together, socket by socket (socketsFirst).
        return [
            node
            for socket in self._sorted(topology.sockets, topology.sockets)
            for node in self._sorted(topology.numa_nodes, topology.numa_nodes, topology.sockets[socket])
        ]

    def sockets(self) -> list[int]:
        topology = self.topology
        # The same two cases the other way round: what contains the other is sorted by itself.
        if not topology.numa_first:
            return self._sorted(topology.sockets, topology.sockets)
        return [
            socket
            for node in self._sorted(topology.numa_nodes, topology.numa_nodes)
            for socket in self._sorted(topology.sockets, topology.sockets, topology.numa_nodes[node])
        ]

    def uncore_caches(self) -> list[int]:
        topology = self.topology
        return [
            cache
            for node in self.numa_nodes()
            for cache in self._sorted(topology.uncore_caches, topology.uncore_caches, topology.numa_nodes[node])
        ]

    def cores(self) -> list[int]:
        topology = self.topology
        # Cores are listed by the inner of the two, in the order of that.
        if topology.numa_first:
            groups = [topology.cores_of_socket[socket] for socket in self.sockets()]
        else:
            groups = [topology.cores_of_numa_node[node] for node in self.numa_nodes()]
        return [core for group in groups for core in self._sorted(topology.cores, group)]

    def single_cpus(self, strategy: Strategy) -> Iterator[int]:
        topology = self.topology
        # Case distribute-cpus-across-cores: by id within each socket, whatever core they are of; or one of each core of
        # the socket in turn, cores with the fewest free CPUs first.
        # Otherwise core by core, those with the fewest free CPUs first, so that whole cores stay whole.
        if strategy.spread and strategy.over_cores:
            for socket in self.sockets():
                yield from self._one_of_each_core(socket)
            return
        if strategy.spread:
            groups = [topology.sockets[socket] & self.free for socket in self.sockets()]
        else:
            groups = [topology.cores[core] & self.free for core in self.cores()]
        for group in groups:
            yield from members(group)

    def _one_of_each_core(self, socket: int) -> Iterator[int]:
        cores = self.topology.cores
        order = self._sorted(cores, self.topology.cores_of_socket[socket])
        for turn in zip_longest(*(members(cores[core] & self.free) for core in order)):
            yield from (cpu for cpu in turn if cpu is not None)

    # Steps. Each takes as many elements as the request still needs.

    def take_full_numa_nodes(self) -> None:
        nodes = self.topology.numa_nodes
        self.take_whole(nodes, self.numa_nodes(), self._is_free(nodes))

    def take_full_sockets(self, *, own_sizes: bool) -> None:
        sockets, usual = self.topology.sockets, None if own_sizes else self.topology.cpus_per_socket
        self.take_whole(sockets, self.sockets(), self._is_free(sockets, usual))

    def take_full_cores(self, *, own_sizes: bool) -> None:
        cores, usual = self.topology.cores, None if own_sizes else self.topology.cpus_per_core
        self.take_whole(cores, self.cores(), self._is_free(cores, usual))

    def _is_free(self, elements: Mapping[int, CPUSet], usual: int | None = None) -> Callable[[int], bool]:
        """Whether the ``usual`` number of an element's CPUs is free; without one, whether all of them are."""
        if usual is None:
            return lambda number: not elements[number] & ~self.free
        return lambda number: (elements[number] & self.free).bit_count() == usual

    def take_uncore_caches(self, *, started_cores: bool) -> None:
        """Take whole L3 caches, then the rest from one cache that has enough free cores (takeUncoreCache)."""
        caches = self.topology.uncore_caches
        for cache in self.uncore_caches():
            # Case: the rest fills a whole cache. All that are wholly free are taken first, in the order of now.
            if self.needed >= self.topology.cpus_per_uncore_cache:
                self.take_whole(caches, self.uncore_caches(), self._is_free(caches))
            if self.satisfied:
                return
            # Case: less is left. This cache gives it all or nothing: a request is not split over a second cache here.
            self._take_part_of(cache, started_cores=started_cores)
            if self.satisfied:
                return

    def take_whole_caches_first(self) -> None:
        """Take wholly free L3 caches, each unless it is larger than the rest; then the rest from one cache.

        Looks at each cache once, in the order on entry (takeUncoreCache of the next release).
        """
        caches, order = self.topology.uncore_caches, list(dict.fromkeys(self.uncore_caches()))
        self.take_whole(caches, order, self._is_free(caches))
        for cache in order:
            if self.satisfied:
                return
            self._take_part_of(cache, started_cores=True)

    def _take_part_of(self, cache: int, *, started_cores: bool) -> None:
        topology, per_core = self.topology, self.topology.cpus_per_core
        local = topology.uncore_caches[cache]
        cores = [core for core in topology.cores_of_uncore_cache[cache] if topology.cores[core] & local & self.free]
        cpus = 0
        # An odd rest takes one core more, of which one thread stays free, from 1.34 on; before, it found no part here.
        for core in cores[: -(-self.needed // per_core) if started_cores else self.needed // per_core]:
            cpus |= topology.cores[core] & self.free
        if started_cores and self.needed % 2 and per_core > 1 and cpus.bit_count() > self.needed:
            cpus ^= 1 << (cpus.bit_length() - 1)
        if cpus.bit_count() == self.needed:
            self.take(cpus)

    def take_single_cpus(self, strategy: Strategy) -> None:
        for cpu in list(self.single_cpus(strategy)):
            self.take(1 << cpu)
            if self.satisfied:
                return


def _not_enough(count: int, free: CPUSet) -> AssignmentError:
    return AssignmentError(
        f"not enough cpus available to satisfy request: requested={count}, available={free.bit_count()}"
    )


def _take_packed(topology: CPUTopology, free: CPUSet, count: int, strategy: Strategy) -> CPUSet | AssignmentError:
    """Topology-aware best fit (takeByTopologyNUMAPacked): take these elements in order until the request is met.

    1. Whole NUMA nodes and whole sockets, the larger of the two first.
    2. With prefer-align-cpus-by-uncorecache: whole L3 caches, then part of one.
    3. Whole cores, unless distribute-cpus-across-cores is on.
    4. Single CPUs, starting with the cores that have the fewest free CPUs.
    """
    acc = _Accumulator(topology, free, count)
    if acc.satisfied:
        return 0
    if acc.failed:
        return _not_enough(count, free)
    # Step 1. A NUMA node is at least as large as a socket where there are at least as many sockets as NUMA nodes.
    own_sizes = strategy.own_sizes
    steps: list[Callable[[], None]] = [
        acc.take_full_numa_nodes,
        lambda: acc.take_full_sockets(own_sizes=own_sizes),
    ]
    if not topology.numa_first:
        steps.reverse()
    # Step 2.
    if strategy.uncore_cache and strategy.whole_caches_first:
        steps.append(acc.take_whole_caches_first)
    elif strategy.uncore_cache:
        steps.append(lambda: acc.take_uncore_caches(started_cores=strategy.started_cores))
    # Step 3.
    if not strategy.spread:
        steps.append(lambda: acc.take_full_cores(own_sizes=own_sizes))
    # Step 4.
    steps.append(lambda: acc.take_single_cpus(strategy))
    for step in steps:
        step()
        if acc.satisfied:
            return acc.result
    return AssignmentError("failed to allocate cpus")


# The distributed search (KEP-2902) spreads a request evenly over the fewest NUMA nodes that can take it. Among the
# combinations of that many NUMA nodes it chooses the one that leaves the free CPUs of the machine most balanced.


@dataclass
class _Combination:
    """A Go slice: the first ``length`` entries of an array that other slices may share and overwrite."""

    array: list[int]
    length: int

    def __iter__(self) -> Iterator[int]:
        return iter(self.array[: self.length])

    def append(self, number: int) -> "_Combination":
        """Go's append: in place while the array has capacity, otherwise into a copy of twice the capacity."""
        if self.length < len(self.array):
            self.array[self.length] = number
            return _Combination(self.array, self.length + 1)
        room = max(1, 2 * len(self.array))
        grown = [*self.array, number, *([0] * (room - self.length - 1))]
        return _Combination(grown, self.length + 1)


def _combinations(
    numbers: Sequence[int], size: int, start: int = 0, chosen: _Combination | None = None
) -> Iterator[_Combination]:
    """All combinations in the kubelet's order (iterateCombinations).

    A combination is valid only until the next one is requested. The kubelet's slices of 4, 6 and 7 members share an
    array, so later combinations overwrite earlier ones, and the kubelet may use such an overwritten one.
    """
    chosen = chosen or _Combination([], 0)
    if size == 0:
        yield chosen
        return
    for index in range(start, len(numbers) - size + 1):
        yield from _combinations(numbers, size - 1, index + 1, chosen.append(numbers[index]))


def _separate(numbers: Sequence[int], size: int) -> Iterator[_Combination]:
    """The same combinations in the same order, each in an array of its own."""
    for chosen in combinations(numbers, size):
        yield _Combination(list(chosen), size)


def _take_distributed(
    topology: CPUTopology, free: CPUSet, count: int, strategy: Strategy, effort: Effort
) -> CPUSet | AssignmentError:
    """Spread the request evenly over NUMA nodes (takeByTopologyNUMADistributed).

    1. Try the fewest NUMA nodes first.
    2. Choose the most balanced combination of that many NUMA nodes.
    3. Take the even share from each of them, then the remainder.
    4. Without any combination fall back to packed.
    """
    packed = Strategy(spread=strategy.spread, own_sizes=strategy.own_sizes, over_cores=strategy.over_cores)
    acc = _Accumulator(topology, free, count)
    if acc.satisfied:
        return 0
    if acc.failed:
        return _not_enough(count, free)
    search = _DistributedSearch(acc, strategy, count, effort)
    for size in search.sizes():
        best = search.best(size)
        if best is not None:
            even = search.even_share([search.free[node] for node in best.combination], bounded=strategy.bounded)
            return _hand_out(acc, even, search, best, packed)
    return _take_packed(topology, free, count, packed)


@dataclass(frozen=True, slots=True)
class _Score:
    """The score of a combination.

    ``balance`` is the standard deviation of the free CPUs of all NUMA nodes afterwards; the lowest wins. ``remainder``
    are the positions in the combination that take the remainder of the request.
    """

    balance: float
    remainder: tuple[int, ...]


@dataclass(frozen=True)
class _Choice:
    """A scored combination. ``remainder`` are the NUMA nodes that take the remainder of the request."""

    balance: float
    combination: _Combination
    remainder: tuple[int, ...]
    on_one_socket: bool = False


class _DistributedSearch:
    """Finds the best combination of NUMA nodes for ``count`` CPUs, taken ``group`` at a time."""

    def __init__(self, acc: _Accumulator, strategy: Strategy, count: int, effort: Effort) -> None:
        self.acc = acc
        self.group = strategy.group or 1
        self.count = count
        self.strategy = strategy
        self.by_socket = strategy.by_socket
        self.effort = effort
        self.numa_nodes = acc.numa_nodes()
        self.free = {node: (acc.free & acc.topology.numa_nodes[node]).bit_count() for node in self.numa_nodes}
        self.looked_at = 0
        self._scores: dict[tuple[tuple[int, int], ...], _Score | None] = {}

    def sizes(self) -> range:
        """The numbers of NUMA nodes to try, fewest first (rangeNUMANodesNeededToSatisfy)."""
        topology, group = self.acc.topology, self.group
        groups = (topology.cpus.bit_count() - 1) // group + 1
        per_node = (groups - 1) // len(topology.numa_nodes) + 1
        groups_needed = (self.count - 1) // group + 1
        fewest, most = (groups_needed - 1) // per_node + 1, min(groups_needed, len(set(self.numa_nodes)))
        if self.strategy.least_nodes <= most:
            fewest = max(fewest, self.strategy.least_nodes)
        return range(fewest, most + 1)

    def best(self, size: int) -> _Choice | None:
        """The best combination of ``size`` NUMA nodes: the first one with the lowest score. A score of 0 ends it.

        With ``by_socket`` combinations on one socket precede all others.
        """
        best: _Choice | None = None
        for combination in self._combinations(self.numa_nodes, size):
            self._count_step()
            if best is not None and best.balance == 0 and (best.on_one_socket or not self.by_socket):
                break
            choice = self._score(combination)
            if choice is None:
                continue
            if self.by_socket:
                choice = replace(choice, on_one_socket=self._is_on_one_socket(combination))
            if best is None or (not choice.on_one_socket, choice.balance) < (not best.on_one_socket, best.balance):
                best = choice
        return best

    def _combinations(self, numbers: Sequence[int], size: int) -> Iterator[_Combination]:
        return _separate(numbers, size) if self.strategy.apart else _combinations(numbers, size)

    def _is_on_one_socket(self, combination: _Combination) -> bool:
        topology, cpus = self.acc.topology, 0
        for node in combination:
            cpus |= topology.numa_nodes[node]
        return sum(1 for socket in topology.sockets.values() if socket & cpus) <= 1

    def even_share(self, free: Sequence[int], *, bounded: bool) -> int:
        """The CPUs that each member of a combination gives before the remainder; ``free`` are its members' free CPUs.

        With ``bounded`` no member gives more than the fullest one has free.
        """
        even = self.count // len(free) // self.group * self.group
        return min([even, *(amount // self.group * self.group for amount in free)]) if bounded else even

    def _score(self, combination: _Combination) -> _Choice | None:
        """The score of a combination; None if it cannot take the request.

        Combinations whose members have the same numbers of free CPUs in the same order share one score.
        """
        nodes = list(combination)
        members_alike = tuple([(self.free[node], nodes.index(node)) for node in nodes])
        if members_alike not in self._scores:
            self._scores[members_alike] = self._scored(*zip(*members_alike, strict=True))
        scored = self._scores[members_alike]
        if scored is None:
            return None
        return _Choice(scored.balance, combination, tuple([nodes[place] for place in scored.remainder]))

    def _scored(self, free: Sequence[int], places: Sequence[int]) -> _Score | None:
        """The score of members with ``free`` CPUs. An overwritten combination names a NUMA node more than once.

        ``places`` gives each member the position of the first one of the same NUMA node.
        """
        # Case 1: the members have too few free CPUs, or too few whole groups.
        group = self.group
        if sum(free) < self.count or sum(amount // group for amount in free) * group < self.count:
            return None
        # Case 2: a member cannot give the even share.
        even = self.even_share(free, bounded=self.by_socket)
        if any(amount < even for amount in free):
            return None
        free_after = dict(zip(places, free, strict=True))
        free_elsewhere = tuple((Counter(self.free.values()) - Counter(free_after.values())).elements())
        for place in places:
            free_after[place] -= even
        # Case 3: the request divides evenly. Otherwise the remainder goes to the subset that balances best.
        remainder = self.count - even * len(places)
        if remainder == 0:
            return _Score(_standard_deviation([*free_after.values(), *free_elsewhere]), ())
        return self._best_remainder(places, free_after, free_elsewhere, remainder)

    def _best_remainder(
        self, places: Sequence[int], free_after: dict[int, int], free_elsewhere: Sequence[int], remainder: int
    ) -> _Score | None:
        candidates = [place for place in places if free_after[place] >= self.group]
        balance: float | None = None
        best: Iterable[int] = ()
        for size in range(len(candidates), 0, -1):
            for subset in self._combinations(candidates, size):
                self._count_step()
                if sum(self._usable(free_after[place]) for place in subset) < remainder:
                    continue
                free_at_end = self._after_remainder(list(subset), free_after, remainder)
                deviation = _standard_deviation([*free_at_end.values(), *free_elsewhere])
                if balance is None or deviation < balance:
                    balance, best = deviation, subset
        return None if balance is None else _Score(balance, tuple(best))

    def _usable(self, free: int) -> int:
        """The free CPUs of a NUMA node that count towards a remainder."""
        return free // self.group * self.group if self.strategy.whole_groups else free

    def _after_remainder(self, subset: list[int], free_after: dict[int, int], remainder: int) -> dict[int, int]:
        free_at_end = dict(free_after)
        while remainder > 0:
            before = remainder
            for node in subset:
                if remainder == 0:
                    break
                if free_at_end[node] >= self.group:
                    free_at_end[node] -= self.group
                    remainder -= self.group
            if remainder == before:
                raise _endless()
        return free_at_end

    def _count_step(self) -> None:
        self.looked_at += 1
        self.effort.check()
        if self.looked_at > MOST_COMBINATIONS:
            raise KubeletBreaks(
                KUBELET_WOULD_HANG,
                f"distribute-cpus-across-numa tries more than {MOST_COMBINATIONS} combinations of NUMA nodes",
            )


def _endless() -> KubeletBreaks:
    return KubeletBreaks(KUBELET_WOULD_HANG, "distribute-cpus-across-numa hands out a remainder for ever")


def _hand_out(
    acc: _Accumulator, even: int, search: _DistributedSearch, choice: _Choice, strategy: Strategy
) -> CPUSet | AssignmentError:
    """Take the even share from each member of the combination, then the remainder from its members in turn.

    Reads the combination after the search: a later one may have overwritten it.
    """
    topology, group = acc.topology, search.group
    for node in choice.combination:
        _take_from(acc, topology.numa_nodes[node], even, strategy)
    remainder = search.count - even * choice.combination.length
    while remainder > 0:
        before = remainder
        for node in choice.remainder:
            if remainder == 0:
                break
            if (acc.free & topology.numa_nodes[node]).bit_count() < group:
                continue
            _take_from(acc, topology.numa_nodes[node], group, strategy)
            remainder -= group
        if remainder == before:
            raise _endless()
    if acc.needed > 0:
        return AssignmentError(f"accounting error, not enough CPUs allocated, remaining: {acc.needed}")
    if acc.needed < 0:
        return AssignmentError(f"accounting error, too many CPUs allocated, remaining: {acc.needed}")
    return acc.result


def _take_from(acc: _Accumulator, cpus: CPUSet, count: int, strategy: Strategy) -> None:
    taken = _take_packed(acc.topology, acc.free & cpus, count, strategy)
    if not isinstance(taken, AssignmentError):
        acc.take(taken)


def _standard_deviation(numbers: Iterable[int]) -> float:
    values = list(numbers)
    mean = _round(sum(map(float, values)) / len(values))
    return _round(math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values)))


def _round(number: float) -> float:
    """Round to three decimals, halves up, as Go's math.Round does with numbers that are not negative."""
    scaled = number * 1000
    whole = math.floor(scaled)
    return (whole + 1 if scaled - whole >= 0.5 else whole) / 1000
