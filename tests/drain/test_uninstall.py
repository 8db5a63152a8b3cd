"""Uninstalling on a real API server and kubelets: in any order, killed anywhere, nothing is lost and nothing left."""

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import COLLECTOR_SECONDS, CRDS, SYSTEM, pod
from tests.drain.conftest import DENIED, PARAMETERS, STEERED, Installed
from tests.faults.proxy import HangUp, Moment, Proxy, Write
from tests.seeds import SEED
from tests.waiting import consistently, eventually

from topomend.drain.drain import IN_FORCE_SECONDS
from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import (
    BRAKES,
    LEASES,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    PODS,
    RELAUNCHES,
)
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import (
    BRAKE,
    BRAKE_NAME,
    FIT_GATE,
    PLACEHOLDER_GATE,
    RECORD_ANNOTATION,
    RELAUNCH_FINALIZER,
    RELAUNCH_GATE,
    REPLACES_ANNOTATION,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_drain_says_what_it_would_do_and_does_nothing(loaded: Installed) -> None:
    before = _uses(loaded)
    drained = loaded.drain("--dry-run")
    assert drained.code == 0
    assert "would be drained" in drained.lines[-1]
    for word in (
        f"pod {STEERED}/steered",
        "pod default/web-",
        f"pod {SYSTEM}/placeholder-",
        f"relaunch {DENIED}/lost-",
        "Deployment topomend-system",
    ):
        assert any(line.startswith(word) for line in drained.lines), word
    assert before == _uses(loaded)
    assert len(loaded.placeholders()) >= 2
    assert all(replica.operator.process.poll() is None for replica in loaded.replicas)


def _uses(installed: Installed) -> set[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Every pod's gates and finalizers, where it has any; of placeholders there may be another at any time.

    A refused replica has none, and is cleared away at any time too.
    """
    pods = [leftover for leftover in installed.pods() if leftover.any and PLACEHOLDER_GATE not in leftover.gates]
    return {(leftover.uid, leftover.gates, leftover.finalizers) for leftover in pods}


def test_drain_then_delete(loaded: Installed) -> None:
    loaded.allow()
    drained = loaded.drain()
    assert drained.code == 0
    assert drained.lines[-1].startswith("drained: ")
    loaded.assert_nothing_is_left_or_lost()
    eventually(
        "the operators to end", lambda: all(replica.operator.process.poll() is not None for replica in loaded.replicas)
    )
    assert loaded.drain(hurries=True).lines == ("drained: nothing to do",)
    deleting = loaded.start_delete()
    out, _ = deleting.communicate(timeout=240)
    assert deleting.returncode == 0, out
    assert loaded.drain(hurries=True).lines == ("drained: nothing to do",)
    loaded.cluster.create(pod("after", 1))
    assert [leftover for leftover in loaded.pods() if leftover.any] == []


def test_delete_then_drain(loaded: Installed) -> None:
    deleting = loaded.start_delete()
    eventually("the kind to be going", lambda: _is_going(_crd(loaded)))
    eventually(
        "the operators to end", lambda: all(replica.operator.process.poll() is not None for replica in loaded.replicas)
    )
    eventually("the deletion to reach the records", lambda: all(map(_is_going, _records(loaded))))
    assert loaded.steps(DENIED) == ["Blocked", "Blocked"], "the only copy of a pod is kept"
    assert deleting.poll() is None
    loaded.allow()
    drained = loaded.drain()
    assert drained.code == 0
    loaded.assert_nothing_is_left_or_lost()
    out, _ = deleting.communicate(timeout=240)
    assert deleting.returncode == 0, out
    assert loaded.drain(hurries=True).code == 0


def _records(installed: Installed) -> Sequence[dict[str, Any]]:
    """Those of pods that cannot be created."""
    return installed.cluster.client.list(RELAUNCHES, namespace=DENIED).items


def _is_going(content: dict[str, Any]) -> bool:
    return "deletionTimestamp" in content["metadata"]


@pytest.mark.night  # half a minute; make e2e drains as installed
def test_drain_after_the_operator_was_killed(loaded: Installed) -> None:
    for replica in loaded.replicas:
        replica.operator.kill()
    loaded.allow()
    assert loaded.drain().code == 0
    loaded.assert_nothing_is_left_or_lost()


def test_what_cannot_be_done_is_left_with_its_reason_and_done_by_the_next_drain(loaded: Installed) -> None:
    drained = loaded.drain("--timeout", "10", hurries=True)
    assert drained.code == 1
    (left,) = [line for line in drained.lines if line.startswith("not drained: ")]
    assert left.startswith(f"not drained: relaunch {DENIED}/lost-")
    assert "exceeded quota" in left
    loaded.allow()
    assert loaded.drain().code == 0
    loaded.assert_nothing_is_left_or_lost()


@pytest.mark.night
def test_a_drain_that_is_killed_anywhere_is_run_again(loaded: Installed, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    loaded.allow()
    proxy = Proxy(loaded.cluster.sandbox.kubeconfig, tmp_path, uncounted=("leases",))
    try:
        for life in range(12):
            drain = loaded.start_drain(kubeconfig=proxy.kubeconfig)
            last, moment = len(proxy.written) + rng.randint(1, 3), rng.choice([*Moment])

            def kill(written: Write, now: Moment, last: int = last, moment: Moment = moment, drain=drain) -> None:  # type: ignore[no-untyped-def]
                if (written.number, now) == (last, moment):
                    drain.kill()
                    raise HangUp("the client is dead")

            proxy.fault = kill
            drain.communicate(timeout=240)
            print(f"life {life}: write {last} {moment.value}: {drain.returncode}")
            if drain.returncode == 0:
                break
        proxy.fault = lambda *_: None
        assert loaded.drain().code == 0
    finally:
        proxy.close()
    loaded.assert_nothing_is_left_or_lost()


@pytest.mark.night  # half a minute; make e2e drains as installed
def test_drain_without_kinds_operator_and_policies(installed: Installed) -> None:
    for replica in installed.replicas:
        replica.end()
    deleting = installed.start_delete()
    out, _ = deleting.communicate(timeout=240)
    assert deleting.returncode == 0, out
    cluster = installed.cluster
    gated = pod("gated", 1)
    gated["spec"]["schedulingGates"] = [{"name": FIT_GATE}, {"name": "example.com/other"}]
    ours = {RECORD_ANNOTATION: "gone-0123456789", REPLACES_ANNOTATION: "gone", "example.com/mine": "stays"}
    waiting = pod("waiting", 1, annotations=ours, labels={"topomend.io/x": "y", "app": "stays"})
    waiting["spec"]["schedulingGates"] = [{"name": RELAUNCH_GATE}]
    claimed = pod("claimed", 1, finalizers=[RELAUNCH_FINALIZER], annotations={RECORD_ANNOTATION: "claimed-0123456789"})
    made = [cluster.create(content) for content in (gated, waiting, claimed)]
    drained = installed.drain(hurries=True)
    assert drained.code == 0
    assert [leftover for leftover in installed.pods() if leftover.any] == []
    assert cluster.get("gated")["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
    metadata = cluster.get("waiting")["metadata"]
    assert (metadata["annotations"], metadata["labels"]) == ({"example.com/mine": "stays"}, {"app": "stays"})
    eventually("the others to run", lambda: cluster.running("waiting") and cluster.running("claimed"))
    assert [cluster.get(content["metadata"]["name"])["metadata"]["uid"] for content in made] == [
        content["metadata"]["uid"] for content in made
    ]
    assert installed.drain(hurries=True).lines == ("drained: nothing to do",)


@pytest.mark.night  # half a minute; make e2e drains as installed
def test_an_operator_that_runs_elsewhere_is_kept_from_writing_and_told_of(installed: Installed) -> None:
    for replica in installed.replicas:
        replica.end()
    stranger = installed.start_stranger()
    try:
        eventually("it to lead", lambda: "this operator leads" in stranger.text(), 60)
        drained = installed.drain(hurries=True)
        assert drained.code == 1
        assert any(line.startswith("not drained: operator elsewhere: ") for line in drained.lines)
        eventually("it to see that it no longer leads", lambda: "no longer leads" in stranger.text())
        lease = installed.cluster.client.get(LEASES, "topomend-operator", SYSTEM)["spec"]
        assert lease["holderIdentity"].startswith("kubectl-numa-drain_")
        assert lease["leaseDurationSeconds"] == 3600
    finally:
        stranger.terminate()


@pytest.mark.night  # half a minute; make e2e drains as installed
def test_a_drain_waits_for_an_operator_that_is_still_ending(installed: Installed) -> None:
    """The last one of a rollout keeps creating the objects while it ends; nobody outside the Deployment does."""
    ending = _begin_to_end(installed, "ending")
    draining = installed.start_drain()
    eventually(
        "the operators to end", lambda: all(one.operator.process.poll() is not None for one in installed.replicas)
    )
    eventually("the objects to be deleted", lambda: not any(map(installed.exists, PARAMETERS)), 60)

    def owns_and_drains() -> bool:
        _own_again(installed, ending)
        return draining.poll() is None

    consistently("the drain", owns_and_drains, IN_FORCE_SECONDS + 3)
    installed.cluster.client.merge(PODS, "ending", {"metadata": {"finalizers": None}}, SYSTEM)
    out, _ = draining.communicate(timeout=240)
    assert draining.returncode == 0, out
    assert not any(map(installed.exists, PARAMETERS))


def _own_again(installed: Installed, pod: dict[str, Any]) -> None:
    """Create the brake's object as the operator in ``pod`` does where it is missing."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    metadata = {"name": BRAKE_NAME, "ownerReferences": [owner]}
    valid_until = timestamp(datetime.now(UTC) + timedelta(minutes=5))
    content = {"apiVersion": BRAKES.api_version, "kind": BRAKE, "metadata": metadata, "validUntil": valid_until}
    with suppress(AlreadyExists):
        installed.cluster.client.create(BRAKES, content, SYSTEM)


def _begin_to_end(installed: Installed, name: str) -> dict[str, Any]:
    """A pod that ends as long as a test wants, in the operator's namespace, where all must be restricted."""
    content = pod(name, 1, finalizers=["example.com/held"])
    content["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    content["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    made = installed.cluster.create(content, SYSTEM)
    installed.cluster.remove(made)
    return made


def _crd(installed: Installed) -> dict[str, dict[str, str]]:
    return installed.cluster.client.get(CRDS, "relaunches.topomend.io")


def test_a_drain_deletes_whatever_acts_on_new_pods(installed: Installed) -> None:
    client = installed.cluster.client
    assert installed.drain(hurries=True).code == 0
    for resource in (MUTATING_WEBHOOKS, MUTATING_ADMISSION_POLICY_BINDINGS):
        assert not client.list(resource, labels="app.kubernetes.io/name=topomend").items
    eventually("the policies to follow", lambda: not client.list(MUTATING_ADMISSION_POLICIES).items, COLLECTOR_SECONDS)
    assert not installed.cluster.client.list(PODS, namespace=SYSTEM).items
