"""A kubelet that refuses what replay of its published state admits: asked for reports, and no longer chosen."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.controller.conftest import NODE_A, NODE_B, Cluster, Operator, events_of, pod, wait_for

from topomend.model.node_state import Device
from topomend.replay.admission import admit
from topomend.wire.pod import read_pod

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
        told = wait_for("a report to be asked for", partial(events_of, fragmented, made, "ReplayMismatch"))
        assert "please report it" in told[0]["note"]
    gated = pod("gated", 3)
    gated["spec"] |= {
        "nodeSelector": {"kubernetes.io/hostname": NODE_A},
        "schedulingGates": [{"name": "topomend.io/fit"}],
    }
    made = fragmented.create(gated)
    deferred = wait_for("the delay to be told", lambda: events_of(fragmented, made, "UngateDeferred"))
    assert "1 with replay mismatches" in deferred[0]["note"]
    fragmented.publish(true)
    fragmented.vacate(NODE_A, "filler-1")
    time.sleep(2)  # long enough to be let go, if the node were trusted
    assert fragmented.get("gated")["spec"].get("schedulingGates")
    state = fragmented.states[NODE_A]
    fragmented.publish(replace(state, devices=(*state.devices, Device("vendor.com/gpu", "gpu-0", (0,)))))
    running = wait_for("it to run", lambda: fragmented.running("gated"))
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
    refused = wait_for(
        "its refusal", lambda: [each for each in fragmented.records() if each["spec"]["pod"]["name"] == "gated"]
    )
    assert "affinity" not in refused[0]["spec"]["manifest"]["spec"]
    fragmented.publish(other)
    running = wait_for("it to run", lambda: fragmented.running("gated"))
    assert running["spec"]["nodeName"] == NODE_B
    fragmented.publish(true)


@pytest.mark.timeout(120)
def test_an_ungated_pod_that_no_scheduler_binds_is_reported(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """Slow: a scheduler is given half a minute."""
    operator = start_operator()
    operator.wait_until_it_watches()
    nobody = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    gated = pod("alone", 3)
    gated["spec"] |= {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}},
        "schedulingGates": [{"name": "topomend.io/fit"}],
    }
    made = fragmented.create(gated)
    told = wait_for("it to be told", partial(events_of, fragmented, made, "NotScheduled"), 75)
    assert told[0]["note"].startswith("Ungated for nodes numa-b but not scheduled")
    assert not fragmented.get("alone")["spec"].get("schedulingGates")
    assert "Traceback" not in operator.text()
