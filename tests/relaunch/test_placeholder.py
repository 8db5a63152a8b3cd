"""What a placeholder asks for, and that one reads what the other has written."""

import pytest
from tests.builders import watched_pod

from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import Placement, Toleration
from topomend.relaunch.manifest import launch
from topomend.relaunch.placeholder import Placeholder, placeholder, read_placeholder
from topomend.wire.group import PLACEHOLDER_GATE

HERE = {"metadata": {"uid": "u", "resourceVersion": "7"}}


def created(content: dict[str, object]) -> dict[str, object]:
    """As the API server would have it."""
    return {**content, "metadata": {**content["metadata"], **HERE["metadata"]}}  # type: ignore[dict-item]


def test_a_placeholder_asks_for_all_that_the_pod_asks_for_in_one_container_and_never_runs() -> None:
    pod = watched_pod("waits", 3, namespace="team", uid="1-2")
    content = placeholder(pod, "system")
    spec = content["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["requests"]["cpu"] == "3"
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert spec["schedulingGates"] == [{"name": PLACEHOLDER_GATE}]
    assert spec["automountServiceAccountToken"] is False
    assert (content["metadata"]["name"], content["metadata"]["namespace"]) == ("placeholder-1-2", "system")


def test_it_is_read_as_it_was_written() -> None:
    content = created(placeholder(watched_pod("waits", 3, namespace="team", uid="1-2"), "system"))
    expected = Placeholder("placeholder-1-2", "u", "7", ("team", "waits", "1-2"), unschedulable=False)
    assert read_placeholder(content) == expected
    asks = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    assert read_placeholder({**content, "status": {"conditions": [asks]}}).unschedulable


@pytest.mark.parametrize("annotations", [{}, {"topomend.io/placeholder-for": "team/waits"}])
def test_what_somebody_else_has_written_stands_for_no_pod(annotations: dict[str, str]) -> None:
    content = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "annotations": annotations}, "spec": {}}
    assert read_placeholder(content) == Placeholder("p", "u", "7", ("", "", ""), unschedulable=False)


def test_where_the_pod_may_go_it_may_go_without_an_earlier_narrowing() -> None:
    tolerations = (Toleration("gpu", "Exists", effect="NoSchedule"), Toleration(operator="Exists"))
    placement = Placement(node_selector={"pool": "a"}, tolerations=tolerations)
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]}}
    pod = watched_pod("waits", 3, placement=placement, node_affinity=required)
    narrowed = launch(pod, Narrowing(("a",)))["spec"]["affinity"]["nodeAffinity"]
    for waits in (pod, watched_pod("waits", 3, placement=placement, node_affinity=narrowed, narrowed=True)):
        spec = placeholder(waits, "system")["spec"]
        assert spec["nodeSelector"] == {"pool": "a"}
        assert spec["tolerations"] == [
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists"},
        ]
        assert spec["affinity"]["nodeAffinity"] == required


def test_it_keeps_away_from_every_pod_that_a_new_node_would_not_have() -> None:
    affinity = placeholder(watched_pod("waits", 3), "elsewhere")["spec"]["affinity"]
    assert "nodeAffinity" not in affinity
    (term,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (namespaces,) = term["namespaceSelector"]["matchExpressions"]
    assert (namespaces["operator"], namespaces["values"]) == (
        "NotIn",
        ["elsewhere", "kube-system", "topomend-agent", "topomend-system"],
    )
    assert term["labelSelector"] == {
        "matchExpressions": [{"key": "pod-template-generation", "operator": "DoesNotExist"}]
    }
