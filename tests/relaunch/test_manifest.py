import json
from typing import Any

import pytest

from topomend.model.narrowing import Narrowing
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch.manifest import (
    added,
    claim,
    digest,
    launch,
    own_name,
    replaced_names,
    replacement,
    stripped,
    unclaim,
    widened,
)
from topomend.wire.pods.scheduling import read_watched_pod

TOKEN = {
    "name": "kube-api-access-x2x4z",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt"}},
        ]
    },
}
TOKEN_MOUNT = {"name": "kube-api-access-x2x4z", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
POD: dict[str, Any] = {
    "metadata": {
        "name": "train",
        "namespace": "ns",
        "uid": "1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
        "labels": {"app": "t"},
        "annotations": {"note": "kept", "topomend.io/attempt": "1", "topomend.io/record": "train-0"},
        "finalizers": ["topomend.io/relaunch"],
        "ownerReferences": [{"kind": "Config", "name": "c"}],
    },
    "spec": {
        "nodeName": "a",
        "priority": 5,
        "priorityClassName": "high",
        "serviceAccountName": "default",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "data", "emptyDir": {}}, TOKEN],
        "initContainers": [{"name": "first", "volumeMounts": [TOKEN_MOUNT]}],
        "containers": [{"name": "main", "volumeMounts": [{"name": "data"}, TOKEN_MOUNT]}],
        "ephemeralContainers": [{"name": "debug"}],
    },
    "status": {"phase": "Failed"},
}


def record(manifest: dict[str, Any]) -> Relaunch:
    return Relaunch("ns", "train-1", "train", "1", "a", "TopologyAffinityError", "", 2, manifest)


def _node_affinity(terms: list[dict[str, Any]], preferred: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}} if terms else {}
    return required | ({"preferredDuringSchedulingIgnoredDuringExecution": preferred} if preferred else {})


def test_a_manifest_keeps_what_the_user_wrote_and_nothing_a_server_added() -> None:
    assert stripped(POD) == {
        "metadata": {
            "name": "train",
            "labels": {"app": "t"},
            "annotations": {"note": "kept"},
            "ownerReferences": [{"kind": "Config", "name": "c"}],
        },
        "spec": {
            "priorityClassName": "high",
            "serviceAccountName": "default",
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "initContainers": [{"name": "first"}],
            "containers": [{"name": "main", "volumeMounts": [{"name": "data"}]}],
        },
    }


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "kube-api-access-mine", "projected": {"sources": []}},
        {"name": "kube-api-access-mine0", "emptyDir": {}},
        {
            "name": "kube-api-access-vault",
            "projected": {
                "sources": [{"serviceAccountToken": {"audience": "vault", "expirationSeconds": 3607, "path": "token"}}]
            },
        },
    ],
)
def test_a_volume_of_the_users_own_is_kept_whatever_its_name(volume: dict[str, Any]) -> None:
    mount = {"name": volume["name"], "mountPath": "/data"}
    pod = {**POD, "spec": {"volumes": [volume], "containers": [{"name": "main", "volumeMounts": [mount]}]}}
    assert stripped(pod)["spec"] == pod["spec"]


def test_a_token_that_the_user_mounts_elsewhere_is_kept() -> None:
    mount = {**TOKEN_MOUNT, "mountPath": "/tokens"}
    pod = {**POD, "spec": {"volumes": [TOKEN], "containers": [{"name": "main", "volumeMounts": [mount]}]}}
    assert stripped(pod)["spec"] == pod["spec"]


def test_what_networks_and_schedulers_noted_about_a_pod_does_not_go_along() -> None:
    annotations = {"k8s.ovn.org/pod-networks": "{}", "k8s.v1.cni.cncf.io/networks": "sriov"}
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    assert stripped(pod)["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": "sriov"}


def test_what_was_written_on_a_pod_after_its_creation_does_not_go_along() -> None:
    annotations = {
        "note": "kept",
        "k8s.v1.cni.cncf.io/networks": "evil",
        "topomend.io/changed": "k8s.v1.cni.cncf.io/networks label:team",
    }
    metadata = {**POD["metadata"], "labels": {"app": "t", "team": "evil"}, "annotations": annotations}
    made = stripped({**POD, "metadata": metadata})["metadata"]
    assert (made["labels"], made["annotations"]) == ({"app": "t"}, {"note": "kept"})


def test_a_manifest_holds_nothing_that_a_merge_patch_would_drop() -> None:
    claim_template = {"metadata": {"creationTimestamp": None}, "spec": {"storageClassName": ""}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim_template}}]
    pod = {**POD, "spec": {**POD["spec"], "volumes": volumes, "hostname": None}}
    assert "null" not in json.dumps(stripped(pod))
    assert stripped(pod)["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"] == {
        "metadata": {},
        "spec": {"storageClassName": ""},
    }


def test_what_admission_adds_to_a_pod_that_was_through_it_is_named() -> None:
    asked = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}}
    sidecars = {
        "containers": [*asked["spec"]["containers"], {"name": "proxy-2"}],
        "initContainers": [{"name": "first"}],
    }
    raised = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "4"}}}]}
    assert added(asked, asked) == ""
    assert added(asked, {"spec": sidecars}) == "init container first, container proxy-2"
    assert added(asked, {"spec": raised}) == "other resources of container main"


def test_a_replacement_is_gated_and_says_whom_it_replaces() -> None:
    made = replacement(record(stripped(POD)))
    assert made["spec"]["schedulingGates"] == [{"name": "topomend.io/relaunch"}]
    assert made["metadata"]["namespace"] == "ns"
    assert made["metadata"]["annotations"] == {
        "note": "kept",
        "topomend.io/record": "train-1",
        "topomend.io/replaces": "1",
        "topomend.io/attempt": "2",
    }


def test_patches_hold_for_the_pod_as_it_was_read_alone() -> None:
    for patch in (claim(POD, "train-1"), unclaim(POD), launch(read_watched_pod(POD), Narrowing(("b",)))):
        assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("1", "7")


def test_claiming_twice_adds_one_finalizer() -> None:
    assert claim(POD, "train-1")["metadata"]["finalizers"] == ["topomend.io/relaunch"]
    assert unclaim(POD)["metadata"]["finalizers"] == []


def _required(patch: dict[str, Any]) -> Any:
    affinity = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return affinity["nodeSelectorTerms"]


def test_a_pod_without_affinity_is_narrowed_to_the_nodes_and_prefers_the_first() -> None:
    patch = launch(read_watched_pod(POD), Narrowing(("b", "c")))
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b", "c"]}
    assert _required(patch) == [{"matchExpressions": [named]}]
    preferred = patch["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [(term["weight"], term["preference"]["matchExpressions"][0]["values"]) for term in preferred] == [
        (100, ["b"])
    ]
    assert patch["spec"]["schedulingGates"] is None


def test_a_pod_that_is_narrowed_to_many_nodes_prefers_the_best_three() -> None:
    patch = launch(read_watched_pod(POD), Narrowing(("b", "c", "d", "e")))
    (preferred,) = patch["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"][0]["values"] == ["b", "c", "d"]


@pytest.mark.parametrize(
    "narrowing", [Narrowing(("b", "c"), preferred=1), Narrowing(tuple("bcdefg"), ("a",), 4)], ids=str
)
def test_all_nodes_are_preferred_that_are_better_than_the_others_and_undone_with_the_narrowing(
    narrowing: Narrowing,
) -> None:
    own = {"weight": 1, "preference": {"matchExpressions": [HERE]}}
    asked = {"preferredDuringSchedulingIgnoredDuringExecution": [own]}
    gated = {**POD, "spec": {**POD["spec"], "affinity": {"nodeAffinity": asked}}}
    affinity = launch(read_watched_pod(gated), narrowing)["spec"]["affinity"]["nodeAffinity"]
    users, ours = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert users == own
    assert ours["preference"]["matchExpressions"][0]["values"] == list(narrowing.hosts[: narrowing.preferred])
    assert widened(affinity) == asked


def test_a_pod_that_any_node_will_do_for_keeps_its_own_affinity_also_when_it_is_recorded() -> None:
    asked = _node_affinity([{"matchExpressions": [HERE]}])
    gated = {**POD, "spec": {**POD["spec"], "affinity": {"nodeAffinity": asked}}}
    patch = launch(read_watched_pod(gated), Narrowing())
    assert "affinity" not in patch["spec"]
    annotations = {**POD["metadata"]["annotations"], **patch["metadata"]["annotations"]}
    released = {**gated, "metadata": {**POD["metadata"], "annotations": annotations}}
    watched = read_watched_pod(released)
    assert (watched.released, watched.narrowed) == (True, False)
    assert stripped(released)["spec"]["affinity"]["nodeAffinity"] == asked


def test_every_term_of_a_pods_own_affinity_is_narrowed() -> None:
    zone = {"key": "zone", "operator": "Exists"}
    name = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    terms = [{"matchExpressions": [zone]}, {"matchFields": [name]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    gates = [{"name": "topomend.io/relaunch"}, {"name": "other.io/gate"}]
    gated = {**POD, "spec": {**POD["spec"], "affinity": affinity, "schedulingGates": gates}}
    patch = launch(read_watched_pod(gated), Narrowing(("b",)))
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}
    assert _required(patch) == [
        {"matchExpressions": [zone, named]},
        {"matchFields": [name], "matchExpressions": [named]},
    ]
    assert patch["spec"]["schedulingGates"] == [{"name": "other.io/gate"}]


ZONE = {"key": "zone", "operator": "Exists"}
HERE = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b", "c"]}
NAMED = {"key": "metadata.name", "operator": "In", "values": ["b"]}
SOON = {"weight": 1, "preference": {"matchExpressions": [ZONE]}}


@pytest.mark.parametrize(
    "narrowing",
    [
        Narrowing(("b",)),
        Narrowing(("b", "c")),
        Narrowing(("b", "c", "d", "e")),
        Narrowing(("b", "c", "d"), ("e", "f")),
        Narrowing(excluded=("e",)),
    ],
    ids=["one node", "two nodes", "many nodes", "all but two", "none known"],
)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        _node_affinity([{"matchExpressions": [ZONE]}, {"matchFields": [NAMED]}]),
        _node_affinity([{"matchExpressions": [HERE]}], [SOON]),
        _node_affinity([], [SOON]),
    ],
    ids=["nothing", "two terms", "a host name", "a preference"],
)
def test_what_was_narrowed_when_a_pod_was_ungated_is_recorded_as_it_was_asked_for(
    asked: dict[str, Any], narrowing: Narrowing
) -> None:
    spec = {**POD["spec"], "affinity": {"nodeAffinity": asked}, "schedulingGates": [{"name": "topomend.io/fit"}]}
    gated = {**POD, "spec": spec}
    patch = launch(read_watched_pod(gated), narrowing)
    narrowed = {"affinity": {"nodeAffinity": {**asked, **patch["spec"]["affinity"]["nodeAffinity"]}}}
    annotations = {**POD["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
    released = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}, "spec": {**POD["spec"], **narrowed}}
    assert stripped(released)["spec"].get("affinity", {}).get("nodeAffinity", {}) == asked
    assert stripped({**released, "metadata": POD["metadata"]})["spec"]["affinity"] == narrowed["affinity"]


def test_a_digest_depends_on_all_of_a_manifest_but_its_name() -> None:
    manifest = stripped(POD)
    assert digest(manifest) == digest({**manifest, "metadata": {**manifest["metadata"], "name": "train-r1"}})
    evil = {**manifest, "spec": {**manifest["spec"], "containers": [{"name": "main", "image": "evil"}]}}
    labelled = {**manifest, "metadata": {**manifest["metadata"], "labels": {"app": "u"}}}
    assert len({digest(content) for content in (manifest, evil, labelled)}) == 3


def test_a_suffix_counts_the_attempts_and_fits_the_longest_name() -> None:
    assert own_name("train", 0) == "train-r1"
    assert own_name("train-r1", 1) == "train-r2"
    assert own_name("a" * 250 + ".bc", 0) == "a" * 250 + "-r1"


def test_whom_a_replacement_stands_in_for_follows_from_its_name() -> None:
    assert list(replaced_names("train", 1)) == ["train"]
    assert list(replaced_names("train-r1", 1)) == ["train-r1", "train"]
    assert list(replaced_names("train-r2", 2)) == ["train-r2", "train-r1"]


def test_letting_a_pod_go_says_so_on_it() -> None:
    patch = launch(read_watched_pod(POD), Narrowing(("b",)))
    assert patch["metadata"]["annotations"] == {"topomend.io/released": "true"}
