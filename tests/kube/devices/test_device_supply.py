"""What a pod's claims and the cluster's devices say, whatever is in the objects: each is known, or said not to be."""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import TWO_NUMA_NODES, guaranteed_pod, node, node_state
from tests.clusters import Cluster
from tests.seeds import cases
from tests.wire.test_hostile_objects import CLAIM, CLASS, POD, RULE, SLICE, Recipe, made, nested, recipes

from topomend.decide.claims.device_claims import claims_on
from topomend.kube.devices.device_supply import MAX_CLAIMS, MAX_VALUES, read_pod_claims, read_taken_devices, supply_of
from topomend.kube.errors import NotFound
from topomend.kube.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from topomend.model.devices.device_supply import PodClaims
from topomend.replay.admission import admit
from topomend.wire.devices.device_class import read_device_class
from topomend.wire.devices.resource_claim import read_requests, read_taken
from topomend.wire.devices.resource_slice import offered, read_slice_or_why, read_taint_rule
from topomend.wire.document import MalformedObject

TRAIN = guaranteed_pod("train", 2)
TEMPLATE = {"metadata": {"name": "t"}, "spec": {"spec": CLAIM["spec"]}}
DEVICES = {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]}
SECONDS = 2.0


class Objects:
    """The claims and templates of a namespace by name, and how often one was asked for."""

    def __init__(self, **by_name: Any) -> None:
        self.by_name, self.asked = by_name, 0

    def get(self, resource: Resource, name: str) -> Mapping[str, Any]:
        """As the API server's answer, which is an object or none."""
        assert resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
        self.asked += 1
        found = self.by_name.get(name)
        if not isinstance(found, dict):
            raise NotFound(404, "NotFound", name)
        return found


def claims_of(content: Any, objects: Objects) -> PodClaims | None:
    classes = (read_device_class(CLASS),)
    return read_pod_claims(content, TRAIN, ("a/gpu",), objects.get, lambda: classes)


def with_claims(count: int, name: str = "t") -> dict[str, Any]:
    claims = [{"name": f"c-{number}", "resourceClaimTemplateName": name} for number in range(count)]
    container = {"name": "c0", "resources": {"claims": [{"name": claim["name"]} for claim in claims]}}
    return {"metadata": {"name": "train"}, "spec": {"resourceClaims": claims, "containers": [container]}}


def problems(claims: PodClaims | None) -> set[str]:
    assert claims is not None
    return {claim.problem for claim in claims.claims}


def some(content: Any) -> st.SearchStrategy[Recipe]:
    """The object as it should be, or an odd one."""
    return st.just((content, ())) | recipes(content)


def read_or_none(read: Any, content: Any) -> list[Any]:
    try:
        return list(read(content))
    except MalformedObject:
        return []


@settings(max_examples=cases(100, 300), deadline=None)
@given(
    pod=some(POD), claim=some(CLAIM), template=some(TEMPLATE), offer=some(SLICE), of_class=some(CLASS), rule=some(RULE)
)
def test_the_answer_of_a_node_is_known_or_not_whatever_the_objects_say(
    *, pod: Recipe, claim: Recipe, template: Recipe, offer: Recipe, of_class: Recipe, rule: Recipe
) -> None:
    """Of the kinds that an answer needs, each may be odd; what its own reader refuses is as if it were not there."""
    objects = Objects(claim=made(claim), made=made(claim), t=made(template))
    classes = read_or_none(lambda content: [read_device_class(content)], made(of_class))
    began = time.thread_time()
    asked = read_pod_claims(made(pod), TRAIN, ("a/gpu",), objects.get, lambda: classes)
    devices = read_or_none(lambda content: offered([read_slice_or_why(content)]), made(offer))
    taken: dict[tuple[str, str], dict[str, Any]] = {}
    for each in read_or_none(read_taken, made(claim)):
        taken.setdefault(each.key[:2], {})[each.key[2]] = each.consumed
    supply = supply_of(devices, read_or_none(read_taint_rule, made(rule)), taken, classes)
    if asked is not None:
        _, after = admit(node_state(TWO_NUMA_NODES, name="n"), TRAIN)
        answer = claims_on(supply, node("n"), after, TRAIN, asked)
        assert answer is None or answer.words.startswith("n: ")
    assert time.thread_time() - began < SECONDS


def test_the_claims_of_a_pod_that_has_very_many_are_not_asked_for() -> None:
    """A pod of 1.5 MB has 30,000; each would cost a request."""
    objects = Objects(t=TEMPLATE)
    assert problems(claims_of(with_claims(MAX_CLAIMS), objects)) == {""}
    assert objects.asked == MAX_CLAIMS
    assert problems(claims_of(with_claims(MAX_CLAIMS + 1), objects)) == {f"it has more than {MAX_CLAIMS} claims"}
    assert objects.asked == MAX_CLAIMS


def test_claims_that_say_very_much_are_not_kept() -> None:
    """A thousand pods may wait, and a template may be as large as an object can be."""
    compared = " && ".join(f"device.attributes['d'].a{number} == 1" for number in range(20))
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": compared}}] * 32}
    requests = [{"name": f"r{number}", "exactly": exactly} for number in range(32)]
    large = Objects(t={"spec": {"spec": {"devices": {"requests": requests}}}})
    assert problems(claims_of(with_claims(1), large)) == {f"its claims name more than {MAX_VALUES} values"}
    pod = with_claims(1)
    pod["spec"]["containers"][0]["resources"]["claims"] = [
        {"name": "c-0", "request": f"r-{number}"} for number in range(30_000)
    ]
    assert problems(claims_of(pod, Objects(t=TEMPLATE))) == {f"its claims name more than {MAX_VALUES} values"}


@pytest.fixture
def deep_claim(two_nodes: Cluster) -> Iterator[None]:
    """A ResourceClaim that any user may create: its parameters, 10 KiB at most, are lists within one another."""
    opaque = {"driver": "vendor.com", "parameters": {"deep": nested(5_000)}}
    content = {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": "deep"},
        "spec": {"devices": {**DEVICES, "config": [{"opaque": opaque}]}},
    }
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)  # to write it; topomend's own reads it without
    try:
        made_claim = two_nodes.client.create(RESOURCE_CLAIMS, content, "default")
    finally:
        sys.setrecursionlimit(limit)
    yield
    two_nodes.client.delete(RESOURCE_CLAIMS, "deep", "default", uid=made_claim["metadata"]["uid"])


@pytest.mark.cluster  # only a real API server says what it takes
@pytest.mark.usefixtures("deep_claim")
def test_a_claim_that_is_nested_deeply_is_read_and_takes_no_other_away(two_nodes: Cluster) -> None:
    problems = list[str]()
    client = two_nodes.client
    read_taken_devices(client, problems.append)
    listed = client.read(RESOURCE_CLAIMS, lambda content: [content["metadata"]["name"]])
    assert "deep" in listed.items
    (request,) = read_requests(client.get(RESOURCE_CLAIMS, "deep", "default")["spec"])
    assert request.device_class == "gpu"
    assert problems == []
