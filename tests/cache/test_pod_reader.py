"""What the operator keeps of a pod: all that decides about its nodes, as long as it is not too much beside others."""

import gc
import json
import tracemalloc
from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.cache.memory_budget import MemoryBudget
from topomend.cache.pod_reader import ORDINARY_BYTES, PodReader, kept_bytes
from topomend.wire.document import MalformedObject
from topomend.wire.pods.scheduling import MAX_CONTAINERS, read_watched_pod


def pod_object(name: str = "p", namespace: str = "tenant", **metadata: Any) -> dict[str, Any]:
    content = pod_manifest(name, "cpu=2 memory=64Mi")
    content["metadata"] |= {"namespace": namespace, "uid": f"uid-of-{name}", "resourceVersion": "7", **metadata}
    return content


def with_terms(content: dict[str, Any], number: int) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": f"label-{index}", "operator": "Exists"}]} for index in range(number)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    content["spec"]["affinity"] = {"nodeAffinity": required}
    return content


def with_containers(content: dict[str, Any], number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    content["spec"]["containers"] = [{"name": f"{index}", "resources": resources} for index in range(number)]
    return content


def with_owner(content: dict[str, Any], size: int) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "Workflow", "name": "w", "uid": "x" * size, "controller": True}
    content["metadata"]["ownerReferences"] = [reference]
    return content


@pytest.mark.parametrize(
    "content",
    [with_terms(pod_object(), 900), with_containers(pod_object(), 200), with_owner(pod_object(), 10**6)],
    ids=["terms", "containers", "owner"],
)
def test_the_estimate_of_a_large_pod_is_near_the_memory_that_it_takes(content: dict[str, Any]) -> None:
    taken = min(_memory_taken(content) for _ in range(3))
    assert 0.5 <= kept_bytes(content) / taken <= 3


def _memory_taken(content: dict[str, Any]) -> int:
    """The memory that reading the pod takes. A table of the interpreter that grows meanwhile counts as well."""
    text = json.dumps(content)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    watched = read_watched_pod(json.loads(text))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert watched.name == "p"
    return taken


def test_an_ordinary_pod_of_five_containers_is_less_than_what_is_always_kept() -> None:
    assert kept_bytes(with_terms(with_containers(pod_object(), 5), 2)) < ORDINARY_BYTES


def test_a_pod_of_more_containers_than_are_kept_of_any_is_left_alone() -> None:
    with pytest.raises(MalformedObject, match=f"more than {MAX_CONTAINERS} containers"):
        PodReader().kept(with_containers(pod_object(), MAX_CONTAINERS + 1))


def test_a_large_pod_is_left_alone_where_others_leave_no_room() -> None:
    large = with_terms(pod_object(), 900)
    reader = PodReader(MemoryBudget(1 << 20, ORDINARY_BYTES, most_of_group=700 << 10))
    pods = [reader.kept(large)]
    with pytest.raises(MalformedObject, match="too large to be kept beside"):
        reader.kept(large)
    pods.append(reader.kept(pod_object("small")))
    pods.append(reader.kept(with_terms(pod_object(namespace="other"), 900)))
    pods.clear()
    reader.kept(large)


def test_a_pod_that_is_known_in_this_version_is_not_read_again() -> None:
    kept = PodReader().kept
    known = kept(pod_object())
    assert kept(pod_object(), known) is known
    assert kept(pod_object(resourceVersion="8"), known) is not known
    assert kept(pod_object(uid="another"), known) is not known
    unversioned = kept(pod_object(resourceVersion=""))
    assert kept(pod_object(resourceVersion=""), unversioned) is not unversioned
