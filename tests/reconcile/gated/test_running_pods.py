"""What is kept of the pods that run on a node."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.decide.eligibility import Limits, why_opted_out
from topomend.model.pods.pod import requests_of
from topomend.reconcile.gated.running_pods import MAX_RESOURCES, _read
from topomend.wire import group
from topomend.wire.group import RELAUNCH_ANNOTATION


def test_of_a_running_pod_neither_its_rules_about_nodes_nor_each_container_are_kept() -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 1_000}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"overhead": {"cpu": "1"}, "affinity": {"nodeAffinity": required}}
    large = pod_manifest("large", *["request:cpu=10m"] * 100, node="n", spec=spec, uid="1", namespace="default")
    (kept,) = _read(large)
    assert requests_of(kept.pod) == {"cpu": 2_000}
    assert (len(kept.pod.containers), kept.placement.terms, kept.node_affinity) == (1, None, {})
    assert (kept.namespace, kept.name, kept.uid, kept.node) == ("default", "large", "1", "n")


LONG = "x" * 200_000
ANNOTATIONS = sorted(
    {value for name, value in vars(group).items() if name.endswith("_ANNOTATION") and isinstance(value, str)}
)


def test_of_a_running_pod_no_long_text_is_kept_wherever_its_user_writes_it() -> None:
    reference = {"apiVersion": f"apps/{LONG}", "kind": LONG, "name": LONG, "uid": LONG, "controller": True}
    (kept,) = _read(
        pod_manifest(
            "long",
            "cpu=1 memory=1Mi",
            node="n",
            uid="1",
            namespace="default",
            annotations=dict.fromkeys(ANNOTATIONS, LONG),
            labels={"pod-group.scheduling.sigs.k8s.io": LONG},
            finalizers=[f"example.com/{number}-{LONG}" for number in range(5)],
            ownerReferences=[reference],
            spec={"nodeSelector": {"a": LONG}, "tolerations": [{"key": LONG}], "schedulingGates": [{"name": LONG}]},
        )
        | {"status": {"phase": "Running", "message": LONG, "reason": LONG}}
    )
    assert len(ANNOTATIONS) > 10
    assert sum(map(sys.getsizeof, texts_of(kept))) < 8 << 10


def texts_of(value: Any) -> Iterator[str]:
    """All texts in a value that is made of dataclasses, mappings and sequences."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from texts_of(pair)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from texts_of(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from texts_of(getattr(value, name))


@pytest.mark.parametrize("value", ["true", "false", LONG, ""])
def test_whether_a_running_pod_opted_out_is_told_as_by_all_of_its_annotation(value: str) -> None:
    annotated = {RELAUNCH_ANNOTATION: value}
    (kept,) = _read(pod_manifest("p", "", node="n", uid="1", namespace="default", annotations=annotated))
    assert bool(why_opted_out(kept, Limits(opted_out="its namespace did"))) == (value != "true")


@pytest.mark.parametrize(("number", "kept"), [(MAX_RESOURCES, 1), (MAX_RESOURCES + 1, 0)])
def test_a_running_pod_that_asks_for_more_resources_than_any_node_has_is_no_victim(number: int, kept: int) -> None:
    """Its kubelet leaves out those that its node does not have, and runs it."""
    text = " ".join(f"request:example.com/{resource}=1" for resource in range(number))
    assert len(list(_read(pod_manifest("many", text, node="n", uid="1", namespace="default")))) == kept
