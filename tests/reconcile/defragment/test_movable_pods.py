"""Which pods are read as those that may be moved, and what is read once more before one is."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.builders import gated_pod, guaranteed_pod
from tests.reconcile.defragment.model import Model, halves
from tests.volumes import with_claim

from topomend.cache import changes
from topomend.decide.defragment.moves import Pods
from topomend.decide.eligibility import Limits
from topomend.kube.client import Client
from topomend.kube.errors import Invalid
from topomend.kube.resources import Resource
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.scheduling import PodGroup
from topomend.reconcile.defragment import movable_pods as module
from topomend.reconcile.defragment.movable_pods import Found, MovablePods
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.placement.volumes import Volumes
from topomend.wire.group import NARROWED, RELEASED_ANNOTATION

BOTH = {"half-a", "half-b"}


def pods_of(model: Model) -> MovablePods:
    """Those that may be moved, up to priority 0."""
    client = cast("Client", model.server)
    limits, volumes = NamespaceLimits(client, Limits(), model.clock), Volumes(client, model.store, model.clock)
    return MovablePods(client, model.store, limits, volumes, 0, now=model.time)


def names(found: Found | None) -> set[str]:
    assert found
    return {each.pod.name for each in found.pods.movable}


def of_cluster(model: Model) -> Found:
    return pods_of(model).of_cluster(())


def again(model: Model, before: Found) -> Found | None:
    """``half-a`` once more, which would come to b."""
    [moved] = [each for each in before.evictable.values() if each.pod.name == "half-a"]
    return pods_of(model).again(moved, "ab", before)


def half(model: Model, name: str = "half-a") -> dict[str, Any]:
    return model.server.pods["ns", name]


# Of the cluster


def urgent(model: Model) -> None:
    half(model)["spec"]["priority"] = 1


def kept(model: Model) -> None:
    half(model)["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}


def of_another_controller(model: Model) -> None:
    half(model)["metadata"]["ownerReferences"][0]["uid"] = "another"


def malformed(model: Model) -> None:
    half(model)["spec"]["containers"] = "none"


@pytest.mark.parametrize("keep", [urgent, kept, of_another_controller, malformed])
def test_a_pod_that_a_rule_keeps_is_none_of_them(keep: Callable[[Model], None]) -> None:
    model = halves("a", "b")
    assert names(of_cluster(model)) == BOTH
    keep(model)
    assert names(of_cluster(model)) == {"half-b"}


def test_a_pod_that_names_a_controller_of_another_namespace_is_none_of_them() -> None:
    model = halves("a", "b")
    model.server.workloads["half"]["metadata"]["namespace"] = "theirs"
    assert names(of_cluster(model)) == set()


@pytest.mark.parametrize("selector", [{"matchLabels": {"app": "half"}}, "none"], ids=["its pods", "malformed"])
def test_a_budget_keeps_its_pods_and_one_that_cannot_be_read_all_of_its_namespace(selector: Any) -> None:
    model = halves("a", "b")
    metadata, status = {"namespace": "ns", "name": "half"}, {"disruptionsAllowed": 0}
    model.server.budgets = [{"metadata": metadata, "spec": {"selector": selector}, "status": status}]
    assert names(of_cluster(model)) == set()


def test_of_a_budget_that_lets_one_go_the_search_knows_all_pods() -> None:
    model = halves("a", "b")
    spec = {"selector": {"matchLabels": {"app": "half"}}}
    metadata, status = {"namespace": "ns", "name": "half"}, {"disruptionsAllowed": 1}
    model.server.budgets = [{"metadata": metadata, "spec": spec, "status": status}]
    found = of_cluster(model)
    assert [({*budget.pods}, budget.allowed) for budget in found.pods.budgets] == [({*found.evictable}, 1)]


def test_those_that_rest_are_none_of_them() -> None:
    model = halves("a", "b")
    assert names(pods_of(model).of_cluster({half(model)["metadata"]["uid"]})) == {"half-b"}


def test_a_pod_with_volumes_goes_where_they_are_and_stays_where_that_is_not_known() -> None:
    model = halves("a", "b")
    for name in BOTH:
        with_claim(half(model, name), f"disk-of-{name}")
    model.server.volumes["disk-of-half-a"] = "a"
    [movable] = of_cluster(model).pods.movable
    assert movable.pod.name == "half-a"
    [[term]] = movable.placement.volumes or ()
    assert [each.values for each in term.expressions] == [("a",)]


def test_volumes_of_so_many_pods_are_looked_up_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    model = halves("a", "b", "c")
    monkeypatch.setattr(module, "MOST_VOLUMES", 1)
    for name in BOTH:
        with_claim(half(model, name), "disk")
    model.server.volumes["disk"] = "a"
    assert names(of_cluster(model)) == {"half-a", "half-c"}


def test_a_narrowed_pod_may_go_wherever_its_creator_lets_it() -> None:
    model = halves("a", "b")
    here = {"key": HOSTNAME_LABEL, "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    half(model)["spec"]["affinity"] = affinity
    assert {len(each.placement.terms or ()) for each in of_cluster(model).pods.movable} == {0, 1}
    half(model)["metadata"]["annotations"] = {RELEASED_ANNOTATION: NARROWED}
    assert {len(each.placement.terms or ()) for each in of_cluster(model).pods.movable} == {0}


def test_a_node_on_which_a_pod_ends_or_begins_to_hold_something_is_not_settled() -> None:
    model = halves("a", "b", "c")
    assert of_cluster(model).pods.unsettled == set()
    half(model, "half-b")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    model.bind_unseen("begins", "cpu=1 memory=1Mi", "c")["status"]["phase"] = "Pending"
    found = of_cluster(model)
    assert found.pods.unsettled == {"b", "c"}
    assert names(found) == {"half-a", "half-c"}


# Within bounded memory


def with_labels(content: dict[str, Any]) -> None:
    content["metadata"]["labels"] |= {f"key-{number}": f"{number}" for number in range(200)}


def with_finalizers(content: dict[str, Any]) -> None:
    content["metadata"]["finalizers"] = [f"example.com/{number}" * 20 for number in range(120)]


def with_tolerations(content: dict[str, Any]) -> None:
    content["spec"]["tolerations"] = [{"key": f"key-{number}", "operator": "Exists"} for number in range(120)]


@pytest.fixture
def room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one large pod of the namespace, which may have half of it."""
    monkeypatch.setattr(module, "ROOM_BYTES", 120_000)


@pytest.mark.usefixtures("room_for_one")
@pytest.mark.parametrize("enlarge", [with_labels, with_finalizers, with_tolerations])
def test_a_large_pod_that_has_no_room_beside_others_stays_and_each_decision_has_all_the_room(
    enlarge: Callable[[dict[str, Any]], None],
) -> None:
    model = halves("a", "b", "c")
    for name in BOTH:
        enlarge(half(model, name))
    pods = pods_of(model)
    for _ in range(3):
        assert names(pods.of_cluster(())) == {"half-a", "half-c"}


@pytest.mark.usefixtures("room_for_one")
def test_a_pod_that_says_itself_why_it_stays_takes_no_room() -> None:
    model = halves("a", "b", "c")
    for each in (half(model), half(model, "half-b"), half(model, "low-a")):
        with_labels(each)
    urgent(model)
    assert names(of_cluster(model)) == {"half-b", "half-c"}


@pytest.mark.usefixtures("room_for_one")
def test_the_pod_that_is_looked_at_once_more_needs_no_further_room() -> None:
    model = halves("a", "b")
    with_labels(half(model))
    before = of_cluster(model)
    assert names(again(model, before)) == {"half-a"}


@pytest.mark.usefixtures("room_for_one")
def test_the_nodes_to_which_the_operator_narrowed_a_pod_take_no_room() -> None:
    model = halves("a", "b")
    others = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": [f"node-{number}" for number in range(2_000)]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [others]}]}
    for name in BOTH:
        half(model, name)["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
        half(model, name)["metadata"]["annotations"] = {RELEASED_ANNOTATION: NARROWED}
    found = of_cluster(model)
    assert names(found) == BOTH
    assert [each.pod.node_affinity for each in found.evictable.values()] == [{}, {}]


# As it is by now


def test_beside_all_nodes_nobody_is_moved_from_or_to_those_where_a_pod_is_about_to_come_or_that_are_reserved() -> None:
    model = halves("a", "b", "c")
    model.apply(changes.PodAssumed(guaranteed_pod("comes"), ("b",), model.clock.now))
    found = replace(of_cluster(model), pods=Pods((), unsettled={"a"}))
    _, pods = found.counted(model.store.snapshot, {"c"})
    assert pods.unsettled == {"a", "b", "c"}


def test_those_that_wait_are_those_for_which_topomend_chooses_alone() -> None:
    model = halves("a", "b")
    group = PodGroup("scheduling.x-k8s.io", "g")
    model.apply(changes.PodUpdated(gated_pod("grouped", group=group), model.clock.now))
    _, pods = of_cluster(model).counted(model.store.snapshot, ())
    assert [each.pod.name for each in pods.waiting] == ["want"]


def test_what_is_used_of_a_node_is_what_its_pods_take_where_the_operator_does_not_know_it() -> None:
    model = halves("a", "b")
    known = model.store.snapshot.nodes["b"].used
    model.apply(changes.TotalsUnknown("a"))
    assert model.store.snapshot.nodes["a"].used is None
    counted, _ = of_cluster(model).counted(model.store.snapshot, ())
    used = counted.nodes["a"].used
    assert used
    assert used["cpu"] == 5000
    assert counted.nodes["b"].used == known


# Once more


def test_one_pod_is_looked_at_once_more_and_those_beside_it_are_not_moved_in_its_place() -> None:
    model = halves("a", "b")
    assert names(again(model, of_cluster(model))) == {"half-a"}


def test_a_pod_that_has_to_stay_by_then_is_not_moved() -> None:
    model = halves("a", "b")
    before = of_cluster(model)
    kept(model)
    assert again(model, before) is None


def test_another_controller_of_the_name_is_not_the_pods_own() -> None:
    model = halves("a", "b")
    before = of_cluster(model)
    model.server.workloads["half"]["metadata"]["uid"] = "another"
    assert again(model, before) is None
    del model.server.workloads["half"]
    assert again(model, before) is None


def test_a_pod_whose_controller_has_no_name_by_the_api_server_stays_and_ends_no_look_at_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = halves("a", "b")
    before, get = of_cluster(model), model.server.get
    half(model)["metadata"]["ownerReferences"][0]["name"] = "%"

    def strict(resource: Resource, name: str, namespace: str = "", **asked: Any) -> dict[str, Any]:
        if "%" in name:
            raise Invalid(400, "BadRequest", "Name parameter invalid: \"%\": may not contain '%'")
        return get(resource, name, namespace, **asked)

    monkeypatch.setattr(model.server, "get", strict)
    assert again(model, before) is None


def test_the_last_look_is_not_into_a_cache() -> None:
    model = halves("a", "b")
    before = of_cluster(model)
    model.server.cached = deepcopy(model.server.pods)
    kept(model)
    assert names(of_cluster(model)) == BOTH
    assert again(model, before) is None


def test_nodes_where_pods_start_or_end_now_or_did_so_before_are_not_settled() -> None:
    model = halves("a", "b", "c")
    model.bind_unseen("begins", "cpu=1 memory=1Mi", "c")["status"]["phase"] = "Pending"
    before = of_cluster(model)
    model.bind_unseen("later", "cpu=1 memory=1Mi", "b")["status"]["phase"] = "Pending"
    found = again(model, before)
    assert found
    assert found.pods.unsettled == {"b", "c"}
    assert found.used["c"] == before.used["c"]
    assert found.used["b"]["cpu"] == before.used["b"]["cpu"] + 1000


def test_pods_that_are_expected_to_end_do_so_wherever_they_were_seen() -> None:
    """Those without a controller."""
    model = halves("a", "b", "c")
    before = of_cluster(model)
    assert before.pods.ending == {("ns", "low-a"), ("ns", "low-b"), ("ns", "low-c")}
    model.run("later", "cpu=1 memory=1Mi", "b")
    found = again(model, before)
    assert found
    assert found.pods.ending == {*before.pods.ending, ("ns", "later")}
