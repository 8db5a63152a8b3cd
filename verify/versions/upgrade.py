"""The trial of an upgrade of the control plane while pods are relaunched, gated and braked."""

import time
from functools import partial

from tests.waiting import eventually
from verify.versions.cluster import WIDE, cordon, nodes, refuse, running, runs, say, wide_pod
from verify.versions.new_pods import STEERED, NewPods, create_namespaces, is_gated
from verify.versions.storm import MOST_REFUSED, Storm

from topomend.kube.client import connect
from topomend.kube.resources import PODS, RELAUNCHES
from topomend.sandbox import Sandbox

SETTLED_SECONDS = 10.0
"""For how long nothing may happen after all pods run again."""


def try_upgrade(release: str, following: str) -> str:
    """Upgrade a control plane while pods are relaunched, gated and braked, and new ones are created.

    Each bare pod runs again exactly once; no steered pod is refused, each is gated when it is created, and each runs.
    """
    bare, steered = [f"bare-{number}" for number in range(6)], [f"steered-{number}" for number in range(4)]
    with Sandbox.up(nodes(release, 26), version=release, topomend=True, on_progress=say) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        try:
            uids = {refuse(client, name)["metadata"]["uid"] for name in bare}
            create_namespaces(client)  # returns once new pods are gated, so that the storm meets a brake
            with Storm(client) as storm:
                for name in steered:
                    assert is_gated(client.create(PODS, wide_pod(name), STEERED)), name
                with NewPods(client) as new_pods:
                    cordon(client, WIDE, unschedulable=False)
                    sandbox.upgrade_control_plane(following, say)
                    begin = time.monotonic()
                    for name in bare:
                        eventually(f"{name} to run on {WIDE}", partial(runs, client, name), 120)
                    eventually("steered pods to run", lambda: len(running(client, STEERED)) == len(steered), 120)
                    eventually("the replica to run", lambda: running(client, labels="app=storm"), 120)
                    seconds = time.monotonic() - begin
                    time.sleep(SETTLED_SECONDS)
            pods = client.list(PODS, namespace="default").items
            names = sorted(pod["metadata"]["name"] for pod in pods if "app" not in pod["metadata"].get("labels", {}))
            assert names == bare, names
            relaunched = [item["spec"]["pod"]["uid"] for item in client.list(RELAUNCHES).items]
            assert all(relaunched.count(uid) <= 1 for uid in uids), relaunched
            assert storm.refused <= MOST_REFUSED, f"{storm.refused} pods of one replica were refused"
            assert new_pods.gated == new_pods.created > 0, f"{new_pods.gated} of {new_pods.created} new pods were gated"
        finally:
            client.close()
    return f"{following}: all run after {seconds:.1f} s, {new_pods.gated} of {new_pods.created} gated"
