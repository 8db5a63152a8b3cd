"""Which pod has which uid, learned over polls: the kubelet's list has names alone, its files uids alone.

What a pod holds tells, and so does the poll in which it came. Pods that came in one poll and hold the same are
``alike``: nothing on the node says which of them has which uid, until the others' uids are gone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from topomend.discover.state_files import KubeletState, PodHoldings
from topomend.model.nodes.node_state import ContainerAllocation, PodAllocation

PodName = tuple[str, str]
"""A pod's namespace and name."""

NOBODY: frozenset[PodName] = frozenset()


@dataclass(frozen=True)
class Alike:
    """Pods of which each may have any of the uids. There are more uids where some have ended, or are not listed yet."""

    uids: frozenset[str]
    names: frozenset[PodName]


@dataclass(frozen=True)
class PodNames:
    """The names of pods by uid where they are certain, and the pods that are ``alike``."""

    by_uid: Mapping[str, PodName] = field(default_factory=dict)
    alike: tuple[Alike, ...] = ()

    @cached_property
    def uncertain(self) -> Mapping[str, Alike]:
        """The uids that may be one of several pods'."""
        return {uid: group for group in self.alike for uid in group.uids}

    def holders(self, uid: str) -> frozenset[PodName]:
        """The names of which one has the uid; none if that was not seen before."""
        if uid in self.uncertain:
            return self.uncertain[uid].names
        return frozenset({self.by_uid[uid]}) if uid in self.by_uid else NOBODY

    def is_free(self, uid: str, active: Collection[PodName]) -> bool:
        """Whether the uid may be a pod's that is not among its holders: one of them is not ``active`` any more."""
        group = self.uncertain.get(uid)
        if group is None:
            return self.by_uid.get(uid) not in active
        return len(group.uids) > len(group.names.intersection(active))

    def has_unlisted(self, uid: str) -> bool:
        """Whether the uid may be that of a pod which was not listed yet when it was first seen."""
        group = self.uncertain.get(uid)
        return group is not None and len(group.uids) > len(group.names)

    def is_name_of(self, name: PodName, uids: Collection[str]) -> bool:
        """Whether one of the ``uids`` may be that of the pod of this name."""
        return any(name in self.holders(uid) for uid in uids)


NOTHING_KNOWN = PodNames()


def name_of(pod: PodAllocation) -> PodName:
    """The pod's namespace and name."""
    return pod.namespace, pod.name


def without_ended(names: PodNames, state: KubeletState) -> PodNames:
    """The names without uids that are gone from the kubelet's files, or whose pod's folder is gone."""
    kept = {uid: name for uid, name in names.by_uid.items() if uid in state.pods or uid in (state.admitted or {})}
    left = (
        Alike(frozenset(uid for uid in group.uids if uid in state.pods and may_exist(uid, state)), group.names)
        for group in names.alike
    )
    return PodNames(kept, tuple(group for group in left if group.uids))


def learn(
    names: PodNames, listed: Sequence[PodAllocation], joined: Collection[PodAllocation], state: KubeletState
) -> PodNames:
    """The names after a poll in which the pods of ``joined`` were given the uids that they have.

    Those still valid in ``names``, those of ``joined``, and those that fit a single pod only.
    """
    uid_of = {name_of(pod): pod.uid for pod in joined}
    by_uid = {uid: name for uid, name in names.by_uid.items() if uid_of.get(name, uid) == uid}
    by_uid |= {uid: name for name, uid in uid_of.items()}
    groups = tuple(_alike_now(names, listed, uid_of, state))
    uncertain = frozenset[str]().union(*(group.uids for group in groups))
    by_uid = {uid: name for uid, name in by_uid.items() if uid not in uncertain}
    by_uid |= _admitted_alone(PodNames(by_uid, groups), listed, state)
    return PodNames(by_uid, groups)


def _admitted_alone(names: PodNames, listed: Iterable[PodAllocation], state: KubeletState) -> Mapping[str, PodName]:
    """The uids of pods without resources where just one admitted pod has such containers."""
    found: dict[str, PodName] = {}
    taken = {*names.by_uid.values(), *(name for group in names.alike for name in group.names)}
    for pod in [pod for pod in listed if name_of(pod) not in taken]:
        containers = {container.name for container in pod.containers}
        matching_uids = [
            uid
            for uid, admitted in (state.admitted or {}).items()
            if not names.holders(uid)
            and uid not in found
            and uid not in state.pods
            and admitted >= containers
            and may_exist(uid, state)
        ]
        if len(matching_uids) == 1:
            found[matching_uids[0]] = name_of(pod)
    return found


def _alike_now(
    names: PodNames, listed: Iterable[PodAllocation], uid_of: Mapping[PodName, str], state: KubeletState
) -> Iterator[Alike]:
    """The pods that are alike after this poll, among those that were before and those that came in it."""

    def may_have(pod: PodAllocation, uid: str) -> bool:
        holders = names.holders(uid)
        is_possible = not holders or name_of(pod) in holders or names.has_unlisted(uid)
        return is_possible and matches(pod, uid, state.pods[uid], state)

    pods = [pod for pod in listed if _may_be_alike(names, name_of(pod), uid_of.get(name_of(pod), ""))]
    unseen = {uid for uid in state.pods if not names.holders(uid) and may_exist(uid, state)}
    unmatched = unseen.union(names.uncertain).difference(uid_of.values())
    groups: dict[Alike, list[PodAllocation]] = {}
    for pod in pods:
        uid = uid_of[name_of(pod)]
        grown = Alike(frozenset({uid, *(each for each in unmatched if may_have(pod, each))}), frozenset({name_of(pod)}))
        members = [pod]
        for group, others in list(groups.items()):
            swapped = (may_have(pod, uid_of[name_of(other)]) and may_have(other, uid) for other in others)
            if not grown.uids.isdisjoint(group.uids) or any(swapped):
                grown = Alike(grown.uids | group.uids, grown.names | group.names)
                members += groups.pop(group)
        groups[grown] = members
    yield from (group for group in groups if len(group.uids) > 1)


def _may_be_alike(names: PodNames, name: PodName, uid: str) -> bool:
    """Whether a pod that was given this uid came in this poll, or was alike others before."""
    return bool(uid) and (not names.holders(uid) or uid in names.uncertain or names.is_name_of(name, names.uncertain))


def matches(pod: PodAllocation, uid: str, entry: PodHoldings, state: KubeletState) -> bool:
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


def may_exist(uid: str, state: KubeletState) -> bool:
    """Whether the pod of this uid may still exist. The list cannot tell for an entry of init containers alone."""
    return state.with_folder is None or uid in state.with_folder
