"""What topomend has left on a pod, and the patch that removes it and nothing else."""

from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.drain.leftovers import leftovers


def pod(gates: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
    """A Pod of uid u and version 7."""
    return pod_manifest("p", gates=gates, namespace="ns", uid="u", resourceVersion="7", **metadata)


@pytest.mark.parametrize(
    "content",
    [
        pod(),
        pod(("example.com/gate",), finalizers=["example.com/f"], labels={"app": "x"}, annotations={"a": "b"}),
        pod(
            annotations={"nottopomend.io/x": "y", "topomend.iox/y": "z"}, labels={"topomend.io": "no key of the group"}
        ),
        {"metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7", "annotations": None}},
    ],
    ids=["bare", "others' alone", "names that look like ours", "null and absent fields"],
)
def test_a_pod_without_anything_of_topomend_has_no_leftovers(content: dict[str, Any]) -> None:
    assert not leftovers(content).any


def test_a_patch_removes_what_topomend_added_and_keeps_the_rest() -> None:
    content = pod(
        ("example.com/gate", "topomend.io/fit", "topomend.io/relaunch"),
        finalizers=["example.com/f", "topomend.io/relaunch"],
        labels={"app": "x", "topomend.io/l": "y"},
        annotations={"mine": "stays", "topomend.io/creator": "me", "topomend.io/relaunch": "false"},
    )
    ours = leftovers(content)
    assert ours.any
    assert ours.patch() == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            "finalizers": ["example.com/f"],
            "annotations": {"topomend.io/creator": None, "topomend.io/relaunch": None},
            "labels": {"topomend.io/l": None},
        },
        "spec": {"schedulingGates": [{"name": "example.com/gate"}]},
    }


def test_the_last_gate_leaves_no_empty_list_and_a_patch_names_only_what_changes() -> None:
    assert leftovers(pod(("topomend.io/fit",))).patch() == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"schedulingGates": None},
    }
    assert leftovers(pod(labels={"topomend.io/l": "y"})).patch() == {
        "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"topomend.io/l": None}}
    }


def test_a_replacement_that_waits_names_its_relaunch_and_one_that_was_ungated_does_not() -> None:
    ours = {"topomend.io/record": "p-0123456789", "topomend.io/replaces": "old"}
    waiting = leftovers(pod(("topomend.io/relaunch",), annotations=ours))
    assert (waiting.replaces, waiting.record) == ("old", "p-0123456789")
    assert leftovers(pod(annotations=ours)).replaces == ""
    assert leftovers(pod(("topomend.io/relaunch",))).replaces == ""
