"""Random workloads: owners, affinities, spreading, ports, volumes, priorities, claims, groups, taints, pods that end.

Each is a list of objects of one namespace, and how many pods of it are to run. All of a batch together leave more than
half of the cluster free, so that none depends on which comes first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.builders import pod_manifest

from topomend.wire.pods.pod_group import KUEUE, KUEUE_SIZE, LABELS

LABEL = "workload"
"""The label of all pods of a workload, with its name."""

NODES = 4
"""How many nodes admit any pod, half of them in each zone; one more has TAINT."""

TAINT = {"key": "dedicated", "value": "numa", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
DEVICE_CLASS, DRIVER = "accelerator", "made-up.example.com"
PRIORITIES = {"batch": -10, "urgent": 1000}
"""The priority classes, which exist on the cluster."""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """``objects`` in the order of their creation, and how many ``pods`` are to run, or to run and end.

    ``bound``: it is enough that they are bound, because no driver prepares their devices.
    """

    name: str
    kind: str
    objects: tuple[Manifest, ...]
    pods: int
    bound: bool = False


def random_workload(random: Random, number: int, namespace: str) -> Workload:
    """Workload ``number``: the same for the same random numbers, in any namespace."""
    name = f"w{number}"
    kind = random.choice(list(_KINDS))
    return _KINDS[kind](random, name, namespace)


def _deployment(random: Random, name: str, _: str) -> Workload:
    replicas = random.randint(1, 4)
    return _owned("Deployment", random, name, replicas, {})


def _stateful_set(random: Random, name: str, _: str) -> Workload:
    replicas = random.randint(1, 3)
    policy = random.choice(("OrderedReady", "Parallel"))
    return _owned("StatefulSet", random, name, replicas, {"serviceName": name, "podManagementPolicy": policy})


def _owned(kind: str, random: Random, name: str, replicas: int, more: Manifest) -> Workload:
    template = _template(random, name)
    _constrain(random, name, template["spec"])
    spec = {"replicas": replicas, "selector": {"matchLabels": {LABEL: name}}, "template": template, **more}
    return Workload(name, kind, (api_object("apps/v1", kind, name, spec=spec),), replicas)


def _job(random: Random, name: str, _: str) -> Workload:
    """Its pods end after a second, one after the other or side by side."""
    template = _template(random, name)
    template["spec"] |= {"restartPolicy": "Never"}
    template["spec"]["containers"][0] |= {"image": "sandbox/sleep", "command": ["sleep", "1"]}
    completions = random.randint(1, 4)
    parallelism = random.randint(1, completions)
    spec = {"completions": completions, "parallelism": parallelism, "template": template, "backoffLimit": 6}
    return Workload(name, "Job", (api_object("batch/v1", "Job", name, spec=spec),), completions)


def _bare_pods(random: Random, name: str, _: str) -> Workload:
    """Under the same rules, for a pod of other rules may take the only node of another when it comes first."""
    pods = [_pod(random, f"{name}-{number}", name) for number in range(random.randint(1, 3))]
    rules = random.random()
    for content in pods:
        _constrain(Random(rules), name, content["spec"])
    return Workload(name, "bare pods", tuple(pods), len(pods))


def _group(random: Random, name: str, _: str) -> Workload:
    """Bare pods of a group, as Kueue knows them."""
    size = random.randint(2, 4)
    pods = [_pod(random, f"{name}-{number}", name) for number in range(size)]
    for content in pods:
        content["metadata"]["labels"] |= {LABELS[KUEUE]: name}
        content["metadata"]["annotations"] = {KUEUE_SIZE: str(size)}
    return Workload(name, "group", tuple(pods), size)


def _volume(random: Random, name: str, namespace: str) -> Workload:
    """A pod with a volume that one node has."""
    node = f"numa-{random.randrange(NODES)}"
    in_term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = api_object(
        "v1",
        "PersistentVolume",
        f"{namespace}-{name}",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/tmp"},  # noqa: S108  a folder that every node has; nothing is written
            "claimRef": {"namespace": namespace, "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_term]}]}},
        },
    )
    claim = api_object(
        "v1",
        "PersistentVolumeClaim",
        name,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": f"{namespace}-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    content = _pod(random, name, name)
    content["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]
    return Workload(name, "volume", (volume, claim, content), 1)


def _claim(random: Random, name: str, _: str) -> Workload:
    """A pod with a device by claim."""
    requests = [{"name": "device", "exactly": {"deviceClassName": DEVICE_CLASS}}]
    claim = api_object("resource.k8s.io/v1", "ResourceClaim", name, spec={"devices": {"requests": requests}})
    content = _pod(random, name, name)
    content["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimName": name}]
    content["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]
    return Workload(name, "claim", (claim, content), 1, bound=True)


_KINDS: dict[str, Callable[[Random, str, str], Workload]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "Job": _job,
    "bare pods": _bare_pods,
    "group": _group,
    "volume": _volume,
    "claim": _claim,
}


def _constrain(random: Random, name: str, spec: Manifest) -> None:
    """One or two of the rules by which the scheduler chooses nodes, or none."""
    for rule in random.sample(list(_RULES), random.choice((0, 1, 1, 2))):
        _RULES[rule](random, name, spec)


def _apart(_: Random, name: str, spec: Manifest) -> None:
    spec.setdefault("affinity", {})["podAntiAffinity"] = _required(name, "kubernetes.io/hostname")


def _together(_: Random, name: str, spec: Manifest) -> None:
    """In one zone: the first pod of the workload decides which."""
    spec.setdefault("affinity", {})["podAffinity"] = _required(name, ZONE)


def _required(name: str, key: str) -> Manifest:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {LABEL: name}}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _spread(random: Random, name: str, spec: Manifest) -> None:
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": random.choice(("kubernetes.io/hostname", ZONE)),
            "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {LABEL: name}},
        }
    ]


def _host_port(_: Random, name: str, spec: Manifest) -> None:
    port = 20_000 + int(name[1:]) % 10_000
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": port}]


def _tolerate(_: Random, __: str, spec: Manifest) -> None:
    spec["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]


def _select(random: Random, _: str, spec: Manifest) -> None:
    spec["nodeSelector"] = {ZONE: random.choice("ab")}


def _prioritize(random: Random, _: str, spec: Manifest) -> None:
    spec["priorityClassName"] = random.choice(list(PRIORITIES))


_RULES: dict[str, Callable[[Random, str, Manifest], None]] = {
    "apart": _apart,
    "together": _together,
    "spread": _spread,
    "host port": _host_port,
    "tolerates": _tolerate,
    "selects": _select,
    "priority": _prioritize,
}


def _template(random: Random, name: str) -> Manifest:
    content = _pod(random, "", name)
    return {"metadata": content["metadata"], "spec": content["spec"]}


def _pod(random: Random, name: str, workload: str) -> Manifest:
    """A pod whose kubelet gives it exclusive CPUs, or sometimes one without."""
    container = random.choice(("cpu=1 memory=64Mi", "cpu=2 memory=64Mi", "cpu=3 memory=1Gi", "request:cpu=500m"))
    return pod_manifest(name, container, labels={LABEL: workload})


def api_object(api_version: str, kind: str, name: str, **fields: Any) -> Manifest:
    """An object of this name; ``fields`` are those beside its metadata, such as ``spec``."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}
