"""A kubelet that refuses pods which replay admits: the operator reports the mismatch and no longer chooses the node."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, events_of, pod
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.model.nodes.node_state import Device
from topomend.replay.admission import admit
from topomend.wire.pods.pod import read_pod

pytestmark = pytest.mark.cluster


def test_a_node_that_refuses_three_times_what_replay_admits_is_not_chosen_until_its_topology_changes(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    true = fragmented.states[NODE_A]
    fragmented.publish(replace(true, pods=(), memory=None))  # a lie: its fillers are still there
    operator = start_operator()
    operator.wait_until_it_watches()
    for number in range(3):
        made = fragmented.create(
            pod(f"refused-{number}", 3, node=NODE_A, annotations={"topomend.io/relaunch": "false"})
        )
        events = eventually("a report to be asked for", partial(events_of, fragmented, made, "ReplayMismatch"))
        assert "please report it" in events[0]["note"]
    gated = pod("gated", 3)
    gated["spec"] |= {
        "nodeSelector": {"kubernetes.io/hostname": NODE_A},
        "schedulingGates": [{"name": "topomend.io/fit"}],
    }
    made = fragmented.create(gated)
    deferred = eventually("the delay to be reported", lambda: events_of(fragmented, made, "UngateDeferred"))
    assert "not decide as replay does" in deferred[0]["note"]
    fragmented.publish(true)
    fragmented.vacate(NODE_A, "filler-1")
    time.sleep(2)  # long enough to be ungated, if the node were trusted
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
    full = other
    for cpus in (3, 4):
        full = admit(full, read_pod({**pod("", cpus), "metadata": {"name": f"wide-{cpus}", "namespace": "default"}}))[1]
    fragmented.publish(full)  # and this one is empty
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
    operator = start_operator(constants={"cache.changes.pods.UNBOUND_SECONDS": 2.0})
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
