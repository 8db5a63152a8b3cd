"""After an operator disappears without a drain, new pods are not gated: the policies' parameters disappear with it."""

import time

import pytest
from tests.clusters import COLLECTOR_SECONDS, DEPLOYMENTS, SYSTEM
from tests.drain.conftest import PARAMETERS, Installed
from tests.waiting import eventually

from topomend.kube.resources import PODS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.mark.night  # it waits for a lease to end; e2e_leftovers has it as installed
def test_new_pods_are_not_gated_once_the_operators_pods_are_gone(installed: Installed) -> None:
    eventually("steering to be in force", installed.is_steered)
    scale = {"spec": {"replicas": 0}}
    installed.cluster.client.merge(DEPLOYMENTS, "topomend-operator", scale, SYSTEM, subresource="scale")
    begun = time.monotonic()
    eventually("the parameters to be collected", lambda: not any(map(installed.exists, PARAMETERS)), COLLECTOR_SECONDS)
    print(f"collected after {time.monotonic() - begun:.1f} s")
    eventually("no new pod to be gated", lambda: not installed.is_steered())


def test_a_rolling_upgrade_leaves_no_moment_without_them(installed: Installed) -> None:
    uids = {parameter: installed.uid(parameter) for parameter in PARAMETERS}
    before = set(installed.owners(PARAMETERS[0]))
    stop = installed.follow_the_deployment()
    try:
        patch = {"spec": {"template": {"metadata": {"annotations": {"upgraded": "yes"}}}}}
        installed.cluster.client.merge(DEPLOYMENTS, "topomend-operator", patch, SYSTEM)

        def is_upgraded() -> bool:
            for parameter in PARAMETERS:
                assert installed.uid(parameter) == uids[parameter], "it was collected and made anew"
            running = _running(installed)
            return not before & running and len(running) == 2

        eventually("the upgrade to end", is_upgraded, 180, poll=0.01)
        eventually("the new pods to own them", lambda: _running(installed) <= set(installed.owners(PARAMETERS[0])))
        eventually("the old owners to be taken off", lambda: not before & set(installed.owners(PARAMETERS[0])), 90)
        assert is_upgraded()
    finally:
        stop()


def test_a_parameter_that_somebody_deletes_is_made_again_by_any_replica(installed: Installed) -> None:
    resource, name = PARAMETERS[1]
    installed.replicas[0].end()
    installed.cluster.client.delete(resource, name, SYSTEM, uid=installed.uid(PARAMETERS[1]))
    eventually("it to be made again", lambda: installed.exists(PARAMETERS[1]), 30)


def _running(installed: Installed) -> set[str]:
    pods = installed.cluster.client.list(PODS, namespace=SYSTEM).items
    return {content["metadata"]["uid"] for content in pods if "deletionTimestamp" not in content["metadata"]}
