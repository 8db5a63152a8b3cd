"""The allocations on a node: the kubelet's list of active pods joined with its state files.

The list has the names of the active pods. The files have uids, init containers and the Memory Manager's state, and
keep the entries of ended pods until the kubelet next purges them. The kubelet purges them before it admits a pod
(cpumanager/cpu_manager.go:removeStaleState, and the same in the other managers), so this module reports them as stale:
the published state is the one that the next admission sees. List and files are read at different moments, so both are
read again until they agree. Parsing is left to ``pod_resources`` and ``state_files``.

Kubelets before 1.34 also list pods that have ended (KubeletPodResourcesListUseActivePods), without their devices, and
after seconds without their CPUs, but with the memory that they held. That tells them from active ones, which lose
neither.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from topomend.discover.bounds import why_implausible
from topomend.discover.pod_resources.pod_resources import PodResources, PodResourcesClient, PodResourcesUnavailable
from topomend.discover.state_files import (
    KubeletState,
    PodHoldings,
    StateFiles,
    StateUnreadable,
    fingerprint,
    read_files,
    read_state,
)
from topomend.model.bitmask import CPUSet
from topomend.model.claimed_device import ContainerClaim
from topomend.model.node_state import ContainerAllocation, Device, NUMANodeMemory, PodAllocation

PodName = tuple[str, str]
"""A pod's namespace and name."""

NO_NAMES: Mapping[str, PodName] = {}
NO_FILES = StateFiles()

ATTEMPTS = 5
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Allocations:
    """The allocations of one kubelet, and how far they can be trusted.

    ``pods`` are the active pods with exclusive resources. ``stale`` are entries of ended pods in the files, named by
    uid. ``listed`` names every active pod, also those without exclusive resources. ``reason`` is empty if both sources
    were read and agree; otherwise ``problem`` says what is wrong. ``remark`` names what the given sources lack.
    ``claims`` are the devices that containers have by resource claims, and ``omitted`` says which are left out.
    ``allocatable_cpus`` and ``allocatable_memory`` (bytes by NUMA node and resource) are None if pod-resources did not
    answer. ``files`` are the state files, also where the rest is the last known state.
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
    claims: tuple[ContainerClaim, ...] = ()
    omitted: str = ""
    reason: str = ""
    problem: str = ""
    remark: str = ""
    files: StateFiles = NO_FILES


class AllocationReader:
    """Reads one kubelet repeatedly. Returns the same object until something changes.

    ``root_dir`` is the name that the host has for ``state``, None for the same.
    """

    def __init__(self, socket: Path | None, state: Path | None, *, root_dir: str | None = None) -> None:
        self._client = PodResourcesClient(socket) if socket else None
        self._state_folder = state
        self._root_dir = root_dir or str(state)
        self._last_good: Allocations | None = None
        self._last_read: tuple[PodResources, object] | None = None
        self._state: tuple[object, KubeletState] = (None, KubeletState())
        self._files: tuple[object, StateFiles] = (None, NO_FILES)
        self._files_mark: object = None
        self._names: Mapping[str, PodName] = NO_NAMES
        self._ended: frozenset[str] = frozenset()

    def read(self, *, lists_ended: bool = False) -> Allocations:
        """Read the current allocations; on failure return the last known ones with the reason. Never raises.

        ``lists_ended`` is whether this kubelet lists pods that have ended (``replay.gates``).
        """
        if self._client is None:
            problem = "no pod-resources socket is given"
            return Allocations(reason="PodResourcesNotGiven", problem=problem, files=self._state_files())
        try:
            return self._read(self._client, lists_ended=lists_ended)
        except PodResourcesUnavailable as error:
            return self._last_known("PodResourcesUnavailable", str(error))
        except StateUnreadable as error:
            return self._last_known("KubeletStateUnreadable", str(error))

    @property
    def errors(self) -> Mapping[str, int]:
        """The number of failed pod-resources requests so far, by method."""
        return self._client.errors if self._client else {}

    def _read(self, client: PodResourcesClient, *, lists_ended: bool) -> Allocations:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * attempt)
            before = self._fingerprint()
            listed = client.read()
            if self._last_good is not None and self._last_read == (listed, before):
                return self._with_files(self._last_good)
            state = self._read_state(before)
            if before != self._fingerprint():
                continue
            if state is not None and lists_ended:
                self._ended = self._ended.intersection(state.pods).union(self._without_cpus(state))
            joined = join(listed, state, self._names, self._ended)
            if joined is None and state is not None and lists_ended and attempt == ATTEMPTS - 1:
                self._ended |= without_devices(listed, state)
                joined = join(listed, state, self._names, self._ended)
            if joined is not None:
                if why := why_implausible(joined.pods, joined.devices, joined.memory):
                    return self._last_known("Implausible", f"the kubelet's answers or files contain {why}")
                if state is not None:
                    self._names = learn_names(listed, state, joined, self._names)
                self._last_read = (listed, before)
                return self._with_files(self._remarked(joined))
        why = "the kubelet's list of pods and its state files do not agree; they are read again"
        return self._last_known("Inconsistent", why)

    def _without_cpus(self, state: KubeletState) -> Iterator[str]:
        """The pods that had exclusive CPUs and lost them all: they have ended."""
        for pod in self._last_good.pods if self._last_good else ():
            entry = state.pods.get(pod.uid)
            had, has = _cpus(pod.cpus, pod.containers), entry and _cpus(entry.cpus, entry.containers.values())
            if had and entry and not has:
                yield pod.uid

    def _fingerprint(self) -> object:
        return fingerprint(self._state_folder) if self._state_folder else None

    def _read_state(self, mark: object) -> KubeletState | None:
        if self._state_folder is None:
            return None
        if self._state[0] != mark:
            self._state = (mark, read_state(self._state_folder))
        return self._state[1]

    def _with_files(self, good: Allocations) -> Allocations:
        files = self._state_files()
        self._last_good = good if good.files is files else replace(good, files=files)
        return self._last_good

    def _state_files(self) -> StateFiles:
        """The state files, the same object until one of them changes.

        A change counts once it has lasted for one poll: a manager that moves CPUs from one place in its file to another
        writes the file twice, and between the two they are nowhere.
        """
        mark = self._fingerprint()
        if self._state_folder is not None and self._files[0] != mark and self._files_mark in (None, mark):
            self._files = (mark, read_files(self._state_folder, self._root_dir))
        self._files_mark = mark
        return self._files[1]

    def _remarked(self, joined: Allocations) -> Allocations:
        if self._state_folder is not None:
            return joined
        why = "the kubelet's state directory is not given, so allocations of init containers are unknown"
        return replace(joined, remark=why)

    def _last_known(self, reason: str, problem: str) -> Allocations:
        self._last_read = None
        files = self._state_files()
        if self._last_good is None:
            return Allocations(reason=reason, problem=problem, files=files)
        problem = f"{problem}; the last known state is shown"
        return replace(self._last_good, reason=reason, problem=problem, files=files)


def join(
    listed: PodResources,
    state: KubeletState | None,
    names: Mapping[str, PodName] = NO_NAMES,
    ended: Collection[str] = (),
) -> Allocations | None:
    """Join both sources. None if no file entry matches the resources of a listed pod: they are of different moments.

    ``names`` maps uids to the pod names learned in earlier polls; ``ended`` are the uids of pods that have ended and
    may be listed nevertheless. Without ``state`` the list is taken as it is.
    """
    if state is None:
        return _allocations(listed, tuple(_with_resources(listed.pods)), (), KubeletState())
    unmatched = dict(state.pods)
    pods = []
    # Match pods with listed resources first. The remaining entries can only belong to init containers.
    for pod in sorted(listed.pods, key=lambda pod: not _holds(pod)):
        beliefs = _Beliefs(state, names, frozenset(map(_name, listed.pods)))
        matching = [
            uid for uid, entry in unmatched.items() if _matches(pod, uid, entry, state) and beliefs.allow(pod, uid)
        ]
        if matching:
            uid = min(matching, key=lambda uid: beliefs.rank(pod, uid))
            if uid not in ended:
                pods.append(_joined(pod, uid, unmatched.pop(uid)))
        elif any(_is_left_of(pod, unmatched[uid]) for uid in ended if uid in unmatched):
            continue
        elif _holds(pod):
            return None
    stale = tuple(
        PodAllocation("", uid, uid, tuple(filter(_has_resources, entry.containers.values())), entry.cpus, entry.memory)
        for uid, entry in unmatched.items()
    )
    pods.sort(key=_name)
    return _allocations(listed, tuple(_with_resources(pods)), stale, state)


def without_devices(listed: PodResources, state: KubeletState) -> frozenset[str]:
    """The uids of pods that are listed without the devices that the files have for them: they have ended."""
    return frozenset(
        uid
        for uid, entry in state.pods.items()
        if any(container.devices for container in entry.containers.values())
        and any(any(map(_has_resources, pod.containers)) and _is_left_of(pod, entry) for pod in listed.pods)
    )


def _is_left_of(pod: PodAllocation, entry: PodHoldings) -> bool:
    """Whether the pod is listed with what the entry has, but for devices."""
    return all(
        not container.devices and _resources(container) == _resources(_without_devices(entry, container.name))
        for container in pod.containers
    )


def _without_devices(entry: PodHoldings, name: str) -> ContainerAllocation | None:
    container = entry.containers.get(name)
    return container and replace(container, devices=())


def _cpus(of_pod: CPUSet, containers: Iterable[ContainerAllocation]) -> CPUSet:
    for container in containers:
        of_pod |= container.cpus
    return of_pod


@dataclass(frozen=True)
class _Beliefs:
    """Decides which pod a file entry belongs to if its resources match several pods.

    Two pods that first appear in the same poll with equal resources may be swapped. That is harmless while both are
    active, and must end when one of them does.
    """

    state: KubeletState
    names: Mapping[str, PodName]
    listed: frozenset[PodName]

    def allow(self, pod: PodAllocation, uid: str) -> bool:
        """Whether the entry may be the pod's. An entry of init containers alone needs further evidence."""
        believed = self.names.get(uid, _name(pod))
        if _holds(pod):
            return believed == _name(pod) or believed not in self.listed
        if not _may_exist(uid, self.state):
            return False
        if believed != _name(pod):
            return believed not in self.listed and self.state.with_folder is not None
        return uid in self.names or not self._is_name_of_another_entry(pod)

    def rank(self, pod: PodAllocation, uid: str) -> tuple[bool, bool, bool]:
        """A sort key that puts the most credible entry first."""
        return (self.names.get(uid) != _name(pod), not _may_exist(uid, self.state), uid in self.names)

    def _is_name_of_another_entry(self, pod: PodAllocation) -> bool:
        return any(name == _name(pod) and _may_exist(uid, self.state) for uid, name in self.names.items())


def learn_names(
    listed: PodResources, state: KubeletState, joined: Allocations, names: Mapping[str, PodName]
) -> Mapping[str, PodName]:
    """Pod names by uid: those of ``joined``, those still valid in ``names``, and those that fit a single pod only."""
    known_names = {uid: name for uid, name in names.items() if uid in state.pods or uid in (state.admitted or {})}
    known_names |= {pod.uid: _name(pod) for pod in joined.pods}
    unnamed = [pod for pod in listed.pods if _name(pod) not in known_names.values()]
    for pod in unnamed:
        containers = {container.name for container in pod.containers}
        matching_uids = [
            uid
            for uid, admitted in (state.admitted or {}).items()
            if uid not in known_names and uid not in state.pods and admitted >= containers and _may_exist(uid, state)
        ]
        if len(matching_uids) == 1:
            known_names[matching_uids[0]] = _name(pod)
    return known_names


def _name(pod: PodAllocation) -> PodName:
    return pod.namespace, pod.name


def _allocations(
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
        claims=listed.claims,
        omitted=listed.omitted,
    )


def _matches(pod: PodAllocation, uid: str, entry: PodHoldings, state: KubeletState) -> bool:
    """Whether a file entry matches the pod: the same containers with the same resources.

    An entry whose pod the kubelet does not count as admitted was left behind by a refused pod.
    """
    if state.admitted is not None and not state.admitted.get(uid, frozenset()) >= {
        container.name for container in pod.containers
    }:
        return False
    if (pod.cpus and pod.cpus != entry.cpus) or (pod.memory and pod.memory != entry.memory):
        return False
    return all(_is_listed_as(container, entry) for container in pod.containers)


def _is_listed_as(container: ContainerAllocation, entry: PodHoldings) -> bool:
    """Whether the kubelet lists a container of the entry like this.

    Since 1.37 one that shares CPUs or memory of its pod is listed without them (container_manager_linux.go:GetCPUs and
    GetMemory); the files have them as its own.
    """
    in_files = entry.containers.get(container.name, ContainerAllocation(container.name))
    shares_cpus = bool(entry.cpus) and not container.cpus
    shares_memory = bool(entry.memory) and not container.memory
    return (
        (shares_cpus or container.cpus == in_files.cpus)
        and (shares_memory or container.memory == in_files.memory)
        and container.devices == in_files.devices
    )


def _may_exist(uid: str, state: KubeletState) -> bool:
    """Whether the pod of this uid may still exist. The list cannot tell for an entry of init containers alone."""
    return state.with_folder is None or uid in state.with_folder


def _joined(pod: PodAllocation, uid: str, entry: PodHoldings) -> PodAllocation:
    """The pod with its uid and what its containers have, preceded by init containers, which only the files contain."""
    listed = {container.name for container in pod.containers}
    containers = tuple(_as_in_files(container, entry) for container in pod.containers)
    init = tuple(replace(entry.containers[name], init=True) for name in sorted(entry.containers) if name not in listed)
    return replace(pod, uid=uid, containers=(*init, *containers), cpus=entry.cpus, memory=entry.memory)


def _as_in_files(container: ContainerAllocation, entry: PodHoldings) -> ContainerAllocation:
    in_files = entry.containers.get(container.name)
    return replace(container, cpus=in_files.cpus, memory=in_files.memory) if in_files else container


def _holds(pod: PodAllocation) -> bool:
    """Whether the pod is listed with any resources."""
    return bool(pod.cpus or pod.memory or any(map(_has_resources, pod.containers)))


def _with_resources(pods: tuple[PodAllocation, ...] | list[PodAllocation]) -> Iterator[PodAllocation]:
    for pod in pods:
        containers = tuple(filter(_has_resources, pod.containers))
        if containers or pod.cpus or pod.memory:
            yield replace(pod, containers=containers)


def _has_resources(container: ContainerAllocation) -> bool:
    return bool(container.cpus or container.memory or container.devices)


def _resources(container: ContainerAllocation | None) -> tuple[object, ...]:
    return (container.cpus, container.memory, container.devices) if container else (0, (), ())
