"""The allocations on a node: the kubelet's list of active pods joined with its state files.

The list has the names of the active pods. The files have uids, init containers and the Memory Manager's state, and
keep the entries of ended pods until the kubelet next purges them. The kubelet purges them before it admits a pod
(cpumanager/cpu_manager.go:removeStaleState, and the same in the other managers), so this module reports them as stale:
the published state is the one that the next admission sees. List and files are read at different moments, so both are
read again until they agree. Parsing is left to ``pod_resources`` and ``state_files``.

Kubelets before 1.34 also list pods that have ended (KubeletPodResourcesListUseActivePods), without their devices, and
after seconds without their CPUs, but with the memory that they held. That tells them from active ones, which lose
neither.

A kubelet that has just started lists no pods at first, and purges nothing either: until it lists them the last known
state stays (``kubelet_start``).
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from topomend.discover.bounds import why_implausible
from topomend.discover.kubelet_config import mark_of
from topomend.discover.kubelet_start import KubeletStart, Mark
from topomend.discover.pod_names import (
    NOTHING_KNOWN,
    PodName,
    PodNames,
    learn,
    matches,
    may_exist,
    name_of,
    without_ended,
)
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
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.nodes.node_state import ContainerAllocation, Device, NUMANodeMemory, PodAllocation

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


NOTHING_READ = Allocations()


class AllocationReader:
    """Reads one kubelet repeatedly. Returns the same object until something changes.

    ``root_dir`` is the name that the host has for ``state``, None for the same. ``node_name`` tells static pods.
    """

    def __init__(
        self,
        socket: Path | None,
        state: Path | None,
        *,
        root_dir: str | None = None,
        node_name: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = PodResourcesClient(socket) if socket else None
        self._socket, self._node_name = socket, node_name
        self._start = KubeletStart(monotonic)
        self._saw_folders = False
        self._state_folder = state
        self._root_dir = root_dir or str(state)
        self._last_good: Allocations | None = None
        self._last_read: tuple[PodResources, object] | None = None
        self._state: tuple[object, KubeletState] = (None, KubeletState())
        self._files: tuple[object, StateFiles] = (None, NO_FILES)
        self._files_mark: object = None
        self._names = NOTHING_KNOWN
        self._ended: frozenset[str] = frozenset()

    def read(self, *, lists_ended: bool = False, lists_cpus: bool = False) -> Allocations:
        """Read the current allocations; on failure return the last known ones with the reason. Never raises.

        ``lists_ended`` is whether this kubelet lists pods that have ended (``replay.gates``), ``lists_cpus`` whether
        its CPU manager has CPUs to allocate once it has started.
        """
        if self._client is None:
            problem = "no pod-resources socket is given"
            return Allocations(reason="PodResourcesNotGiven", problem=problem, files=self._state_files())
        try:
            return self._read(self._client, lists_ended=lists_ended, lists_cpus=lists_cpus)
        except PodResourcesUnavailable as error:
            return self._last_known("PodResourcesUnavailable", str(error))
        except StateUnreadable as error:
            return self._last_known("KubeletStateUnreadable", str(error))

    @property
    def errors(self) -> Mapping[str, int]:
        """The number of failed pod-resources requests so far, by method."""
        return self._client.errors if self._client else {}

    def _read(self, client: PodResourcesClient, *, lists_ended: bool, lists_cpus: bool) -> Allocations:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * attempt)
            before = files, _ = self._fingerprint(), self._saw_socket()
            listed = client.read()
            if self._last_good is not None and self._last_read == (listed, before):
                return self._with_files(self._last_good)
            state = self._read_state(files)
            if before != (self._fingerprint(), self._saw_socket()):
                continue
            if state is not None and lists_ended:
                self._ended = self._ended.intersection(state.pods).union(self._without_cpus(state))
            names = without_ended(self._names, state) if state is not None else self._names
            joined = join(listed, state, names, self._ended)
            if joined is None and state is not None and lists_ended and attempt == ATTEMPTS - 1:
                self._ended |= without_devices(listed, state)
                joined = join(listed, state, names, self._ended)
            if joined is not None:
                if unusable := self._unusable(joined, state, lists_cpus=lists_cpus):
                    return self._last_known(*unusable)
                if state is not None:
                    self._names = learn(names, listed.pods, joined.pods, state)
                self._last_read = (listed, before)
                return self._with_files(self._remarked(_certain(joined, self._names)))
        why = "the kubelet's list of pods and its state files do not agree; they are read again"
        return self._last_known("Inconsistent", why)

    def _unusable(
        self, joined: Allocations, state: KubeletState | None, *, lists_cpus: bool
    ) -> tuple[str, str, Allocations | None] | None:
        """Why this is not the current state: the reason, the problem, and what to show if no state is known before."""
        if why := why_implausible(joined.pods, joined.devices, joined.memory):
            return "Implausible", f"the kubelet's answers or files contain {why}", None
        if why := self._why_starting(joined, state, lists_cpus=lists_cpus):
            return "KubeletStarting", why, joined
        self._start.end()
        self._saw_folders = state is not None and state.with_folder is not None
        return None

    def _why_starting(self, joined: Allocations, state: KubeletState | None, *, lists_cpus: bool) -> str:
        """What a kubelet that has just started does not list yet, empty if it lists all."""
        if not self._start.is_recent():
            return ""
        known = self._last_good or NOTHING_READ
        if lists_cpus and known.allocatable_cpus and not joined.allocatable_cpus:
            return "the kubelet has just started, and its managers have not: it lists no CPUs that it can allocate"
        lacks_pods = self._lacks_pods(known, joined, state)
        if not lacks_pods or self._start.has_settled(joined.listed, self._node_name):
            return ""
        where = "that it listed before" if state is None else "in its state files"
        return f"the kubelet has just started, and does not list all the pods {where} yet"

    def _lacks_pods(self, known: Allocations, joined: Allocations, state: KubeletState | None) -> bool:
        """Whether pods that hold something are not listed, and are not known to have ended.

        Those that the files had, and the kubelet did not list, before it started had ended. So have those whose folder
        or CPUs are gone: the kubelet takes them away only once it knows all its pods (removeStaleState).
        """
        if state is None:
            return not {name_of(pod) for pod in known.pods} <= {*joined.listed}
        if self._saw_folders and state.with_folder is None:
            return False
        ended = {*(entry.uid for entry in known.stale), *self._without_cpus(state)}
        return any(entry.uid not in ended and may_exist(entry.uid, state) for entry in joined.stale)

    def _saw_socket(self) -> Mark:
        mark = mark_of(self._socket) if self._socket else (0, 0, 0)
        self._start.saw(mark)
        return mark

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

    def _last_known(self, reason: str, problem: str, otherwise: Allocations | None = None) -> Allocations:
        """The last good state, ``otherwise`` if there was none, with what is wrong."""
        self._last_read = None
        files = self._state_files()
        if self._last_good is None:
            return replace(otherwise or NOTHING_READ, reason=reason, problem=problem, files=files)
        problem = f"{problem}; the last known state is shown"
        return replace(self._last_good, reason=reason, problem=problem, files=files)


def join(
    listed: PodResources,
    state: KubeletState | None,
    names: PodNames = NOTHING_KNOWN,
    ended: Collection[str] = (),
) -> Allocations | None:
    """Join both sources. None if no file entry matches the resources of a listed pod: they are of different moments.

    ``names`` were learned in earlier polls; ``ended`` are the uids of pods that have ended and may be listed
    nevertheless. Without ``state`` the list is taken as it is.
    """
    if state is None:
        return _allocations(listed, tuple(_with_resources(listed.pods)), (), KubeletState())
    beliefs = _Beliefs(state, names, frozenset(map(name_of, listed.pods)), ended)
    credible = {name_of(pod): beliefs.credible(pod) for pod in listed.pods}
    pod_of: dict[str, PodAllocation] = {}
    # Match pods with listed resources first. The remaining entries can only belong to init containers. A pod of which
    # few entries may be takes one before another that may have more.
    for pod in sorted(listed.pods, key=lambda pod: (not _holds(pod), len(credible[name_of(pod)]))):
        uids = credible[name_of(pod)]
        if uids and uids[0] in ended:
            continue
        if not _holds(pod):
            pod_of |= dict.fromkeys([uid for uid in uids if uid not in pod_of][:1], pod)
        elif not _place(pod, pod_of, credible, {*ended}) and not beliefs.has_ended(pod):
            return None
    unmatched = {uid: entry for uid, entry in state.pods.items() if uid not in pod_of}
    pods = [_joined(pod, uid, state.pods[uid]) for uid, pod in pod_of.items()]
    stale = tuple(
        PodAllocation("", uid, uid, tuple(filter(_has_resources, entry.containers.values())), entry.cpus, entry.memory)
        for uid, entry in unmatched.items()
    )
    pods.sort(key=name_of)
    return _allocations(listed, tuple(_with_resources(pods)), stale, state)


def _place(
    pod: PodAllocation,
    pod_of: dict[str, PodAllocation],
    credible: Mapping[PodName, Sequence[str]],
    tried: set[str],
) -> bool:
    """Give the pod the most credible entry that no other has in ``pod_of``; else one that another can do without.

    So each pod gets an entry if that is possible at all (Kuhn's algorithm for matchings).
    """
    for uid in sorted(credible[name_of(pod)], key=pod_of.__contains__):
        if uid in tried:
            continue
        tried.add(uid)
        if uid not in pod_of or _place(pod_of[uid], pod_of, credible, tried):
            pod_of[uid] = pod
            return True
    return False


def _certain(joined: Allocations, names: PodNames) -> Allocations:
    """The allocations without the uids that might be another pod's: whoever asks by name and uid finds them by name."""
    pods = tuple(replace(pod, uid="") if pod.uid in names.uncertain else pod for pod in joined.pods)
    return replace(joined, pods=pods) if names.uncertain else joined


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

    Pods that first appear in the same poll with equal resources may be swapped (``pod_names``). Of entries that are as
    credible the one with the fewest containers is the pod's: what the entry has beyond those that are listed counts as
    init containers.
    """

    state: KubeletState
    names: PodNames
    listed: frozenset[PodName]
    ended: Collection[str]

    def credible(self, pod: PodAllocation) -> Sequence[str]:
        """The uids whose entries may be the pod's, the most credible first."""
        entries = self.state.pods.items()
        uids = [uid for uid, entry in entries if matches(pod, uid, entry, self.state) and self.allow(pod, uid)]
        return sorted(uids, key=lambda uid: (*self.rank(pod, uid), len(self.state.pods[uid].containers)))

    def has_ended(self, pod: PodAllocation) -> bool:
        """Whether the pod is listed like one that has ended."""
        return any(_is_left_of(pod, self.state.pods[uid]) for uid in self.ended if uid in self.state.pods)

    def allow(self, pod: PodAllocation, uid: str) -> bool:
        """Whether the entry may be the pod's. An entry of init containers alone needs further evidence."""
        holders = self.names.holders(uid)
        is_free = name_of(pod) in holders or self.names.is_free(uid, self.listed)
        if _holds(pod):
            return is_free
        if not may_exist(uid, self.state):
            return False
        if holders and name_of(pod) not in holders:
            return is_free and self.state.with_folder is not None
        return bool(holders) or not self.names.is_name_of(name_of(pod), self._existing)

    def rank(self, pod: PodAllocation, uid: str) -> tuple[bool, bool, bool, bool]:
        """A sort key that puts the most credible entry first: that of another pod which has ended comes last."""
        holders = self.names.holders(uid)
        is_own = name_of(pod) in holders
        is_over = bool(holders) and not is_own and uid in self.ended
        return (not is_own, is_over, not may_exist(uid, self.state), bool(holders))

    @cached_property
    def _existing(self) -> Collection[str]:
        """The uids of the pods that may exist and of which the name is known, or one of several."""
        return [uid for uid in (*self.names.by_uid, *self.names.uncertain) if may_exist(uid, self.state)]


def _allocations(
    listed: PodResources, pods: tuple[PodAllocation, ...], stale: tuple[PodAllocation, ...], state: KubeletState
) -> Allocations:
    return Allocations(
        pods=pods,
        stale=stale,
        listed=tuple(map(name_of, listed.pods)),
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
