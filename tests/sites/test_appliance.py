"""An appliance whose operators recreate refused pods by hand: they need not, and nothing breaks if they do."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.sites.site import SITES, Site, node_of, site
from tests.waiting import consistently, eventually

from topomend.kube.resources import PODS, RELAUNCHES

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(300)]

FOLDER, REFUSED, PINNED = "appliance", "isolcpu-error", "isolcpu-pinned"

SHAPE = "sockets:2 cores:4 threads:2 memory:16Gi device:windriver.com/isolcpus@0=4,1=4"


@pytest.fixture(scope="module")
def appliance() -> Iterator[Site]:
    """One host, whose two processors have an isolated CPU left each."""
    with site([node_of("node-1", SHAPE, SITES / FOLDER / "kubelet.yaml")]) as up:
        yield up


@pytest.fixture
def full(appliance: Site) -> Iterator[Site]:
    appliance.apply(f"{FOLDER}/fill.yaml")
    eventually("both pods to run", lambda: appliance.running_of("fill", 2))
    yield appliance
    for content in appliance.client.list(PODS, namespace="default").items:
        appliance.remove(content)
    eventually("the host to be empty", lambda: not appliance.client.list(PODS, namespace="default").items)


def make_room(full: Site) -> float:
    """End a pod, and return when it had ended, by the clock of this process."""
    content = full.get("isolcpu-1")
    full.client.delete(PODS, "isolcpu-1", "default", uid=content["metadata"]["uid"])
    eventually("the pod to be gone", lambda: full.is_gone("isolcpu-1"))
    return time.monotonic()


def refuse(full: Site, name: str, file: str) -> dict[str, Any]:
    """Create a pod that the kubelet refuses."""
    full.apply(f"{FOLDER}/{file}")
    eventually("it to be refused", lambda: full.phase(name) == "Failed", poll=0.02)
    assert full.get(name)["status"]["reason"] == "TopologyAffinityError"
    return full.get(name)


def test_nobody_has_to_recreate_the_refused_pod(full: Site) -> None:
    made = refuse(full, REFUSED, "refused.yaml")
    assert "would be admitted with 1 windriver.com/isolcpus or once default/isolcpu-" in full.told(
        made, "TopologyRefusalExplained"
    )
    full.told(made, "RelaunchDeferred")
    room = make_room(full)
    # The operator tries each waiting pod once a minute as well: that is not what this waits for.
    running = eventually("it to run", lambda: full.running(REFUSED), 20, poll=0.02)
    print(f"it ran {time.monotonic() - room:.2f} s after the room")
    assert running["metadata"]["uid"] != made["metadata"]["uid"]
    (record,) = full.client.list(RELAUNCHES, namespace="default").items
    assert record["spec"]["pod"]["uid"] == made["metadata"]["uid"]
    eventually("it to be on one processor", lambda: full.is_aligned(REFUSED))


def test_whoever_recreates_it_by_hand_has_one_pod_that_runs(full: Site) -> None:
    made = refuse(full, REFUSED, "refused.yaml")
    full.told(made, "RelaunchDeferred")
    room = make_room(full)
    full.sandbox.kubectl("delete", "pod", REFUSED, "--ignore-not-found")
    full.apply(f"{FOLDER}/refused.yaml")
    eventually("it to run", lambda: full.running(REFUSED), 20, poll=0.02)
    print(f"it ran {time.monotonic() - room:.2f} s after the room, and after two commands")
    uid = full.get(REFUSED)["metadata"]["uid"]

    def is_alone() -> bool:
        pods = [pod for pod in full.pods() if pod["metadata"]["name"].startswith(REFUSED)]
        return [pod["metadata"]["uid"] for pod in pods] == [uid]

    consistently("the one running pod", is_alone, 3)
    eventually("it to be on one processor", lambda: full.is_aligned(REFUSED))


def test_a_pod_that_its_user_bound_is_explained_and_left_as_it_is(full: Site) -> None:
    made = refuse(full, PINNED, "pinned.yaml")
    assert "topomend.io/relaunch-pinned" in full.told(made, "RelaunchSkipped")
    make_room(full)
    consistently("the refused pod", lambda: full.phase(PINNED) == "Failed", 3)
    full.sandbox.kubectl("delete", "pod", PINNED)
    full.apply(f"{FOLDER}/pinned.yaml")
    eventually("it to run", lambda: full.running(PINNED))
