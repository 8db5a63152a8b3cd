"""Random cases for the kubelet's fit check: a case for the managers, and the Node object, which they do not see.

Totals are drawn around what the pods ask for, so that nodes fill up and miss by one; labels, taints and ports are few,
so that they meet.
"""

from random import Random

from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.generate import random_case

from topomend.model.bitmask import parse_id_list
from topomend.model.machine import hugepage_resource

KEYS, VALUES = ("zone", "pool", "topomend.io/kind"), ("a", "b", "5", "12", "")
EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
CLUSTER_RESOURCE = "cluster.io/licence"


def random_fit_case(random: Random) -> Case:
    """One case; equal states of ``random`` give equal cases."""
    case = random_case(random)
    if random.random() < 0.6:  # so that the managers refuse less, and more pods get as far as the check
        case["kubelet"] |= {"topologyManagerPolicy": "none", "topologyManagerPolicyOptions": {}}
    case["node"] = _node(random, case)
    for step in case["steps"]:
        if "admit" in step and "spec" in step["admit"]:
            _decorate(random, step["admit"])
    return case


def _one_in(random: Random, chances: int) -> bool:
    return random.randrange(chances) == 0


def _node(random: Random, case: Case) -> Case:
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": "node"}
    labels |= {key: random.choice(VALUES) for key in KEYS if random.random() < 0.6}
    taints = [_taint(random) for _ in range(random.choice((0, 0, 0, 1, 2)))]
    node: Case = {
        "metadata": {"name": "node", "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": _allocatable(random, case)},
    }
    if random.random() < 0.5:
        node["status"]["features"] = {"supplementalGroupsPolicy": random.random() < 0.7}
    return node


def _taint(random: Random) -> Case:
    value = random.choice(VALUES)
    return {"key": random.choice(KEYS), "effect": random.choice(EFFECTS), **({"value": value} if value else {})}


def _allocatable(random: Random, case: Case) -> Case:
    machine = case["machine"]
    cpus = sum(parse_id_list(core["threads"]).bit_count() for core in machine["cores"])
    memory = sum(node["memory"] for node in machine["numaNodes"])
    amounts = {
        "cpu": f"{max(0, cpus * 1000 - random.choice((0, 0, 500, 1000, 10, 1500)))}m",
        "memory": str(max(0, memory - random.choice((0, 100 << 20, 1 << 30, 1)))),
        "ephemeral-storage": random.choice(("0", "1Gi", "10Gi", "1000m")),
        "pods": random.choice(("110",) * 9 + ("3", "1", "0")),
    }
    for node in machine["numaNodes"]:
        for pages in node.get("hugepages", ()):
            if not _one_in(random, 4):
                amounts[hugepage_resource(pages["size"])] = str(pages["size"] * pages["count"])
    for resource in sorted({device["resource"] for device in case["devices"]}):
        if not _one_in(random, 6):
            count = sum(device["resource"] == resource for device in case["devices"])
            amounts[resource] = str(max(0, count - random.choice((0, 0, 0, 1, 2))))
    if _one_in(random, 3):
        amounts[CLUSTER_RESOURCE] = random.choice(("0", "1", "4"))
    for name in [name for name in ("ephemeral-storage", "pods") if _one_in(random, 40)]:
        del amounts[name]
    return amounts


def _decorate(random: Random, pod: Case) -> None:
    _place(random, pod["spec"])
    spec, metadata = pod["spec"], pod["metadata"]
    if _one_in(random, 15):
        spec["nodeName"] = random.choice(("node", "node", "other"))
    if _one_in(random, 30):
        spec["os"] = {"name": random.choice(("linux", "windows"))}
    if _one_in(random, 30):
        metadata["labels"] = {"kubernetes.io/os": random.choice(("linux", "windows"))}
    if _one_in(random, 20):
        spec["securityContext"] = {"supplementalGroupsPolicy": random.choice(("Strict", "Merge"))}
    if _one_in(random, 25):
        metadata["annotations"] = {"kubernetes.io/config.source": random.choice(("api", "file"))}
    if _one_in(random, 20):
        spec["priority"] = random.choice((0, 1_999_999_999, 2_000_000_000))
    if _one_in(random, 10):
        spec["overhead"] = {"cpu": random.choice(("250m", "1")), "memory": random.choice(("64Mi", "100m"))}
    spec["hostNetwork"] = _one_in(random, 12)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        _decorate_container(random, container, pod)


def _place(random: Random, spec: Case) -> None:
    if _one_in(random, 5):
        spec["nodeSelector"] = {random.choice(KEYS): random.choice(VALUES)}
    if _one_in(random, 4):
        terms = [_term(random) for _ in range(random.choice((0, 1, 1, 2)))]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    spec["tolerations"] = [_toleration(random) for _ in range(random.choice((0, 1, 1, 2)))]


def _decorate_container(random: Random, container: Case, pod: Case) -> None:
    requests = container.get("resources", {}).get("requests")
    if requests is not None and _one_in(random, 4):
        requests["ephemeral-storage"] = random.choice(("1", "512Mi", "1Gi", "100m"))
    if _one_in(random, 8):
        resources = container.setdefault("resources", {})
        for kind in ("limits", "requests") if "requests" in resources else ("limits",):
            resources.setdefault(kind, {})[CLUSTER_RESOURCE] = random.choice(("0", "1", "2"))
        if _one_in(random, 3):
            mapping = {"containerName": container["name"], "resourceName": CLUSTER_RESOURCE, "requestName": "r"}
            status = {"resourceClaimName": "c", "requestMappings": [mapping]}
            pod.setdefault("status", {})["extendedResourceClaimStatus"] = status
    if _one_in(random, 4):
        container["ports"] = [_port(random) for _ in range(random.choice((1, 1, 2)))]


def _port(random: Random) -> Case:
    port: Case = {"containerPort": random.choice((80, 81))}
    if not _one_in(random, 4):
        port["hostPort"] = random.choice((80, 81, 82))
    if _one_in(random, 3):
        port["hostIP"] = random.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0"))  # noqa: S104 - an address in a manifest
    if _one_in(random, 3):
        port["protocol"] = random.choice(("TCP", "UDP"))
    return port


def _term(random: Random) -> Case:
    term: Case = {}
    if not _one_in(random, 8):
        term["matchExpressions"] = [_expression(random) for _ in range(random.choice((1, 1, 2)))]
    if _one_in(random, 5):
        values = random.choices(("node", "other"), k=random.choice((1, 1, 1, 2)))
        key = random.choice(("metadata.name", "metadata.name", "metadata.uid"))
        operator = random.choice(("In", "In", "NotIn", "Exists"))
        term["matchFields"] = [{"key": key, "operator": operator, "values": values}]
    return term


def _expression(random: Random) -> Case:
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equals"))
    if operator in ("Gt", "Lt"):
        values = random.choice((["5"], ["6"], ["-1"], ["+5"], ["x"], ["5", "6"], [], ["9999999999999999999999"]))
    elif operator in ("Exists", "DoesNotExist"):
        values = [] if not _one_in(random, 10) else ["a"]
    else:
        values = random.sample(VALUES, random.choice((0, 1, 1, 2, 3)))
    return {"key": random.choice((*KEYS, "kubernetes.io/os")), "operator": operator, "values": values}


def _toleration(random: Random) -> Case:
    toleration: Case = {}
    if not _one_in(random, 6):
        toleration["key"] = random.choice(KEYS)
    if not _one_in(random, 4):
        toleration["operator"] = random.choice(("Exists", "Equal", "Equal", "Lt", "Gt"))
    if toleration.get("operator") != "Exists" and not _one_in(random, 5):
        toleration["value"] = random.choice(VALUES)
    if not _one_in(random, 3):
        toleration["effect"] = random.choice(EFFECTS)
    return toleration
