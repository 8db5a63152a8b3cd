"""A bug report has the fields that admission reads, and no secret, wherever a user may have put one."""

from typing import Any

import yaml

from topomend.cli.numa.export import node, record, refused, topology

SECRET = "hunter2"  # noqa: S105  a word to look for

CONTAINER = {
    "name": "main",
    "image": f"registry/{SECRET}",
    "command": [SECRET],
    "args": [SECRET],
    "env": [{"name": "PASSWORD", "value": SECRET}],
    "envFrom": [{"secretRef": {"name": SECRET}}],
    "workingDir": SECRET,
    "livenessProbe": {"exec": {"command": [SECRET]}},
    "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    "volumeMounts": [{"name": SECRET, "mountPath": "/"}],
    "resources": {"limits": {"cpu": "2"}},
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "train",
        "namespace": "ns",
        "uid": "1",
        "labels": {"a": SECRET},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "topomend.io/creator": SECRET,
            "topomend.io/attempt": "2",
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": SECRET, "uid": "2", "controller": True}],
        "managedFields": [{"manager": SECRET}],
    },
    "spec": {
        "nodeName": "gpu-01",
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "ephemeralContainers": [CONTAINER],
        "volumes": [{"name": "v", "secret": {"secretName": SECRET}}],
        "imagePullSecrets": [{"name": SECRET}],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": [SECRET]}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "status": {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: no",
        "containerStatuses": [{"image": SECRET}],
        "podIP": SECRET,
    },
}


def test_of_a_refused_pod_nothing_is_told_but_what_admission_reads() -> None:
    (exported,) = refused([POD, {**POD, "status": {"phase": "Failed", "message": "it ended"}}])
    assert SECRET not in yaml.safe_dump(exported)
    assert exported["metadata"]["annotations"] == {"topomend.io/attempt": "2"}
    assert exported["spec"]["containers"] == [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]
    assert exported["spec"]["nodeName"] == "gpu-01"
    assert exported["status"]["reason"] == "TopologyAffinityError"


def test_of_a_records_manifest_as_little_is_told() -> None:
    spec = {"pod": {"name": "train", "uid": "1"}}
    content = {
        "apiVersion": "topomend.io/v1alpha1",
        "kind": "Relaunch",
        "metadata": {"name": "train-1", "annotations": {"a": SECRET}, "managedFields": [{"manager": SECRET}]},
        "spec": spec,
        "status": {
            "step": "Created",
            "manifest": {"metadata": POD["metadata"], "spec": POD["spec"]},
            "conditions": [
                {"type": "Succeeded", "reason": "CreatorMayNot", "message": f"{SECRET} may not create pods in ns"},
                {"type": "Other", "reason": "NotCreatable", "message": "exceeded quota"},
            ],
        },
    }
    exported = record(content)
    assert SECRET not in yaml.safe_dump(exported)
    assert exported["status"]["step"] == "Created"
    assert [condition["reason"] for condition in exported["status"]["conditions"]] == ["CreatorMayNot", "NotCreatable"]
    assert exported["status"]["conditions"][1]["message"] == "exceeded quota"
    assert exported["status"]["manifest"]["spec"]["containers"]
    assert "status" not in record({key: content[key] for key in content.keys() - {"status"}})["status"]
    assert exported["spec"]["pod"] == spec["pod"]


def test_of_nodes_their_addresses_ids_and_annotations_are_left_out() -> None:
    metadata = {"name": "gpu-01", "labels": {"zone": "a"}, "annotations": {"a": SECRET}, "managedFields": [SECRET]}
    ids = dict.fromkeys(("machineID", "systemUUID", "bootID"), SECRET)
    status = {"nodeInfo": {"kubeletVersion": "v1.36.3", **ids}, "addresses": [{"address": SECRET}], "images": [SECRET]}
    exported = node({"metadata": metadata, "spec": {"providerID": SECRET, "taints": []}, "status": status})
    assert SECRET not in yaml.safe_dump(exported)
    assert exported["metadata"]["labels"] == {"zone": "a"}
    assert exported["status"]["nodeInfo"] == {"kubeletVersion": "v1.36.3"}
    published = {"apiVersion": "topomend.io/v1alpha1", "kind": "NodeTopology", "metadata": metadata, "status": {"a": 1}}
    assert topology(published)["status"] == {"a": 1}
    assert SECRET not in yaml.safe_dump(topology(published))
