"""Every field that a user can set survives a relaunch, and nothing that the cluster added is set for him.

On a real API server, whose defaults and admission plugins are run by a rehearsed creation: a pod as its user wrote it
is created, stripped as it would be once it was refused, and created anew from the record.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.waiting import eventually

from topomend.kube.client import Client, connect
from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import PODS, Resource
from topomend.relaunch import manifest
from topomend.relaunch.records import recorded
from topomend.sandbox import Sandbox
from topomend.wire.group import CREATOR_ANNOTATION
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = pytest.mark.cluster  # needs a real API server: defaults and admission plugins run nowhere else

PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io/v1", "runtimeclasses", namespaced=False)
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts")

OURS = {"schedulingGates"}

SELECTOR: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "t"}}, "topologyKey": "kubernetes.io/hostname"}
PREFERRED_POD = [{"weight": 5, "podAffinityTerm": SELECTOR | {"matchLabelKeys": ["tier"], "namespaces": ["a"]}}]
NODE_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
SPREAD = SELECTOR | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
REFERENCE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11"}
PROJECTED = [
    {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 7200}},
    {"configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 256}], "optional": True}},
    {"secret": {"name": "s"}},
    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
]
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
VOLUMES = {
    "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"},
    "hostPath": {"path": "/data", "type": "DirectoryOrCreate"},
    "secret": {"secretName": "s", "defaultMode": 256, "optional": True},
    "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]},
    "downwardAPI": {
        "items": [{"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}}]
    },
    "projected": {"sources": PROJECTED, "defaultMode": 288},
    "persistentVolumeClaim": {"claimName": "data", "readOnly": True},
    "ephemeral": {"volumeClaimTemplate": CLAIM},
    "csi": {"driver": "csi.example.com", "readOnly": True, "volumeAttributes": {"a": "b"}},
    "nfs": {"server": "nfs.example.com", "path": "/"},
    "iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:storage.1", "lun": 0},
    "fc": {"targetWWNs": ["500a0982991b8dc5"], "lun": 2},
    "image": {"reference": "example.com/data:v1", "pullPolicy": "IfNotPresent"},
}
PROBE = {"httpGet": {"path": "/", "port": "http", "httpHeaders": [{"name": "a", "value": "b"}]}, "periodSeconds": 3}
HOOK = {"exec": {"command": ["sleep", "1"]}}
CONTAINER: dict[str, Any] = {
    "command": ["sh"],
    "args": ["-c", "$(GREETING)"],
    "workingDir": "/work",
    "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
    "env": [
        {"name": "GREETING", "value": "hello"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
    ],
    "envFrom": [{"prefix": "A_", "configMapRef": {"name": "c"}}],
    "livenessProbe": PROBE,
    "readinessProbe": {"tcpSocket": {"port": 80}},
    "startupProbe": {"exec": {"command": ["true"]}, "failureThreshold": 30},
    "lifecycle": {"preStop": HOOK, "postStart": HOOK},
    "terminationMessagePath": "/dev/x",
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "imagePullPolicy": "Always",
    "stdin": True,
    "tty": True,
    "securityContext": {"runAsUser": 5, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
}
SIDECAR = {"name": "side", "image": "i", "restartPolicy": "Always"}

SPECS: dict[str, dict[str, Any]] = {
    "nothing": {},
    **{f"volume {kind}": {"volumes": [{"name": "v", kind: source}]} for kind, source in VOLUMES.items()},
    "container": {"containers": [{"name": "main", "image": "i", **CONTAINER}]},
    "init containers and sidecars": {
        "initContainers": [SIDECAR, {"name": "first", "image": "i", "env": CONTAINER["env"]}]
    },
    "node affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": NODE_TERM}],
            }
        }
    },
    "pod affinity": {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [SELECTOR]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED_POD},
        }
    },
    "pod affinity by label keys": {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    SELECTOR | {"matchLabelKeys": ["tier"], "mismatchLabelKeys": ["tenant"]}
                ]
            }
        }
    },
    "topology spread": {"topologySpreadConstraints": [SPREAD | {"minDomains": 2, "nodeTaintsPolicy": "Honor"}]},
    "topology spread by label keys": {"topologySpreadConstraints": [SPREAD | {"matchLabelKeys": ["tier"]}]},
    "tolerations": {
        "tolerations": [
            {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            },
        ]
    },
    "node selector": {"nodeSelector": {"zone": "a"}},
    "host aliases": {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]},
    "dns": {
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["x.y"], "options": [{"name": "ndots", "value": "2"}]},
    },
    "overridden host name": {"hostnameOverride": "other"},
    "scheduling group": {"schedulingGroup": {"podGroupName": "g"}},
    "names": {"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True},
    "readiness gates": {"readinessGates": [{"conditionType": "example.com/ready"}]},
    "runtime class": {"runtimeClassName": "rich"},
    "priority class": {"priorityClassName": "rich"},
    "security context": {
        "securityContext": {
            "runAsUser": 1,
            "runAsGroup": 2,
            "fsGroup": 3,
            "supplementalGroups": [4],
            "fsGroupChangePolicy": "OnRootMismatch",
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}],
            "seLinuxOptions": {"level": "s0:c1,c2"},
        }
    },
    "host namespaces": {"hostNetwork": True, "hostPID": True, "hostIPC": True},
    "own user namespace": {"hostUsers": False},
    "shared process namespace": {"shareProcessNamespace": True},
    "resource claims": {
        "resourceClaims": [
            {"name": "a", "resourceClaimName": "x"},
            {"name": "b", "resourceClaimTemplateName": "y"},
        ],
        "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "a"}, {"name": "b"}]}}],
    },
    "pod resources": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}},
    "service account": {"serviceAccountName": "rich", "automountServiceAccountToken": False},
    "service account with its token": {"serviceAccountName": "rich"},
    "image pull secrets": {"imagePullSecrets": [{"name": "own"}]},
    "service links": {"enableServiceLinks": False},
    "times": {"activeDeadlineSeconds": 600, "terminationGracePeriodSeconds": 5},
    "restart policy": {"restartPolicy": "OnFailure"},
    "scheduler": {"schedulerName": "topo-aware-scheduler"},
    "eviction responders": {"evictionResponders": [{"name": "example.com/migrate", "priority": 1000}]},
    "windows": {"os": {"name": "windows"}, "securityContext": {"windowsOptions": {"runAsUserName": "x"}}},
}


@pytest.fixture(scope="module")
def client(cluster: Sandbox) -> Iterator[Client]:
    one = connect(str(cluster.kubeconfig))
    made: list[tuple[Resource, str, dict[str, Any]]] = [
        (PRIORITY_CLASSES, "", {"kind": "PriorityClass", "value": 1000, "preemptionPolicy": "Never"}),
        (
            RUNTIME_CLASSES,
            "",
            {
                "kind": "RuntimeClass",
                "handler": "rich",
                "overhead": {"podFixed": {"cpu": "100m", "memory": "64Mi"}},
                "scheduling": {
                    "nodeSelector": {"kata": "true"},
                    "tolerations": [{"key": "kata", "operator": "Exists"}],
                },
            },
        ),
        (SERVICE_ACCOUNTS, "default", {"kind": "ServiceAccount", "imagePullSecrets": [{"name": "from-account"}]}),
    ]
    for resource, namespace, content in made:
        head: dict[str, Any] = {"apiVersion": resource.api_version, "metadata": {"name": "rich"}}
        try:
            one.create(resource, head | content, namespace)
        except AlreadyExists:
            pytest.fail("an earlier run left objects behind")
    for spec in ({"priorityClassName": "rich"}, {"runtimeClassName": "rich"}):  # which admission reads in its caches
        eventually(f"{spec} to be known", partial(one.create, PODS, _asked(spec), "default", dry_run=True))
    yield one
    for resource, namespace, _ in made:
        one.delete(resource, "rich", namespace, uid=one.get(resource, "rich", namespace)["metadata"]["uid"])
    one.close()


def _asked(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": "rich",
        "labels": {"app": "t", "tier": "1", "tenant": "me"},
        "annotations": {"example.com/note": "kept", "topomend.io/max-attempts": "7"},
        "ownerReferences": [REFERENCE],
    }
    containers = [{"name": "main", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def _as_refused(stored: dict[str, Any]) -> dict[str, Any]:
    """The stored pod once it was bound, debugged and refused."""
    refused = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: no",
        "podIP": "1.2.3.4",
    }
    debugger = {"name": "debug", "image": "i", "targetContainerName": "main"}
    spec = {**stored["spec"], "nodeName": "split", "ephemeralContainers": [debugger]}
    metadata = {**stored["metadata"], "finalizers": ["topomend.io/relaunch"], "uid": "1", "resourceVersion": "5"}
    return {**stored, "metadata": metadata, "spec": spec, "status": refused}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_what_a_user_set_survives_a_relaunch_and_nothing_else_is_set(client: Client, spec: dict[str, Any]) -> None:
    first = client.create(PODS, _asked(spec), "default", dry_run=True)
    refused = _as_refused(first)
    stripped = manifest.stripped(refused)
    assert _by_its_user(stripped["metadata"]) == _asked(spec)["metadata"]
    assert (
        not {"nodeName", "priority", "preemptionPolicy", "ephemeralContainers", "schedulingGates"}
        & stripped["spec"].keys()
    )
    assert "kube-api-access" not in str(stripped)
    record = replace(recorded(read_watched_pod(refused), "rich-1", stripped, renames=False), new_uid="")
    again = client.create(PODS, manifest.replacement(record), "default", dry_run=True)
    assert _comparable(again) == _comparable(first)
    assert again["metadata"]["labels"] == first["metadata"]["labels"]
    assert again["metadata"]["ownerReferences"] == first["metadata"]["ownerReferences"]
    assert again["metadata"]["annotations"].items() >= first["metadata"]["annotations"].items()
    third = manifest.stripped(_as_refused(again))
    third["spec"].pop("schedulingGates")
    assert third == stripped, "a replacement that is refused in its turn is recorded as its pod was"


def _by_its_user(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without who created the pod, which a policy of ours notes where it is installed."""
    annotations = {key: value for key, value in metadata["annotations"].items() if key != CREATOR_ANNOTATION}
    return {**metadata, "annotations": annotations}


def _comparable(pod: dict[str, Any]) -> dict[str, Any]:
    """The spec with the one name in it that the API server makes up, and without our gate."""
    spec = {key: value for key, value in pod["spec"].items() if key not in OURS}
    text = json.dumps(spec, sort_keys=True)
    for volume in spec.get("volumes", ()):
        if volume["name"].startswith("kube-api-access-"):
            text = text.replace(volume["name"], "kube-api-access")
    content: dict[str, Any] = json.loads(text)
    return content


def test_every_field_of_a_pods_spec_is_tried_or_known_not_to_be_a_users(client: Client) -> None:
    """A field that a later API server brings is to be thought of."""
    openapi = client._ask("GET", "/openapi/v3/api/v1")
    fields = set(openapi["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"])
    tried = {field for spec in SPECS.values() for field in spec} | {"containers"}
    taken_off = {"nodeName", "priority", "ephemeralContainers", "schedulingGates"}
    follow = {"serviceAccount", "overhead", "preemptionPolicy"}
    assert fields - tried - taken_off - follow == set()
