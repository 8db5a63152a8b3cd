"""A kubelet that refuses pods which replay admits: the operator reports the mismatch and no longer chooses the node."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, events_of, pod
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.model.nodes.node_state import Device, NodeState
from topomend.replay.admission import admit
from topomend.wire.pods.pod import read_pod

pytestmark = pytest.mark.cluster


AT_ONCE = {"controller.ingest.PUBLICATION_SECONDS": 0.0}
"""What nodes publish is taken in as it comes, and not five times a second."""


def _full(state: NodeState) -> NodeState:
    """An empty node as it would be with a pod on each NUMA node."""
    for cpus in (3, 4):
        content = {**pod("", cpus), "metadata": {"name": f"wide-{cpus}", "namespace": "default"}}
        state = admit(state, read_pod(content))[1]
    return state


def _gated_for(node: str, name: str) -> dict[str, Any]:
    content = pod(name, 3)
    content["spec"] |= {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "schedulingGates": [{"name": "topomend.io/fit"}],
    }
    return content


def test_a_node_that_refuses_three_times_what_replay_admits_is_not_chosen_until_its_topology_changes(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    true = fragmented.states[NODE_A]
    fragmented.publish(replace(true, pods=(), memory=None))  # a lie: its fillers are still there
    full, empty = _full(fragmented.states[NODE_B]), fragmented.states[NODE_B]
    fragmented.publish(full)
    operator = start_operator(constants=AT_ONCE)
    operator.wait_until_it_watches()
    for number in range(3):
        made = fragmented.create(
            pod(f"refused-{number}", 3, node=NODE_A, annotations={"topomend.io/relaunch": "false"})
        )
        events = eventually("a report to be asked for", partial(events_of, fragmented, made, "ReplayMismatch"))
        assert "please report it" in events[0]["note"]
    made = fragmented.create(_gated_for(NODE_A, "gated"))
    deferred = eventually("the delay to be reported", lambda: events_of(fragmented, made, "UngateDeferred"))
    assert "not decide as replay does" in deferred[0]["note"]
    other = fragmented.create(_gated_for(NODE_B, "other"))
    eventually("the other to wait", lambda: events_of(fragmented, other, "UngateDeferred"))
    fragmented.publish(true)
    fragmented.vacate(NODE_A, "filler-1")
    fragmented.publish(empty)  # what is published later is seen later
    eventually("the other to run", lambda: fragmented.running("other"))
    assert fragmented.get("gated")["spec"].get("schedulingGates")
    state = fragmented.states[NODE_A]
    fragmented.publish(replace(state, devices=(*state.devices, Device("vendor.com/gpu", "gpu-0", (0,)))))
    running = eventually("it to run", lambda: fragmented.running("gated"))
    assert running["spec"]["nodeName"] == NODE_A
    fragmented.publish(state)
    assert "Traceback" not in operator.text()


def test_a_pod_that_was_fitted_to_one_node_and_refused_there_may_go_to_any_other_afterwards(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    true, other = fragmented.states[NODE_A], fragmented.states[NODE_B]
    fragmented.publish(replace(true, pods=(), memory=None))  # a lie: its fillers are still there
    fragmented.publish(_full(other))  # and this one is empty
    start_operator().wait_until_it_watches()
    gated = pod("gated", 3)
    gated["spec"]["schedulingGates"] = [{"name": "topomend.io/fit"}]
    fragmented.create(gated)
    refused = eventually(
        "its refusal", lambda: [record for record in fragmented.records() if record["spec"]["pod"]["name"] == "gated"]
    )
    assert "manifest" not in refused[0].get("status", {})
    fragmented.publish(other)
    running = eventually("it to run", lambda: fragmented.running("gated"))
    assert running["spec"]["nodeName"] == NODE_B
    fragmented.publish(true)


def test_an_ungated_pod_that_no_scheduler_binds_is_reported(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """A scheduler is given two seconds, not half a minute."""
    patience = {"reconcile.refused.unbound_pods.PATIENCE_SECONDS": 600.0}  # nor does another pod take its place
    operator = start_operator(constants={"cache.changes.pods.UNBOUND_SECONDS": 2.0} | patience)
    operator.wait_until_it_watches()
    nobody = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    gated = pod("alone", 3)
    gated["spec"] |= {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}},
        "schedulingGates": [{"name": "topomend.io/fit"}],
    }
    made = fragmented.create(gated)
    events = eventually("the event", partial(events_of, fragmented, made, "NotScheduled"))
    assert events[0]["note"].startswith("Ungated for nodes numa-b but not scheduled")
    assert not fragmented.get("alone")["spec"].get("schedulingGates")
    assert "Traceback" not in operator.text()
