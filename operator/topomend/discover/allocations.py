"""Who holds what on the node: the kubelet's list of active pods joined with its state files.

The list knows names and which pods are active, the files know uids, init containers and the memory book, and keep what
ended pods held until the kubelet's next look. The kubelet purges such entries before it admits the next pod
(cpumanager/cpu_manager.go:removeStaleState and its likes), so they are dropped here: what counts is what the next
admission sees. List and files are read at different moments; they are read again until they agree.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from topomend.discover.bounds import why_implausible
from topomend.discover.pod_resources import PodResources, PodResourcesClient, PodResourcesUnavailable
from topomend.discover.state_files import KubeletState, PodHoldings, StateUnreadable, fingerprint, read_state
from topomend.model.bitmask import CPUSet
from topomend.model.node_state import ContainerAllocation, Device, NUMANodeMemory, PodAllocation

PodName = tuple[str, str]
"""A pod's namespace and name."""

NO_NAMES: Mapping[str, PodName] = {}

ATTEMPTS = 5
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Allocations:
    """``pods`` are the active pods that hold something; ``stale`` what ended pods still hold in the files, by uid.

    ``listed`` names every active pod, whether it holds anything or not.
    ``reason`` is empty where both sources were read and agree; else ``problem`` says what is wrong.
    ``remark`` says what the sources in use cannot tell. ``allocatable_cpus`` and ``allocatable_memory`` are
    None where pod-resources did not answer.
    """

    pods: tuple[PodAllocation, ...] = ()
    stale: tuple[PodAllocation, ...] = ()
    listed: tuple[PodName, ...] = ()
    devices: tuple[Device, ...] = ()
    allocatable_cpus: CPUSet | None = None
    allocatable_memory: Mapping[tuple[int, str], int] | None = None
    memory: tuple[NUMANodeMemory, ...] | None = None
    cpu_pool: CPUSet | None = None
    memory_totals: Mapping[tuple[int, str], int] | None = None
    policies: Mapping[str, str] | None = None
    reason: str = ""
    problem: str = ""
    remark: str = ""


class AllocationReader:
    """Reads one kubelet again and again; as long as nothing changed it returns the very same object."""

    def __init__(self, socket: Path | None, state: Path | None) -> None:
        self._client = PodResourcesClient(socket) if socket else None
        self._folder = state
        self._good: Allocations | None = None
        self._seen: tuple[PodResources, object] | None = None
        self._state: tuple[object, KubeletState] = (None, KubeletState())
        self._names: Mapping[str, PodName] = NO_NAMES

    def read(self) -> Allocations:
        """What is held now. Where that cannot be found out: what was last known, with the reason. Never raises."""
        if self._client is None:
            return Allocations(reason="PodResourcesNotGiven", problem="no pod-resources socket is given")
        try:
            return self._read(self._client)
        except PodResourcesUnavailable as error:
            return self._last_known("PodResourcesUnavailable", str(error))
        except StateUnreadable as error:
            return self._last_known("KubeletStateUnreadable", str(error))

    @property
    def errors(self) -> Mapping[str, int]:
        """How often each method of pod-resources was not answered so far."""
        return self._client.errors if self._client else {}

    def _read(self, client: PodResourcesClient) -> Allocations:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * attempt)
            before = self._fingerprint()
            listed = client.read()
            if self._good is not None and self._seen == (listed, before):
                return self._good
            state = self._read_state(before)
            if before != self._fingerprint():
                continue
            joined = join(listed, state, self._names)
            if joined is not None:
                if why := why_implausible(joined.pods, joined.devices, joined.memory):
                    return self._last_known("Implausible", f"the kubelet's answers or files tell of {why}")
                if state is not None:
                    self._names = learn_names(listed, state, joined, self._names)
                self._seen = (listed, before)
                self._good = self._without_state(joined)
                return self._good
        why = "the kubelet's list of pods and its state files do not agree; they are read again"
        return self._last_known("Inconsistent", why)

    def _fingerprint(self) -> object:
        return fingerprint(self._folder) if self._folder else None

    def _read_state(self, mark: object) -> KubeletState | None:
        if self._folder is None:
            return None
        if self._state[0] != mark:
            self._state = (mark, read_state(self._folder))
        return self._state[1]

    def _without_state(self, joined: Allocations) -> Allocations:
        if self._folder is not None:
            return joined
        why = "the kubelet's state directory is not given: what init containers hold is not known"
        return replace(joined, remark=why)

    def _last_known(self, reason: str, problem: str) -> Allocations:
        self._seen = None
        if self._good is None:
            return Allocations(reason=reason, problem=problem)
        return replace(self._good, reason=reason, problem=f"{problem}; what was last known is shown")


def join(
    listed: PodResources, state: KubeletState | None, names: Mapping[str, PodName] = NO_NAMES
) -> Allocations | None:
    """Both sources as one; None where a listed pod holds what no entry of the files has: they are of two moments.

    ``names`` are those that pods seen before are believed to have, by uid.
    """
    if state is None:
        return _known(listed, tuple(_holding(listed.pods)), (), KubeletState())
    free = dict(state.pods)
    pods = []
    # Pods that hold something are told by it. Then only entries of init containers alone are left to the others.
    for pod in sorted(listed.pods, key=lambda pod: not any(map(_holds, pod.containers))):
        beliefs = _Beliefs(state, names, frozenset(map(_name, listed.pods)))
        mine = [uid for uid, held in free.items() if _is_of(pod, uid, held, state) and beliefs.allow(pod, uid)]
        if mine:
            uid = min(mine, key=lambda uid: beliefs.rank(pod, uid))
            pods.append(_joined(pod, uid, free.pop(uid)))
        elif any(map(_holds, pod.containers)):
            return None
    stale = tuple(
        PodAllocation("", uid, uid, tuple(filter(_holds, held.containers.values())), held.cpus, held.memory)
        for uid, held in free.items()
    )
    pods.sort(key=_name)
    return _known(listed, tuple(_holding(pods)), stale, state)


@dataclass(frozen=True)
class _Beliefs:
    """Which pod an entry of the files is believed to be, where what it holds is what several pods could hold.

    Pods that were seen first at one moment and hold the same may be believed the wrong way round. That makes no
    difference while both live, and must not outlive either.
    """

    state: KubeletState
    names: Mapping[str, PodName]
    listed: frozenset[PodName]

    def allow(self, pod: PodAllocation, uid: str) -> bool:
        """Whether the entry may be the pod's; one that only init containers hold needs more than that it fits."""
        believed = self.names.get(uid, _name(pod))
        if any(map(_holds, pod.containers)):
            return believed == _name(pod) or believed not in self.listed
        if not _may_live(uid, self.state):
            return False
        if believed != _name(pod):
            return believed not in self.listed and self.state.with_folder is not None
        return uid in self.names or not self._is_known_by_another(pod)

    def rank(self, pod: PodAllocation, uid: str) -> tuple[bool, bool, bool]:
        """A sort key, the most credible first."""
        return (self.names.get(uid) != _name(pod), not _may_live(uid, self.state), uid in self.names)

    def _is_known_by_another(self, pod: PodAllocation) -> bool:
        return any(name == _name(pod) and _may_live(uid, self.state) for uid, name in self.names.items())


def learn_names(
    listed: PodResources, state: KubeletState, joined: Allocations, names: Mapping[str, PodName]
) -> Mapping[str, PodName]:
    """The names of the pods in the files, by uid: those that were matched, and whatever can then be only one pod's."""
    kept = {uid: name for uid, name in names.items() if uid in state.pods or uid in (state.admitted or {})}
    kept |= {pod.uid: _name(pod) for pod in joined.pods}
    unnamed = [pod for pod in listed.pods if _name(pod) not in kept.values()]
    for pod in unnamed:
        containers = {each.name for each in pod.containers}
        could_be = [
            uid
            for uid, admitted in (state.admitted or {}).items()
            if uid not in kept and uid not in state.pods and admitted >= containers and _may_live(uid, state)
        ]
        if len(could_be) == 1:
            kept[could_be[0]] = _name(pod)
    return kept


def _name(pod: PodAllocation) -> PodName:
    return pod.namespace, pod.name


def _known(
    listed: PodResources, pods: tuple[PodAllocation, ...], stale: tuple[PodAllocation, ...], state: KubeletState
) -> Allocations:
    return Allocations(
        pods=pods,
        stale=stale,
        listed=tuple(map(_name, listed.pods)),
        devices=listed.devices,
        allocatable_cpus=listed.allocatable_cpus,
        allocatable_memory=listed.allocatable_memory,
        memory=state.memory,
        cpu_pool=state.cpu_pool,
        memory_totals=state.memory_totals,
        policies=state.policies,
    )


def _is_of(pod: PodAllocation, uid: str, held: PodHoldings, state: KubeletState) -> bool:
    """Whether an entry of the files is this pod's: the same containers hold the same.

    What the kubelet does not count as admitted is what a refused pod left behind.
    """
    if state.admitted is not None and not state.admitted.get(uid, frozenset()) >= {
        each.name for each in pod.containers
    }:
        return False
    return all(_holdings(each) == _holdings(held.containers.get(each.name)) for each in pod.containers)


def _may_live(uid: str, state: KubeletState) -> bool:
    """Whether the pod of an entry that only init containers hold may still be there: nothing listed shows that."""
    return state.with_folder is None or uid in state.with_folder


def _joined(pod: PodAllocation, uid: str, held: PodHoldings) -> PodAllocation:
    """The pod with its uid, and with its init containers first: those that only the files know."""
    listed = {each.name for each in pod.containers}
    init = tuple(replace(held.containers[name], init=True) for name in sorted(held.containers) if name not in listed)
    return replace(pod, uid=uid, containers=(*init, *pod.containers), cpus=held.cpus, memory=held.memory)


def _holding(pods: tuple[PodAllocation, ...] | list[PodAllocation]) -> Iterator[PodAllocation]:
    for pod in pods:
        containers = tuple(filter(_holds, pod.containers))
        if containers or pod.cpus or pod.memory:
            yield replace(pod, containers=containers)


def _holds(container: ContainerAllocation) -> bool:
    return bool(container.cpus or container.memory or container.devices)


def _holdings(container: ContainerAllocation | None) -> tuple[object, ...]:
    return (container.cpus, container.memory, container.devices) if container else (0, (), ())
