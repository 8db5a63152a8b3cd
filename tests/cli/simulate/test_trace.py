import pytest

from topomend.cli.input.workload import PodNames
from topomend.cli.simulate.trace import PassedOver, PodEnd, read_trace
from topomend.model.pods.bound_pod import BoundPod
from topomend.wire.document import MalformedObject

POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
END = {"kind": "PodEnd", "metadata": {"name": "p"}}


def test_lists_are_opened_and_order_is_kept() -> None:
    steps = list(read_trace([{"kind": "List", "items": [POD, END]}, None, POD], PodNames()))
    assert [type(step) for step in steps] == [BoundPod, PodEnd, BoundPod]


def test_the_workloads_of_a_list_of_their_kind_are_those_that_a_list_of_any_kind_has() -> None:
    workload = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "template": {"spec": POD["spec"]}}}
    steps = read_trace([{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [workload]}], PodNames())
    assert [isinstance(step, BoundPod) and step.pod.name for step in steps] == ["web-0", "web-1"]


def test_objects_of_other_kinds_are_named_so_that_they_can_be_passed_over() -> None:
    service, claim = {"kind": "Service", "metadata": {"name": "web"}}, {"kind": "PersistentVolumeClaim"}
    steps = list(read_trace([{"kind": "List", "items": [service]}, POD, claim], PodNames()))
    assert (steps[0], steps[2]) == (PassedOver("Service web"), PassedOver("PersistentVolumeClaim"))
    assert isinstance(steps[1], BoundPod)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"kind": "Job"}, "document 2: Job has no pod template; give a Pod or a workload"),
        ({"kind": ["Pod"]}, "document 2: kind: "),
        ({"kind": "List", "items": [None]}, "document 2: items"),
        ({"kind": "List", "items": [POD, {"kind": "Pod"}]}, r"document 2: items\[1\]\.spec\.containers"),
        ("text", "document 2: the document"),
        ({"kind": "PodEnd"}, "metadata.name"),
    ],
)
def test_a_wrong_document_is_named_by_its_number_and_path(document: object, words: str) -> None:
    with pytest.raises(MalformedObject, match=words):
        list(read_trace([POD, document], PodNames()))
