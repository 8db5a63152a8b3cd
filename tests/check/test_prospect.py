"""What is told of a cluster before topomend is installed."""

import pytest
from tests.builders import refused_pod, watched_pod

from topomend.check.prospect import TOLD, KnownNode, kinds_of, lines, refused_pods
from topomend.decide.eligibility import Treatment
from topomend.model.pods.scheduling import Owner

REPLICA_SET = Owner("ReplicaSet", "web", "uid", "apps/v1")
JOB = Owner("Job", "train", "uid", "batch/v1")


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (KnownNode("a", "v1.33.0"), TOLD),
        (KnownNode("a", "v1.37.2+k3s1"), TOLD),
        (KnownNode("a", "v1.32.9", cure="apply deploy/components/kubeadm"), "apply deploy/components/kubeadm"),
        (KnownNode("a", "v1.29.1"), "replay is not exact: "),
        (KnownNode("a", "v1.33.0", linux=False), "no agent runs there"),
    ],
)
def test_how_an_agent_would_learn_a_kubelets_settings_depends_on_its_release(node: KnownNode, words: str) -> None:
    (kind,) = kinds_of([node])
    assert words in kind.settings
    assert kind.is_read == (words == TOLD)


def test_nodes_of_one_kind_are_counted_together_the_most_frequent_first() -> None:
    nodes = [KnownNode(name, "v1.36.0", "Ubuntu") for name in "cab"] + [KnownNode("d", "v1.35.0", "Ubuntu")]
    first, second = kinds_of(nodes)
    assert (first.release, first.nodes, second.nodes) == ("v1.36.0", ("a", "b", "c"), ("d",))


def test_each_refused_pod_is_told_what_would_have_been_done_about_it() -> None:
    pods = [
        refused_pod("bare"),
        refused_pod("replica", owner=REPLICA_SET),
        refused_pod("worker", owner=JOB),
        refused_pod("out", relaunch="false"),
        watched_pod("other", phase="Failed", reason="Evicted"),
    ]
    told = {pod.name: pod.treatment for pod in refused_pods(pods)}
    assert told == {
        "bare": Treatment.RELAUNCH,
        "out": Treatment.LEAVE,
        "replica": Treatment.CLEAR,
        "worker": Treatment.LEAVE,
    }


def test_the_answer_names_nodes_objects_effects_and_pods() -> None:
    kinds = kinds_of([KnownNode("a", "v1.36.0", "Ubuntu 24.04")])
    text = list(lines("v1.37.2", kinds, refused_pods([refused_pod("bare")]), {"Namespace": 2}, policies=True))
    assert text[0].startswith("Kubernetes v1.37.2; new pods would be gated and stamped by MutatingAdmissionPolicies")
    assert f"  1 of v1.36.0, Ubuntu 24.04 (a): {TOLD}" in text
    assert "Objects: 2 Namespace" in text
    assert any(line.startswith("  preemption is on") for line in text)
    assert any(line.startswith("  ns/bare (TopologyAffinityError): would be relaunched") for line in text)
    assert "observe" in text[-1]
