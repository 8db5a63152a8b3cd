import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.clock import Clock

from topomend.discover import allocations as allocations_module
from topomend.discover import podresources_pb2 as messages
from topomend.discover.allocations import AllocationReader, Allocations
from topomend.discover.kubelet_start import SECONDS, SETTLED_SECONDS
from topomend.discover.pod_names import PodNames
from topomend.model.bitmask import mask_of
from topomend.model.nodes.node_state import ContainerAllocation, PodAllocation
from topomend.replay.startup.state.restore import ALLOCATED_STATE, CPU_STATE, DEVICE_STATE, MEMORY_STATE

from .machines import Lister, container, cpu_state, pod, serving, write_state


class Kubelet:
    """A pod-resources socket and a state directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lister = folder, Lister()
        self.socket = folder / "kubelet.sock"
        self._serving = ExitStack()

    def start(self) -> None:
        self._serving.enter_context(serving(self.socket, self.lister))

    def stop(self) -> None:
        self._serving.close()

    def restart(self, cpus: Iterable[int] = ()) -> None:
        """A new one opens its socket. It lists no pods yet, and CPUs once its managers have started."""
        self.stop()
        self.shows()
        self.list_cpus(cpus)
        self.start()

    def list_cpus(self, cpus: Iterable[int]) -> None:
        del self.lister.allocatable.cpu_ids[:]
        self.lister.allocatable.cpu_ids.extend(cpus)

    def shows(self, *pods: object) -> None:
        del self.lister.listed.pod_resources[:]
        self.lister.listed.pod_resources.extend(pods)  # type: ignore[arg-type]  # messages, made next door

    def keep(self, **pods: dict[str, str]) -> None:
        """Exclusive CPUs by uid and container."""
        write_state(self.folder, CPU_STATE, cpu_state(pods))

    def admit(self, **pods: list[str]) -> None:
        entries: dict[str, object] = {
            uid: {"ContainerResources": {name: {} for name in names}} for uid, names in pods.items()
        }
        write_state(self.folder, ALLOCATED_STATE, {"data": json.dumps({"entries": entries}), "checksum": 1})


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(tmp_path)
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.fixture
def reader(kubelet: Kubelet) -> AllocationReader:
    return AllocationReader(kubelet.socket, kubelet.folder)


def test_a_listed_pod_gets_its_uid_and_its_init_containers(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main", [1, 2])))
    kubelet.keep(u1={"main": "1-2", "setup": "1-4"})
    allocations = reader.read()
    assert allocations.pods == (
        PodAllocation(
            "default",
            "p",
            "u1",
            (
                ContainerAllocation("setup", init=True, cpus=mask_of([1, 2, 3, 4])),
                ContainerAllocation("main", cpus=mask_of([1, 2])),
            ),
        ),
    )
    assert (allocations.reason, allocations.stale) == ("", ())


def test_an_entry_that_no_listed_pod_has_is_stale(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main", [1])))
    kubelet.keep(u1={"main": "1"}, gone={"main": "2-3"})
    allocations = reader.read()
    assert [allocation.uid for allocation in allocations.pods] == ["u1"]
    assert [(allocation.uid, allocation.containers[0].cpus) for allocation in allocations.stale] == [
        ("gone", mask_of([2, 3]))
    ]


def test_an_init_container_that_alone_holds_cpus_goes_to_the_pod_that_was_admitted_with_such_containers(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    kubelet.shows(pod("other", container("web")), pod("p", container("main")))
    kubelet.keep(u1={"setup": "1-2"})
    kubelet.admit(u1=["setup", "main"], u2=["web"])
    assert [(allocation.name, allocation.uid) for allocation in reader.read().pods] == [("p", "u1")]


def test_what_a_refused_pod_left_behind_is_stale_even_if_another_pod_looks_like_its_owner(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    kubelet.shows(pod("p", container("main")))
    kubelet.keep(refused={"setup": "1-2"})
    kubelet.admit(u1=["main"])
    allocations = reader.read()
    assert allocations.pods == ()
    assert [allocation.uid for allocation in allocations.stale] == ["refused"]


def test_what_an_ended_pods_init_container_held_is_not_given_to_a_pod_that_looks_like_it(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    kubelet.shows(pod("first", container("main")))
    kubelet.keep(u1={"setup": "1-2"})
    kubelet.admit(u1=["setup", "main"])
    assert [allocation.name for allocation in reader.read().pods] == ["first"]
    kubelet.shows(pod("second", container("main")))
    kubelet.admit(u1=["setup", "main"], u2=["setup", "main"])
    allocations = reader.read()
    assert (allocations.pods, [allocation.uid for allocation in allocations.stale]) == ((), ["u1"])


def test_a_pod_that_holds_nothing_is_known_and_not_taken_for_one_that_comes_later(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    kubelet.shows(pod("first", container("main")))
    kubelet.admit(u1=["setup", "main"])
    assert reader.read().pods == ()
    kubelet.shows(pod("first", container("main")), pod("second", container("main")))
    kubelet.keep(u2={"setup": "1-2"})
    kubelet.admit(u1=["setup", "main"], u2=["setup", "main"])
    assert [(allocation.name, allocation.uid) for allocation in reader.read().pods] == [("second", "u2")]


def test_pods_that_hold_the_same_may_be_taken_for_each_other_and_either_may_end(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    reader._names = PodNames({"u1": ("default", "second"), "u2": ("default", "first")})
    kubelet.shows(pod("second", container("main", [1])))
    kubelet.keep(u2={"main": "1"})
    kubelet.admit(u2=["main"])
    assert [(allocation.name, allocation.uid) for allocation in reader.read().pods] == [("second", "u2")]


@pytest.mark.parametrize("order", [("wide", "narrow"), ("narrow", "wide")], ids=" first, then ".join)
@pytest.mark.parametrize("uids", [("u1", "u2"), ("u2", "u1")], ids=" before ".join)
def test_of_two_new_pods_the_one_with_fewer_containers_is_not_taken_for_the_other(
    order: tuple[str, str], uids: tuple[str, str], kubelet: Kubelet, reader: AllocationReader
) -> None:
    names = {"narrow": ["main"], "wide": ["main", "beside"]}
    of_uid = {"u1": names["narrow"], "u2": names["wide"]}
    kubelet.shows(*(pod(each, *(container(name, memory={0: 1 << 30}) for name in names[each])) for each in order))
    keep_memory(kubelet, **{uid: of_uid[uid] for uid in uids})
    kubelet.admit(**of_uid)
    allocations = reader.read()
    assert allocations.reason == ""
    assert [(active.name, active.uid) for active in allocations.pods] == [("narrow", "u1"), ("wide", "u2")]


def test_a_new_pod_is_not_taken_for_one_that_ended_and_is_listed_no_more(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    """It has no folder yet, and the other one still has."""
    kubelet.shows(pod("old", container("main", [1, 2], memory={0: 1 << 30})))
    kubelet.keep(u1={"main": "1-2"})
    keep_memory(kubelet, "u1")
    (kubelet.folder / "pods" / "u1").mkdir(parents=True)
    assert [active.uid for active in reader.read(lists_ended=True).pods] == ["u1"]
    kubelet.keep()
    kubelet.shows(pod("new", container("main", memory={0: 1 << 30})))
    keep_memory(kubelet, "u1", "u2")
    assert [(active.name, active.uid) for active in reader.read(lists_ended=True).pods] == [("new", "u2")]


def _show_alike(kubelet: Kubelet, **uids: str) -> None:
    """Pods by name that hold the same memory, listed in this order; the files have their uids in alphabetical order."""
    kubelet.shows(*(pod(name, container("main", memory={0: 1 << 30})) for name in uids))
    keep_memory(kubelet, *sorted(uids.values()))
    kubelet.admit(**{uid: ["main"] for uid in sorted(uids.values())})


def _uids(reader: AllocationReader) -> dict[str, str]:
    allocations = reader.read()
    assert allocations.reason == ""
    return {active.name: active.uid for active in allocations.pods}


def test_which_of_two_pods_that_came_together_and_hold_the_same_has_which_uid_is_not_claimed(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    _show_alike(kubelet, a="u1", b="u2", c="u3")
    assert _uids(reader) == {"a": "", "b": "", "c": ""}
    assert reader.read() is reader.read()


def test_a_pod_that_came_later_than_another_that_holds_the_same_has_its_own_uid(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    _show_alike(kubelet, a="u2")
    assert _uids(reader) == {"a": "u2"}
    _show_alike(kubelet, a="u2", b="u1")
    assert _uids(reader) == {"a": "u2", "b": "u1"}


@pytest.mark.parametrize("uids", [("u1", "u2"), ("u2", "u1")], ids=" and ".join)
@pytest.mark.parametrize("others", [{}, {"c": "u3"}, {"a": "u3"}], ids=["alone", "with another", "after a new one"])
def test_once_one_of_two_pods_that_hold_the_same_is_gone_the_others_uid_is_known(
    uids: tuple[str, str], others: dict[str, str], kubelet: Kubelet, reader: AllocationReader
) -> None:
    """Also where another comes in the same poll; but of that ended pod's name, it could have either uid."""
    _show_alike(kubelet, a=uids[0], b=uids[1])
    assert _uids(reader) == {"a": "", "b": ""}
    _show_alike(kubelet, b=uids[1], **others)
    is_certain = "a" not in others
    expected = {"b": uids[1], **others}
    assert _uids(reader) == (expected if is_certain else dict.fromkeys(expected, ""))
    _show_alike(kubelet, b=uids[1], d="u4")
    assert _uids(reader) == {"b": uids[1], "d": "u4"}


def test_an_ended_pod_whose_entry_is_still_there_leaves_the_other_ones_uid_unknown_until_its_folder_is_gone(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    for uid in ("u1", "u2"):
        (kubelet.folder / "pods" / uid).mkdir(parents=True)
    _show_alike(kubelet, a="u1", b="u2")
    assert _uids(reader) == {"a": "", "b": ""}
    kubelet.shows(pod("b", container("main", memory={0: 1 << 30})))
    assert _uids(reader) == {"b": ""}
    (kubelet.folder / "pods" / "u1").rmdir()
    assert _uids(reader) == {"b": "u2"}


def test_a_pod_whose_folder_is_gone_holds_nothing_any_more(kubelet: Kubelet, reader: AllocationReader) -> None:
    (kubelet.folder / "pods" / "u2").mkdir(parents=True)
    kubelet.shows(pod("second", container("main")))
    kubelet.keep(u1={"setup": "1-2"})
    kubelet.admit(u1=["setup", "main"], u2=["setup", "main"])
    assert reader.read().pods == ()


def test_a_pod_that_holds_nothing_is_not_shown(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main")))
    assert reader.read().pods == ()


def test_as_long_as_nothing_changes_the_same_object_is_returned(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main", [1])))
    kubelet.keep(u1={"main": "1"})
    first = reader.read()
    assert reader.read() is first
    kubelet.keep(u1={"main": "1"}, u2={"main": "2"})
    assert reader.read() is not first


def test_list_and_files_of_two_moments_are_read_again_until_they_agree(
    kubelet: Kubelet, reader: AllocationReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet.shows(pod("p", container("main", [1])))
    kubelet.keep()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            kubelet.keep(u1={"main": "1"})

    monkeypatch.setattr(allocations_module, "time", SimpleNamespace(sleep=pause))
    allocations = reader.read()
    assert 0 < pauses[0] < pauses[1]
    assert (allocations.reason, [allocation.uid for allocation in allocations.pods]) == ("", ["u1"])


def test_what_never_agrees_is_said_and_the_last_known_shown(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main", [1])))
    kubelet.keep(u1={"main": "1"})
    good = reader.read()
    kubelet.shows(pod("p", container("main", [1])), pod("q", container("main", [5])))
    allocations = reader.read()
    assert allocations.pods == good.pods
    assert allocations.reason == "Inconsistent"
    assert "do not agree" in allocations.problem
    kubelet.keep(u1={"main": "1"}, u2={"main": "5"})
    assert reader.read().reason == ""


def test_a_socket_that_goes_away_is_said_and_the_last_known_shown(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main", [1])))
    kubelet.keep(u1={"main": "1"})
    good = reader.read()
    kubelet.stop()
    allocations = reader.read()
    assert (allocations.pods, allocations.reason) == (good.pods, "PodResourcesUnavailable")
    assert "the last known state is shown" in allocations.problem


def test_a_state_file_that_cannot_be_read_is_said(kubelet: Kubelet, reader: AllocationReader) -> None:
    (kubelet.folder / CPU_STATE).write_text("{")
    allocations = reader.read()
    assert allocations.reason == "KubeletStateUnreadable"
    assert CPU_STATE in allocations.problem


def test_without_a_state_directory_what_is_listed_is_shown_without_uids(kubelet: Kubelet) -> None:
    kubelet.shows(pod("p", container("main", [1])))
    allocations = AllocationReader(kubelet.socket, None).read()
    assert [(allocation.name, allocation.uid) for allocation in allocations.pods] == [("p", "")]
    assert not allocations.reason
    assert allocations.remark.endswith("allocations of init containers are unknown")


def test_without_a_socket_nothing_is_known() -> None:
    assert AllocationReader(None, None).read().reason == "PodResourcesNotGiven"


# A kubelet that has just started

CPUS = range(1, 8)
NODE = "node-1"
GPU = messages.ContainerDevices(resource_name="vendor.com/gpu", device_ids=["gpu-0"])


class Restarting:
    """A kubelet with its reader, and a clock. The pods ``a`` and ``b`` hold CPUs."""

    def __init__(self, kubelet: Kubelet, clock: Clock, *, with_files: bool) -> None:
        self.kubelet, self.clock = kubelet, clock
        state = kubelet.folder if with_files else None
        self.reader = AllocationReader(kubelet.socket, state, node_name=NODE, monotonic=clock)
        self.pods = {"a": pod("a", container("main", [1, 2])), "b": pod("b", container("main", [4, 5]))}
        self.pods |= {name: pod(name, container("main")) for name in ("light", f"static-{NODE}")}

    def lists(self, *names: str) -> None:
        self.kubelet.shows(*(self.pods[name] for name in names))

    def runs(self, *names: str) -> None:
        """These pods of ``a`` and ``b`` are there, and listed."""
        self.kubelet.list_cpus(CPUS)
        self.kubelet.keep(**{name: {"main": {"a": "1-2", "b": "4-5"}[name]} for name in names})
        self.kubelet.admit(**{name: ["main"] for name in ("a", "b", "light")})
        self.lists(*names)

    def read(self) -> Allocations:
        return self.reader.read(lists_cpus=True)

    def waits(self, seconds: float = 0.0) -> str:
        """The reason after some time, during which the list stays the same."""
        self.read()
        self.clock.advance(seconds)
        return self.read().reason


@pytest.fixture(params=[True, False], ids=["with files", "list alone"])
def restarting(request: pytest.FixtureRequest, kubelet: Kubelet) -> Restarting:
    return Restarting(kubelet, Clock(), with_files=request.param)


@pytest.fixture
def with_files(kubelet: Kubelet) -> Restarting:
    return Restarting(kubelet, Clock(), with_files=True)


def test_a_kubelet_that_has_started_is_known_as_soon_as_it_lists_all_its_pods_again(restarting: Restarting) -> None:
    restarting.runs("a", "b")
    before = restarting.read()
    restarting.kubelet.restart()
    for cpus, names in (((), ()), (CPUS, ()), (CPUS, ("a",))):
        restarting.kubelet.list_cpus(cpus)
        restarting.lists(*names)
        starting = restarting.read()
        assert (starting.reason, starting.pods, starting.stale) == ("KubeletStarting", before.pods, ())
        assert starting.allocatable_cpus == before.allocatable_cpus
        assert starting.problem.endswith("; the last known state is shown")
    restarting.lists("a", "b")
    after = restarting.read()
    assert (after.reason, after.pods) == ("", before.pods)
    restarting.lists("a")
    assert [active.name for active in restarting.read().pods] == ["a"]


def test_an_empty_node_is_known_as_soon_as_its_kubelets_managers_have_started(restarting: Restarting) -> None:
    restarting.runs()
    assert not restarting.read().reason
    restarting.kubelet.restart()
    starting = restarting.read()
    assert (starting.reason, starting.allocatable_cpus) == ("KubeletStarting", mask_of(CPUS))
    assert "its managers have not" in starting.problem
    restarting.kubelet.list_cpus(CPUS)
    assert not restarting.read().reason


def test_a_kubelet_that_allocates_cpus_no_more_is_not_waited_for(restarting: Restarting) -> None:
    restarting.runs()
    restarting.read()
    restarting.kubelet.restart()
    assert not restarting.reader.read(lists_cpus=False).reason


@pytest.mark.parametrize("starts_late", [False, True], ids=["at once", "after an absence"])
def test_a_reader_that_begins_at_a_kubelet_takes_what_it_lists(starts_late: bool, restarting: Restarting) -> None:
    """A kubelet that has just started has no pods on a new node; it has started an agent in a pod itself."""
    if starts_late:
        restarting.kubelet.stop()
        assert restarting.read().reason == "PodResourcesUnavailable"
    restarting.kubelet.restart()
    restarting.kubelet.lister.allocatable.devices.append(GPU)
    allocations = restarting.read()
    assert (allocations.reason, [device.id for device in allocations.devices]) == ("", ["gpu-0"])


def test_a_reader_that_came_before_its_kubelet_shows_what_it_lists_while_files_have_more(
    with_files: Restarting,
) -> None:
    with_files.kubelet.stop()
    assert with_files.read().reason == "PodResourcesUnavailable"
    with_files.runs("a")
    with_files.kubelet.restart()
    with_files.kubelet.lister.allocatable.devices.append(GPU)
    allocations = with_files.read()
    assert (allocations.reason, [device.id for device in allocations.devices]) == ("KubeletStarting", ["gpu-0"])
    assert "last known" not in allocations.problem
    with_files.lists("a")
    assert not with_files.read().reason


# Pods that ended while their kubelet was down


def test_a_pod_that_is_not_listed_with_the_others_of_the_api_server_has_ended(restarting: Restarting) -> None:
    restarting.runs("a", "b")
    restarting.read()
    restarting.kubelet.restart(CPUS)
    restarting.lists(f"static-{NODE}")
    assert restarting.waits(SETTLED_SECONDS) == "KubeletStarting", "the API server may not have been asked yet"
    restarting.lists("a", f"static-{NODE}")
    assert restarting.waits(SETTLED_SECONDS - 0.1) == "KubeletStarting"
    restarting.lists("a", "light", f"static-{NODE}")
    assert restarting.waits(SETTLED_SECONDS - 0.1) == "KubeletStarting", "it is still adding pods"
    assert restarting.waits(0.1) == ""
    allocations = restarting.read()
    assert [active.name for active in allocations.pods] == ["a"]


def test_a_kubelet_that_lists_none_of_its_pods_is_waited_for_so_long_and_no_longer(restarting: Restarting) -> None:
    restarting.runs("a")
    restarting.read()
    restarting.kubelet.restart(CPUS)
    assert restarting.waits(SECONDS - 0.1) == "KubeletStarting"
    assert restarting.waits(0.1) == ""
    assert restarting.read().pods == ()


def test_a_kubelet_that_starts_twice_is_waited_for_anew(restarting: Restarting) -> None:
    restarting.runs("a")
    before = restarting.read()
    restarting.kubelet.restart(CPUS)
    assert restarting.waits(SECONDS - 0.1) == "KubeletStarting"
    restarting.kubelet.restart(CPUS)
    assert restarting.waits(SECONDS - 0.1) == "KubeletStarting"
    assert restarting.read().pods == before.pods


def test_a_kubelet_whose_managers_do_not_start_is_published_after_the_same_time(restarting: Restarting) -> None:
    restarting.runs()
    restarting.read()
    restarting.kubelet.restart()
    assert restarting.waits(SECONDS - 0.1) == "KubeletStarting"
    assert restarting.waits(0.1) == ""


@pytest.mark.parametrize("gone", ["folder", "CPUs", "entry"])
def test_a_pod_has_ended_whose_folder_or_entry_the_kubelet_has_removed(gone: str, with_files: Restarting) -> None:
    """It removes them only once it knows all its pods. What a pod holds of memory stays longer."""
    kubelet = with_files.kubelet
    for uid in ("a", "b"):
        (kubelet.folder / "pods" / uid).mkdir(parents=True)
    with_files.runs("a", "b")
    if gone == "CPUs":
        keep_memory(kubelet, "b")
        with_files.pods["b"] = pod("b", container("main", [4, 5], memory={0: 1 << 30}))
        with_files.lists("a", "b")
    assert not with_files.read().reason
    kubelet.restart(CPUS)
    with_files.lists("a")
    assert with_files.read().reason == "KubeletStarting"
    if gone == "folder":
        (kubelet.folder / "pods" / "b").rmdir()
    else:
        kubelet.keep(a={"main": "1-2"})
    assert not with_files.read().reason


def test_the_only_pod_has_ended_once_no_pod_has_a_folder(with_files: Restarting) -> None:
    folder = with_files.kubelet.folder / "pods" / "a"
    folder.mkdir(parents=True)
    with_files.runs("a")
    assert not with_files.read().reason
    with_files.kubelet.restart(CPUS)
    assert with_files.read().reason == "KubeletStarting"
    folder.rmdir()
    assert not with_files.read().reason


def test_what_an_ended_pod_had_left_before_the_kubelet_started_is_not_waited_for(with_files: Restarting) -> None:
    """The memory and the devices of a pod that has ended stay in the files until the next admission."""
    with_files.runs("a", "b")
    with_files.lists("a")
    assert [entry.uid for entry in with_files.read().stale] == ["b"]
    with_files.kubelet.restart(CPUS)
    assert with_files.read().reason == "KubeletStarting"
    with_files.lists("a")
    allocations = with_files.read()
    assert (allocations.reason, [entry.uid for entry in allocations.stale]) == ("", ["b"])


# Kubelets before 1.34 list pods that have ended, as one of 1.32.5 was seen to


def _end(kubelet: Kubelet, uid: str, devices: bool) -> None:
    """The pod has ended: its CPUs are free, and the files keep its memory and devices until the next admission."""
    kubelet.shows(pod("p", container("main", memory={0: 1 << 30})))
    kubelet.keep()
    keep_memory(kubelet, uid)
    if devices:
        entry = {"PodUID": uid, "ContainerName": "main", "ResourceName": "vendor.com/gpu", "DeviceIDs": {"0": ["g"]}}
        write_state(kubelet.folder, DEVICE_STATE, {"Data": {"PodDeviceEntries": [entry]}, "Checksum": 7})


def keep_memory(kubelet: Kubelet, *uids: str, **pods: list[str]) -> None:
    """Memory of NUMA node 0 by uid and container; of a uid alone, of its container main."""
    block = {"numaAffinity": [0], "type": "memory", "size": 1 << 30}
    held = pods | {uid: ["main"] for uid in uids}
    entries = {uid: {name: [block] for name in names} for uid, names in held.items()}
    content = {"policyName": "Static", "machineState": {}, "entries": entries, "checksum": 7}
    write_state(kubelet.folder, MEMORY_STATE, content)


def test_a_pod_that_is_listed_without_its_devices_has_ended(kubelet: Kubelet, reader: AllocationReader) -> None:
    _end(kubelet, "u1", devices=True)
    allocations = reader.read(lists_ended=True)
    assert (allocations.reason, allocations.pods) == ("", ())
    assert [left.uid for left in allocations.stale] == ["u1"]
    assert reader.read(lists_ended=True) is allocations


def test_a_pod_that_lost_its_cpus_has_ended(kubelet: Kubelet, reader: AllocationReader) -> None:
    kubelet.shows(pod("p", container("main", [1, 2], memory={0: 1 << 30})))
    kubelet.keep(u1={"main": "1-2"})
    keep_memory(kubelet, "u1")
    assert [active.uid for active in reader.read(lists_ended=True).pods] == ["u1"]
    _end(kubelet, "u1", devices=False)
    allocations = reader.read(lists_ended=True)
    assert (allocations.reason, allocations.pods) == ("", ())
    assert [left.uid for left in allocations.stale] == ["u1"]


def test_a_pod_of_the_same_name_that_comes_after_one_that_ended_is_active(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    _end(kubelet, "u1", devices=True)
    reader.read(lists_ended=True)
    kubelet.shows(pod("p", container("main", [3])))
    kubelet.keep(u2={"main": "3"})
    allocations = reader.read(lists_ended=True)
    assert [active.uid for active in allocations.pods] == ["u2"]


def test_a_kubelet_that_lists_active_pods_alone_and_disagrees_with_its_files_is_not_believed(
    kubelet: Kubelet, reader: AllocationReader
) -> None:
    _end(kubelet, "u1", devices=True)
    assert reader.read().reason == "Inconsistent"


def test_a_pod_without_cpus_and_devices_stays_active(kubelet: Kubelet, reader: AllocationReader) -> None:
    _end(kubelet, "u1", devices=False)
    assert [active.uid for active in reader.read(lists_ended=True).pods] == ["u1"]


def test_the_files_that_a_restart_would_read_count_once_they_stay(kubelet: Kubelet, reader: AllocationReader) -> None:
    """A manager that moves CPUs writes its file twice, and between the two they are nowhere."""
    kubelet.keep(u1={"main": "1"})
    first = reader.read()
    assert b'"u1"' in first.files.content[CPU_STATE]
    assert reader.read() is first
    kubelet.keep()
    between = reader.read()
    assert between.files is first.files
    kubelet.keep(u2={"main": "2"})
    assert reader.read().files is first.files
    settled = reader.read()
    assert b'"u2"' in settled.files.content[CPU_STATE]
    assert reader.read() is settled


def test_the_files_of_a_kubelet_that_is_down_are_read(tmp_path: Path) -> None:
    (tmp_path / CPU_STATE).write_bytes(b"torn")
    for socket in (None, tmp_path / "nothing.sock"):
        assert AllocationReader(socket, tmp_path).read().files.content == {CPU_STATE: b"torn"}


def test_the_files_are_named_as_the_host_names_them(tmp_path: Path) -> None:
    (tmp_path / CPU_STATE).write_bytes(b"torn")
    assert AllocationReader(None, tmp_path).read().files.folder == str(tmp_path)
    mounted = AllocationReader(None, tmp_path, root_dir="/var/lib/kubelet")
    assert mounted.read().files.folder == "/var/lib/kubelet"
