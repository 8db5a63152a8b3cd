"""Random cases for the oracle: machines, settings and pods for which admission has something to decide.

Sizes are drawn around those of a NUMA node, a socket or the machine, so that nodes fill up, scores tie and requests
miss by one. Cases that the kubelet itself cannot finish (too many permutations of hints) are kept rare.
"""

from dataclasses import dataclass, field
from random import Random

from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.restarts import unready_restart

from topomend.model.quantity import parse_quantity, value

MIB, GIB = 1 << 20, 1 << 30
MAX_PERMUTATIONS = 60_000
DEFAULT_MAX_NUMA_NODES = 8
PROPOSED_OPTIONS = (("prefer-most-allocated-numa-node", "true"), ("numa-allocation-strategy", "least-allocated"))
"""Options of the Topology Manager that no released kubelet knows."""

MAX_MASKED_NODES = 16
"""With more NUMA nodes the kubelet needs hours to list their masks."""

RESOURCES = ("vendor.com/gpu", "vendor.com/nic", "other.org/fpga")


def random_case(random: Random, machine: Case | None = None, permutations: int = MAX_PERMUTATIONS) -> Case:
    """One case, on a random machine unless one is given; equal states of ``random`` give equal cases.

    No container has so many aligned resources that the kubelet would compare more than about ``permutations``.
    """
    machine = machine or _machine(random)
    devices = _devices(random, machine)
    kubelet = _kubelet(random, machine)
    return {
        "machine": machine,
        "kubelet": kubelet,
        "devices": devices,
        "steps": _Life(random, machine, kubelet, devices, permutations=permutations).steps(),
        "timeoutSeconds": 5,
    }


def _one_in(random: Random, chances: int) -> bool:
    return random.randrange(chances) == 0


# Machines


def _machine(random: Random) -> Case:
    return machine_of(random, random.choices(range(1, 12), (16, 64, 32, 48, 16, 16, 8, 16, 2, 2, 1))[0])


def machine_of(random: Random, count: int) -> Case:
    """A random machine of ``count`` NUMA nodes."""
    ids = _numa_ids(random, count)
    per_socket = random.choice([divisor for divisor in (1, 2, 4, count) if count % divisor == 0])
    cores = _cores(random, ids, per_socket)
    nodes = [_numa_node(random, index, ids) for index in range(count)]
    _put_hugepages(random, nodes)
    return {"numaNodes": nodes, "cores": cores}


def _numa_ids(random: Random, count: int) -> list[int]:
    if _one_in(random, 25):
        return sorted(random.sample(range(max(16, count)), count))
    return list(range(count))


def _cores(random: Random, ids: list[int], per_socket: int) -> list[Case]:
    threads = random.choices((1, 2, 4), (4, 8, 1))[0]
    usual = random.randint(1, 4) if len(ids) > 4 else random.randint(1, 6)
    counts = [usual] * len(ids)
    if _one_in(random, 5):
        counts = [random.randint(1, usual + 2) for _ in ids]
    if len(ids) > 1 and _one_in(random, 6):
        counts[random.randrange(len(ids))] = 0
    sockets_in_node = 2 if per_socket == 1 and _one_in(random, 12) else 1
    places: list[tuple[int, int, int]] = []
    for index, count in enumerate(counts):
        for core in range(count):
            socket = index // per_socket * sockets_in_node + core % sockets_in_node
            places.append((ids[index], socket, core))
    l3_kind = random.choices(("none", "node", "split", "socket"), (2, 4, 5, 2))[0]
    cores_in_cache = random.randint(1, 3)
    hybrid, offline = _one_in(random, 10), _one_in(random, 10)
    adjacent = random.random() < 0.4
    total, following, cores = len(places), 0, []
    for number, (node, socket, core) in enumerate(places):
        count = 1 if hybrid and random.random() < 0.5 else threads
        if adjacent:
            online = list(range(following, following + count))
            following += count
        else:
            online = [number + thread * total for thread in range(count)]
        if offline and number:
            online = [cpu for cpu in online if random.random() < 0.85]
        if online:
            cores.append(
                {
                    "threads": ",".join(map(str, online)),
                    "socket": socket,
                    "numaNode": node,
                    "l3Cache": _l3_cache(l3_kind, cores_in_cache, node, socket, core),
                }
            )
    return cores


def _l3_cache(kind: str, cores_in_cache: int, node: int, socket: int, core: int) -> int | None:
    if kind == "socket":
        return socket
    if kind == "node":
        return node
    return node * 8 + core // cores_in_cache if kind == "split" else None


def _numa_node(random: Random, index: int, ids: list[int]) -> Case:
    node: Case = {"id": ids[index], "memory": random.choice((2, 2, 4, 4, 8)) * GIB}
    if _one_in(random, 15):
        node["memory"] = 0
    if not _one_in(random, 40):
        node["distances"] = _distances(random, index, len(ids))
    return node


def _put_hugepages(random: Random, nodes: list[Case]) -> None:
    """Linux offers each size on every NUMA node, if with no pages; the kubelet falls over where one lacks it."""
    sizes = random.choices(((), (2 * MIB,), (2 * MIB, GIB)), (7, 2, 1))[0]
    for node in nodes:
        if sizes and not _one_in(random, 150):
            node["hugepages"] = [_pages(random, size, node["memory"]) for size in sizes]


def _pages(random: Random, size: int, memory: int) -> Case:
    count = random.choice((0, 1)) if size == GIB else random.choice((0, 64, 128, 256))
    fits = count * size <= memory // 4 or _one_in(random, 30)
    return {"size": size, "count": count if fits else 0}


def _distances(random: Random, index: int, count: int) -> list[int]:
    if _one_in(random, 5):
        return [10 if index == other else random.choice((11, 12, 17, 20, 21, 32)) for other in range(count)]
    return [10 if index == other else 12 if index // 2 == other // 2 else 32 for other in range(count)]


# Devices


def _devices(random: Random, machine: Case) -> list[Case]:
    ids = [node["id"] for node in machine["numaNodes"]]
    devices: list[Case] = []
    for resource in RESOURCES[: random.choices((0, 1, 2, 3), (3, 5, 3, 1))[0]]:
        places = random.choice(("one", "some", "each", "each", "wide", "none", "odd"))
        for place, numa_nodes in enumerate(_places(random, places, ids)):
            name = resource.rpartition("/")[2]
            for index in range(random.choice((1, 1, 2, 2, 3, 4))):
                device: Case = {"resource": resource, "id": f"{name}-{place}-{index}", "numaNodes": numa_nodes}
                if _one_in(random, 12):
                    device["unhealthy"] = True
                devices.append(device)
    return devices


def _places(random: Random, kind: str, ids: list[int]) -> list[list[int] | None]:
    if kind == "one":
        return [[random.choice(ids)]]
    if kind == "some":
        return [[numa_node] for numa_node in ids if random.random() < 0.6] or [[ids[0]]]
    if kind == "each":
        return [[numa_node] for numa_node in ids]
    if kind == "wide":
        return [sorted(random.sample(ids, random.randint(1, min(3, len(ids))))) for _ in ids]
    if kind == "none":
        return [None]
    return [random.choice((None, [], [-1], [63], [random.choice(ids)])) for _ in range(random.randint(1, 3))]


# Settings


def _kubelet(random: Random, machine: Case) -> Case:
    cpus = sorted(int(cpu) for core in machine["cores"] for cpu in core["threads"].split(","))
    kubelet: Case = {
        "topologyManagerPolicy": random.choices(
            ("none", "best-effort", "restricted", "single-numa-node"), (2, 4, 5, 5)
        )[0],
        "topologyManagerScope": random.choice(("container", "pod")),
        "cpuManagerPolicy": random.choices(("none", "static"), (1, 8))[0],
        "memoryManagerPolicy": random.choices(("None", "Static"), (3, 5))[0],
    }
    if random.random() < 0.75:
        count = random.choices((1, 2, 3), (6, 3, 1))[0]
        reserved = random.sample(cpus, min(count, len(cpus))) if _one_in(random, 3) else cpus[:count]
        kubelet["reservedSystemCPUs"] = ",".join(map(str, sorted(reserved)))
    else:
        kubelet["kubeReserved"] = {"cpu": random.choice(("1", "1500m", "2", "500m", "3"))}
    if kubelet["memoryManagerPolicy"] == "Static" or _one_in(random, 4):
        kubelet["reservedMemory"] = _reserved_memory(random, machine)
    _options(random, kubelet, len(machine["numaNodes"]))
    if len(machine["numaNodes"]) > MAX_MASKED_NODES and not _one_in(random, 100):
        _leave_masks_out(kubelet)
    return kubelet


def _leave_masks_out(kubelet: Case) -> None:
    """Settings under which the kubelet lists no subsets of NUMA nodes; a wide machine has too many."""
    kubelet |= {"topologyManagerPolicy": "none", "memoryManagerPolicy": "None"}
    kubelet.get("cpuManagerPolicyOptions", {}).pop("distribute-cpus-across-numa", None)


def _reserved_memory(random: Random, machine: Case) -> list[Case]:
    nodes = [node for node in machine["numaNodes"] if node["memory"]] or machine["numaNodes"]
    chosen = nodes if _one_in(random, 3) else [nodes[0]]
    if _one_in(random, 60):
        return []
    sizes = [random.choice((100, 256, 512)) * MIB for _ in chosen]
    if not _one_in(random, 60):  # more than the machine has is a case that replay does not model
        sizes = [min(size, max(MIB, node["memory"] // 2)) for size, node in zip(sizes, chosen, strict=True)]
    return [{"numaNode": node["id"], "limits": {"memory": str(size)}} for size, node in zip(sizes, chosen, strict=True)]


def _options(random: Random, kubelet: Case, numa_nodes: int) -> None:
    topology, cpu = _topology_options(random), _cpu_options(random, kubelet["cpuManagerPolicy"])
    if numa_nodes > DEFAULT_MAX_NUMA_NODES and not _one_in(random, 10):
        topology["max-allowable-numa-nodes"] = str(random.randint(numa_nodes, 64))
    if topology:
        kubelet["topologyManagerPolicyOptions"] = topology
    if cpu:
        kubelet["cpuManagerPolicyOptions"] = cpu
    gates = {}
    if {"align-by-socket", "distribute-cpus-across-cores"} & cpu.keys() and not _one_in(random, 15):
        gates["CPUManagerPolicyAlphaOptions"] = True
    if _one_in(random, 15):
        gates["PodLevelResourceManagers"] = True
    if gates:
        kubelet["featureGates"] = gates


def _topology_options(random: Random) -> dict[str, str]:
    options: dict[str, str] = {}
    if _one_in(random, 5):
        options["prefer-closest-numa-nodes"] = random.choice(("true", "true", "true", "false", "1"))
    if _one_in(random, 20):
        options["max-allowable-numa-nodes"] = random.choice(("8", "16", "4", "many"))
    if _one_in(random, 100):
        name, value = random.choice(PROPOSED_OPTIONS)
        options[name] = value
    return options


def _cpu_options(random: Random, policy: str) -> dict[str, str]:
    chances = {
        "full-pcpus-only": 3,
        "distribute-cpus-across-numa": 4,
        "align-by-socket": 8,
        "distribute-cpus-across-cores": 10,
        "strict-cpu-reservation": 5,
        "prefer-align-cpus-by-uncorecache": 4,
    }
    options: dict[str, str] = {}
    if policy == "static" and random.random() < 0.6:
        options = {name: "true" for name, chance in chances.items() if _one_in(random, chance)}
    elif _one_in(random, 20):
        options = {"full-pcpus-only": random.choice(("true", "false"))}
    if _one_in(random, 150):
        options["full-pcpus-only"] = "perhaps"
    if not _one_in(random, 12):
        _drop_refused_pairs(random, options)
    return options


def _drop_refused_pairs(random: Random, options: dict[str, str]) -> None:
    pairs = (
        ("full-pcpus-only", "distribute-cpus-across-cores"),
        ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    )
    for pair in pairs:
        if set(pair) <= options.keys():
            del options[random.choice(pair)]


# Pods


@dataclass
class _Life:
    random: Random
    machine: Case
    kubelet: Case
    devices: list[Case]
    alive: dict[str, Case] = field(default_factory=dict)
    permutations: int = MAX_PERMUTATIONS

    def __post_init__(self) -> None:
        cores, nodes = self.machine["cores"], self.machine["numaNodes"]
        of_node: dict[int, int] = {}
        for core in cores:
            of_node[core["numaNode"]] = of_node.get(core["numaNode"], 0) + core["threads"].count(",") + 1
        self.cpus_of_node = sorted(of_node.values())
        self.cpus = sum(self.cpus_of_node)
        self.threads = max(core["threads"].count(",") + 1 for core in cores)
        self.memory_of_node = [node["memory"] for node in nodes if node["memory"]] or [GIB]
        self.hugepages = sorted({pages["size"] for node in nodes for pages in node.get("hugepages", ())})
        self.pod_level_managers = "PodLevelResourceManagers" in self.kubelet.get("featureGates", {})
        self.resources = sorted({device["resource"] for device in self.devices})

    def steps(self) -> list[Case]:
        wide = len(self.machine["numaNodes"]) > MAX_MASKED_NODES // 2 + 3
        count = self.random.choice((1, 2) if wide else (1, 2, 3, 4, 6, 8, 10, 12))
        restart_after = self.random.randrange(count) if _one_in(self.random, 8) else None
        steps: list[Case] = []
        for number in range(count):
            if self.alive and self.random.random() < 0.25:
                gone = self.random.choice(sorted(self.alive))
                del self.alive[gone]
                steps.append({"end": {"namespace": "default", "name": gone}})
            name = f"p{number}"
            self.alive[name] = self.pod(name)
            self._keep_finishable(self.alive[name])
            steps.append({"admit": self.alive[name]})
            # A NodeState cannot distinguish a container whose memory was released from one that got none. With
            # pod-level managers (alpha) the two differ when the pod is admitted again.
            if _one_in(self.random, 8) and not self.pod_level_managers:
                steps.append({"start": {"namespace": "default", "name": name, "containers": self._started(name)}})
            if number == restart_after:
                steps += self._restart()
        return steps

    def _restart(self) -> list[Case]:
        """The kubelet restarts and admits the pods again: ready at once, or before, and with one pod more."""
        if _one_in(self.random, 3):
            return [{"restart": True}, *({"admit": pod} for pod in self.alive.values())]
        if _one_in(self.random, 2):
            self.alive["late"] = self.pod("late")
            self._keep_finishable(self.alive["late"])
        return unready_restart(self.random, self.alive.values(), self.resources)

    def _started(self, name: str) -> list[str]:
        """The containers of a pod up to a random one, in the order in which they start."""
        spec = self.alive[name]["spec"]
        containers = [container["name"] for container in spec.get("initContainers", []) + spec["containers"]]
        return containers[: self.random.randint(1, len(containers))]

    def pod(self, name: str) -> Case:
        random = self.random
        shape = random.choices(("plain", "init", "sidecar", "many"), (8, 3, 2, 3))[0]
        sloppy = _one_in(random, 10)
        spec: Case = {"containers": [self.container(f"c{index}", sloppy) for index in range(self._app_count(shape))]}
        if shape in {"init", "sidecar"} or (shape == "many" and random.random() < 0.5):
            spec["initContainers"] = [self.container(f"i{index}", sloppy) for index in range(random.randint(1, 3))]
            for container in spec["initContainers"]:
                if shape == "sidecar" and random.random() < 0.7:
                    container["restartPolicy"] = "Always"
        if _one_in(random, 2 if self.pod_level_managers else 60):
            spec["resources"] = self._pod_level(spec)
        return {"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": spec}

    def _app_count(self, shape: str) -> int:
        return self.random.randint(2, 3) if shape == "many" else self.random.choice((1, 1, 1, 2))

    def _pod_level(self, spec: Case) -> Case:
        """Pod-level resources: at least the sum of the containers' requests, as the API server demands."""
        containers = spec["containers"] + spec.get("initContainers", [])
        for container in containers:
            if self.random.random() < 0.4:
                container["resources"] = {}
        limits = {
            "cpu": str(_requested(containers, "cpu") + self.random.choice((0, 1, 1, 2)) or 1),
            "memory": str(_requested(containers, "memory") + self.random.choice((0, 64, 256)) * MIB or GIB),
        }
        return {"requests": dict(limits), "limits": limits}

    def container(self, name: str, sloppy: bool) -> Case:
        random = self.random
        limits = {"cpu": self._cpu(), "memory": self._memory()}
        for size in self.hugepages:
            if random.random() < 0.3:
                pages = random.choice((0, 1, 32, 64, 128, 200)) if size < GIB else random.choice((0, 1, 2))
                limits[_hugepage_name(size)] = str(size * pages)
        for resource in self.resources:
            if random.random() < 0.4:
                limits[resource] = str(random.choices((0, 1, 2, 3, 4, 5), (1, 12, 8, 3, 1, 1))[0])
        if _one_in(random, 150):
            limits["absent.io/thing"] = "1"
        resources: Case = {"limits": limits}
        if sloppy and random.random() < 0.6:
            resources = self._not_guaranteed(limits)
        return {"name": name, "image": "none", "resources": resources}

    def _not_guaranteed(self, limits: dict[str, str]) -> Case:
        extended = {name: amount for name, amount in limits.items() if "/" in name}
        choice = self.random.randrange(4)
        if choice == 0:
            return {"limits": extended}
        if choice == 1:
            return {"limits": limits, "requests": {"cpu": "100m"}}
        if choice == 2:
            return {"limits": extended, "requests": {"cpu": limits["cpu"], "memory": limits["memory"], **extended}}
        return {"limits": {**extended, "memory": limits["memory"]}}

    def _cpu(self) -> str:
        random = self.random
        node = random.choice(self.cpus_of_node)
        amount = random.choice(
            (
                1,
                1,
                2,
                2,
                2,
                self.threads,
                self.threads,
                2 * self.threads,
                3,
                max(1, node // 2),
                max(1, node - 1),
                node,
                node,
                node + 1,
                min(self.cpus, 2 * node),
                max(1, self.cpus // 2),
                max(1, self.cpus - 2 * node),
                random.randint(1, self.cpus),
            )
        )
        if _one_in(random, 12):
            return random.choice(("500m", "1500m", f"{amount}500m", "100m"))
        return str(amount)

    def _memory(self) -> str:
        random = self.random
        node = random.choice(self.memory_of_node)
        if _one_in(random, 100):
            return random.choice(("1536.5", "100M", "1e9", "0.5Gi"))
        amount = random.choice(
            (
                64 * MIB,
                64 * MIB,
                128 * MIB,
                256 * MIB,
                256 * MIB,
                512 * MIB,
                512 * MIB,
                node // 4,
                node // 2,
                node - 256 * MIB,
                node,
                node + 128 * MIB,
                2 * node,
                sum(self.memory_of_node) // 2,
            )
        )
        return str(max(MIB, amount))

    def _keep_finishable(self, pod: Case) -> None:
        """Drop devices and huge pages from a pod whose hints have too many permutations for the kubelet."""
        if self.kubelet["topologyManagerPolicy"] in {"none", "single-numa-node"} or _one_in(self.random, 5_000):
            return
        masks = (1 << len(self.machine["numaNodes"])) - 1
        containers = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
        if self.kubelet["topologyManagerScope"] == "container":
            groups = [[container] for container in containers]
        else:
            groups = [containers]
        for group in groups:
            while masks ** len(_aligned(group)) > self.permutations and len(_aligned(group)) > 1:
                dropped = self.random.choice(sorted(_aligned(group) - {"cpu"}))
                for container in group:
                    for amounts in container["resources"].values():
                        amounts.pop(dropped, None)


def _requested(containers: list[Case], resource: str) -> int:
    """The sum of the containers' requests or limits, whichever is larger, rounded up."""
    resources = (container["resources"] for container in containers)
    return sum(
        max(value(parse_quantity(amounts.get(kind, {}).get(resource, "0"))) for kind in ("requests", "limits"))
        for amounts in resources
    )


def _aligned(containers: list[Case]) -> set[str]:
    return {name for container in containers for amounts in container["resources"].values() for name in amounts}


def _hugepage_name(size: int) -> str:
    return "hugepages-1Gi" if size == GIB else "hugepages-2Mi"
