"""The rules of admission that a comparison must exercise, recognised in a case and the kubelet's answer to it.

A rule that no case reached was not compared: the report names it.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from verify.oracle.kubelet_oracle import Answer, Case
from verify.oracle.random_cases.generate import DEFAULT_MAX_NUMA_NODES

from topomend.model.bitmask import members, parse_id_list

_SINGLE, _RESTRICTED, _BEST_EFFORT, _NONE = "single-numa-node", "restricted", "best-effort", "none"
_POLICIES = (_NONE, _BEST_EFFORT, _RESTRICTED, _SINGLE)
_SCOPES = ("container", "pod")

_CPU_OPTIONS = {
    "full-pcpus-only": 30,
    "distribute-cpus-across-numa": 30,
    "align-by-socket": 30,
    "distribute-cpus-across-cores": 31,
    "strict-cpu-reservation": 32,
    "prefer-align-cpus-by-uncorecache": 32,
}
"""Each option and the first minor version that has it."""

_FORBIDDEN = (
    frozenset({"full-pcpus-only", "distribute-cpus-across-cores"}),
    frozenset({"distribute-cpus-across-numa", "distribute-cpus-across-cores"}),
    frozenset({"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"}),
    frozenset({"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"}),
)

_PAIRS = [pair for pair in combinations(_CPU_OPTIONS, 2) if frozenset(pair) not in _FORBIDDEN]

_AT_ONCE = "can not be used at the same time"

_START = {
    "no system reserved memory": "you should specify the system reserved memory",
    "no distances": "error getting NUMA distances from cadvisor",
    "options under CPU policy none": "None policy: received unsupported options",
    "align-by-socket beside single-numa-node": "Topolgy manager single-numa-node policy is incompatible",
    "align-by-socket with more sockets than NUMA nodes": "number of sockets are more than number of NUMA",
    "an alpha option without its gate": "Alpha-level Options not enabled",
    "too few CPUs to reserve": "unable to reserve the required amount of CPUs",
    "an option that is no bool": "strconv.ParseBool",
    "an option that is no number": "unable to convert policy option to integer",
    "max-allowable-numa-nodes below eight": "should not be less than",
    "an unknown option of the Topology Manager": "unknown Topology Manager Policy option",
    "too many NUMA nodes": "unsupported on machines with more than",
    **{f"options {' and '.join(sorted(pair))}": _AT_ONCE for pair in _FORBIDDEN},
}
"""Why a kubelet does not start, and words of its message."""

_REFUSALS = {
    "no hint that the policy admits": "Resources cannot be allocated with Topology locality",
    "no multiple of a core's CPUs": "not multiple cpus per core",
    "too few whole cores": "not enough free physical CPUs",
    "too few CPUs": "not enough cpus available to satisfy request",
    "too few devices": "requested number of devices unavailable",
    "no healthy device": "no healthy devices present",
    "no NUMA nodes to extend memory to": "failed to find NUMA nodes to extend the current topology hint",
    "no preferred memory hint by default": "failed to find the default preferred hint",
    "no preferred memory hint to extend to": "failed to find the extended preferred hint",
    "no NUMA node with enough memory": "no NUMA nodes with enough memory is available",
    "memory of no whole bytes": "failed to represent quantity as int64",
    "a pod with its own resources in container scope": "with a container-level topology manager",
    "a pod with its own resources in pod scope": "under pod-scope topology manager",
    "no CPUs left for containers that share": "leaving no cpus for shared containers",
    "no CPUs left for init containers that share": "no cpus available for them",
}
"""Why a pod is refused, and words of its message."""

_SINCE = {
    "refused: a pod with its own resources in container scope": 36,
    "refused: a pod with its own resources in pod scope": 36,
    "refused: no CPUs left for containers that share": 36,
    "refused: no CPUs left for init containers that share": 36,
    "a pod with its own resources gets exclusive CPUs": 36,
    "an instance of a container runs beside one that has ended": 36,
    "does not start: max-allowable-numa-nodes below eight": 31,
    "does not start: an option that is no number": 31,
    "more than eight NUMA nodes are aligned": 31,
    **{f"gives CPUs: {name}": since for name, since in _CPU_OPTIONS.items()},
    **{f"gives CPUs: {one}, {other}": max(_CPU_OPTIONS[one], _CPU_OPTIONS[other]) for one, other in _PAIRS},
    **{
        f"does not start: options {' and '.join(sorted(pair))}": max(_CPU_OPTIONS[name] for name in pair)
        for pair in _FORBIDDEN
    },
}
"""The first minor version that has a rule, where it is not the oldest."""

_OTHERS = """\
a machine of one NUMA node
a machine of more than eight NUMA nodes
a machine whose NUMA ids have gaps
a machine with a NUMA node without CPUs
a machine with a NUMA node without memory
a machine with two sockets in a NUMA node
a machine with several L3 caches in a NUMA node
a machine of cores without siblings
a machine of cores with four threads
a machine of cores of two kinds
more than eight NUMA nodes are aligned
prefer-closest-numa-nodes places on several NUMA nodes under best-effort
prefer-closest-numa-nodes places on several NUMA nodes under restricted
a reserved amount of CPUs is taken by the kubelet itself
an affinity of one NUMA node
an affinity of several NUMA nodes
an affinity with a gap
an affinity that is not preferred
no affinity
containers of one pod with different affinities
exclusive CPUs on several NUMA nodes
exclusive CPUs of a sidecar
exclusive CPUs of an init container are used again
exclusive CPUs beside a container that shares
fractional CPUs in a Guaranteed pod
a Guaranteed pod in the shared pool
a Burstable pod holds devices
a pod with its own resources is admitted
a pod with its own resources gets exclusive CPUs
memory on one NUMA node
memory on a group of NUMA nodes
a group of three NUMA nodes or more
huge pages of 2Mi
huge pages of 1Gi
a device of several NUMA nodes
a device without topology
a device of a NUMA node that is not there
devices of two resources in one container
devices of an init container are used again
a resource that no plugin offers
a pod ends and another takes its CPUs
a started container releases an init container's memory
a restart
a pod admitted again after a restart
a running pod refused after a restart
a restart that is refused
a restart before the kubelet's sources are ready
a running container keeps devices whose plugin is away
a running pod refused for an init container that has ended
an instance of a container runs beside one that has ended
a pod refused before the sources are ready keeps what it had
a panic: a mask of no NUMA node
a panic: a distance that is not there
a panic: huge pages of a size that a NUMA node lacks"""

_PANICS = {
    "a mask of no NUMA node": "BitMask is nil",
    "a distance that is not there": "index out of range",
    "huge pages of a size that a NUMA node lacks": "nil pointer dereference",
}


def _every() -> Iterator[str]:
    for policy in _POLICIES:
        for scope in _SCOPES:
            yield f"admitted: {policy}, scope {scope}"
            yield f"refused: {policy}, scope {scope}"
    for cpu in ("none", "static"):
        yield from (f"admitted: cpu {cpu}, memory {memory}" for memory in ("None", "Static"))
    yield from (f"gives CPUs: {name}" for name in ("no options", *_CPU_OPTIONS, *map(", ".join, _PAIRS)))
    yield from (f"does not start: {why}" for why in _START)
    yield from (f"refused: {why}" for why in _REFUSALS)
    yield from _OTHERS.splitlines()


RULES = tuple(_every())
"""The names of all rules."""


def rules_of(version: str) -> list[str]:
    """The rules that a kubelet of this version has."""
    minor = int(version.split(".")[1])
    return [rule for rule in RULES if _SINCE.get(rule, 0) <= minor]


def passed(case: Case, answer: Answer) -> set[str]:
    """The rules that the kubelet applied on its way to the answer."""
    names = set(_of_machine(case))
    names.update(_of_end(case, answer))
    life = _Life(case)
    for step, result in zip(case["steps"], answer.get("steps", ()), strict=False):
        if result.get("refused"):
            names.add("a restart that is refused")
        if result["state"] is None:
            break
        names.update(life.step(step, result))
    return names


def _of_machine(case: Case) -> Iterator[str]:
    nodes, cores = case["machine"]["numaNodes"], case["machine"]["cores"]
    ids = [node["id"] for node in nodes]
    threads = {core["threads"].count(",") + 1 for core in cores}
    with_cpus = {core["numaNode"] for core in cores}
    caches = {(core["numaNode"], core["l3Cache"]) for core in cores if core["l3Cache"] is not None}
    facts = {
        "a machine of one NUMA node": len(ids) == 1,
        "a machine of more than eight NUMA nodes": len(ids) > DEFAULT_MAX_NUMA_NODES,
        "a machine whose NUMA ids have gaps": max(ids) >= len(ids),
        "a machine with a NUMA node without CPUs": with_cpus < set(ids),
        "a machine with a NUMA node without memory": not all(node["memory"] for node in nodes),
        "a machine with two sockets in a NUMA node": (
            len({(core["numaNode"], core["socket"]) for core in cores}) > len(with_cpus)
        ),
        "a machine with several L3 caches in a NUMA node": len(caches) > len({node for node, _ in caches}),
        "a machine of cores without siblings": threads == {1},
        "a machine of cores with four threads": threads == {4},
        "a machine of cores of two kinds": len(threads) > 1,
    }
    yield from (name for name, holds in facts.items() if holds)


def _of_end(case: Case, answer: Answer) -> Iterator[str]:
    refused = answer.get("refused", "")
    options = {name for name, on in case["kubelet"].get("cpuManagerPolicyOptions", {}).items() if on == "true"}
    for why, words in _START.items():
        if words in refused and (words != _AT_ONCE or _is_pair(why, options)):
            yield f"does not start: {why}"
    for why, words in _PANICS.items():
        if words in answer.get("panic", ""):
            yield f"a panic: {why}"


def _is_pair(why: str, options: set[str]) -> bool:
    """Whether the pair that a rule names is the only forbidden one among the options."""
    pairs = [pair for pair in _FORBIDDEN if pair <= options]
    return len(pairs) == 1 and why == f"options {' and '.join(sorted(pairs[0]))}"


class _Life:
    """Plays the steps of a case in order and recognises rules from the changes between them."""

    def __init__(self, case: Case) -> None:
        self._case = case
        kubelet = case["kubelet"]
        self._policy: str = kubelet["topologyManagerPolicy"]
        self._where = f"{self._policy}, scope {kubelet['topologyManagerScope']}"
        self._managers = f"cpu {kubelet['cpuManagerPolicy']}, memory {kubelet['memoryManagerPolicy']}"
        on = [name for name, value in kubelet.get("cpuManagerPolicyOptions", {}).items() if value == "true"]
        self._options = [name for name in _CPU_OPTIONS if name in on]
        self._nodes = [node["id"] for node in case["machine"]["numaNodes"]]
        self._node_of = {
            cpu: core["numaNode"] for core in case["machine"]["cores"] for cpu in map(int, core["threads"].split(","))
        }
        self._devices = {(device["resource"], device["id"]): device["numaNodes"] for device in case["devices"]}
        self._freed = 0
        self._restarted = False
        self._found: list[Case] | None = None
        self._away: set[str] = set()
        self._running: set[str] = set()
        self._memory: dict[str, Any] = {}

    def step(self, step: Case, result: Answer) -> Iterator[str]:
        """The rules that one step shows."""
        if "admit" in step:
            yield from self._admission(step["admit"], result)
        elif "end" in step:
            name = f"{step['end']['namespace']}/{step['end']['name']}"
            self._freed |= self._cpus_of(name)
            self._running.discard(name)
        elif "restart" in step:
            self._restarted = True
            self._found, self._away = step.get("found"), set(step.get("away", ()))
            yield "a restart"
            if self._found is not None:
                yield "a restart before the kubelet's sources are ready"
        elif "ready" in step:
            self._found = None
        elif "connect" in step:
            self._away -= set(step["connect"])
        elif "start" in step and _total(result["state"]) < _total(self._memory):
            yield "a started container releases an init container's memory"
        self._memory = result["state"]

    def _cpus_of(self, name: str) -> int:
        cpus = 0
        for container in (self._memory.get("pods") or {}).get(name) or ():
            cpus |= parse_id_list(container["cpus"])
        return cpus

    def _admission(self, pod: Case, result: Answer) -> Iterator[str]:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        again = self._restarted and name in self._running
        if self._found is not None:
            yield from self._unready(pod, result)
        if not result["admitted"]:
            yield from self._known(f"refused: {self._where}")
            yield from (f"refused: {why}" for why, words in _REFUSALS.items() if words in result["message"])
            if again:
                yield "a running pod refused after a restart"
            self._running.discard(name)
            return
        self._running.add(name)
        yield from self._known(f"admitted: {self._where}")
        yield f"admitted: {self._managers}"
        if again:
            yield "a pod admitted again after a restart"
        yield from self._affinities(result["containers"])
        yield from self._cpus(pod, result["containers"])
        yield from self._blocks(result["containers"])
        yield from self._allocated_devices(pod, result["containers"])

    def _unready(self, pod: Case, result: Answer) -> Iterator[str]:
        """The rules of an admission before the kubelet's sources of pods are ready."""
        uid = pod["metadata"]["uid"]
        found = {(each["name"], each.get("running", False)) for each in self._found or () if each["podUID"] == uid}
        held = (result["state"]["pods"] or {}).get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}") or ()
        with_devices = {container["name"] for container in held if self._away & (container["devices"] or {}).keys()}
        runs = {name for name, running in found if running} & with_devices
        if result["admitted"] and runs:
            yield "a running container keeps devices whose plugin is away"
        if result["admitted"] and any((name, False) in found for name in runs):
            yield "an instance of a container runs beside one that has ended"
        if not result["admitted"] and any(each["cpus"] or each["memory"] or each["devices"] for each in held):
            yield "a pod refused before the sources are ready keeps what it had"
        if "no healthy devices" in result["message"] and runs and pod["spec"].get("initContainers"):
            yield "a running pod refused for an init container that has ended"

    def _known(self, rule: str) -> Iterator[str]:
        """The rule, unless the scope is unknown, which only policy none accepts."""
        if self._case["kubelet"]["topologyManagerScope"] in _SCOPES:
            yield rule

    def _affinities(self, containers: list[Answer]) -> Iterator[str]:
        if self._policy == _NONE:
            return
        for container in containers:
            affinity = container["affinity"]
            if affinity is None:
                yield "no affinity"
                continue
            yield "an affinity of one NUMA node" if len(affinity) == 1 else "an affinity of several NUMA nodes"
            if not container["preferred"]:
                yield "an affinity that is not preferred"
            if len(self._nodes) > DEFAULT_MAX_NUMA_NODES:
                yield "more than eight NUMA nodes are aligned"
            between = [node for node in self._nodes if min(affinity) < node < max(affinity)]
            if set(between) - set(affinity):
                yield "an affinity with a gap"
            options = self._case["kubelet"].get("topologyManagerPolicyOptions", {})
            closest = options.get("prefer-closest-numa-nodes") in ("true", "1")
            if closest and 1 < len(affinity) < len(self._nodes) and self._policy != _SINGLE:
                yield f"prefer-closest-numa-nodes places on several NUMA nodes under {self._policy}"
        if len({str(container["affinity"]) for container in containers}) > 1:
            yield "containers of one pod with different affinities"

    def _cpus(self, pod: Case, containers: list[Answer]) -> Iterator[str]:
        spec = pod["spec"]
        exclusive = {
            container["name"]: parse_id_list(container["cpus"]) for container in containers if container["cpus"]
        }
        own = bool((spec.get("resources") or {}).get("limits"))
        if own:
            yield "a pod with its own resources is admitted"
        if exclusive:
            if own:
                yield "a pod with its own resources gets exclusive CPUs"
            yield from self._options_in_force()
            yield from self._exclusive(spec, exclusive, len(containers))
        elif self._case["kubelet"]["cpuManagerPolicy"] == "static" and _is_guaranteed(spec):
            yield "a Guaranteed pod in the shared pool"

    def _options_in_force(self) -> Iterator[str]:
        if not self._options:
            yield "gives CPUs: no options"
        yield from (f"gives CPUs: {option}" for option in self._options)
        yield from (f"gives CPUs: {', '.join(pair)}" for pair in combinations(self._options, 2))
        if "reservedSystemCPUs" not in self._case["kubelet"]:
            yield "a reserved amount of CPUs is taken by the kubelet itself"

    def _exclusive(self, spec: Case, exclusive: dict[str, int], containers: int) -> Iterator[str]:
        initial = spec.get("initContainers") or []
        sidecars = {container["name"] for container in initial if container.get("restartPolicy") == "Always"}
        init = {container["name"] for container in initial} - sidecars
        late = [cpus for name, cpus in exclusive.items() if name not in init]
        early = [cpus for name, cpus in exclusive.items() if name in init]
        facts = {
            "exclusive CPUs of a sidecar": bool(sidecars & exclusive.keys()),
            "exclusive CPUs beside a container that shares": len(exclusive) < containers,
            "exclusive CPUs on several NUMA nodes": any(len(self._numa_nodes(cpus)) > 1 for cpus in exclusive.values()),
            "exclusive CPUs of an init container are used again": any(one & other for one in early for other in late),
            "a pod ends and another takes its CPUs": any(cpus & self._freed for cpus in exclusive.values()),
            "fractional CPUs in a Guaranteed pod": any(
                "m" in str(container["resources"].get("limits", {}).get("cpu", "")) for container in spec["containers"]
            ),
        }
        yield from (name for name, holds in facts.items() if holds)

    def _numa_nodes(self, cpus: int) -> set[int]:
        return {self._node_of[cpu] for cpu in members(cpus)}

    def _blocks(self, containers: list[Answer]) -> Iterator[str]:
        for container in containers:
            for block in container["memory"] or ():
                if block["type"] != "memory":
                    yield f"huge pages of {block['type'].removeprefix('hugepages-')}"
                elif len(block["numaNodes"]) == 1:
                    yield "memory on one NUMA node"
                else:
                    yield "memory on a group of NUMA nodes"
                if len(block["numaNodes"]) > 2:
                    yield "a group of three NUMA nodes or more"

    def _allocated_devices(self, pod: Case, containers: list[Answer]) -> Iterator[str]:
        offered = {resource for resource, _ in self._devices}
        spec = pod["spec"]
        every = [*(spec.get("initContainers") or []), *spec["containers"]]
        requested = {name for container in every for name in container["resources"].get("limits", {}) if "/" in name}
        if requested - offered:
            yield "a resource that no plugin offers"
        allocated: list[set[tuple[str, str]]] = []
        for container in containers:
            ids = {(resource, device) for resource, some in (container["devices"] or {}).items() for device in some}
            if len({resource for resource, _ in ids}) > 1:
                yield "devices of two resources in one container"
            if any(ids & before for before in allocated):
                yield "devices of an init container are used again"
            allocated.append(ids)
            for device in ids:
                numa_nodes = self._devices[device]
                if numa_nodes is None:
                    yield "a device without topology"
                elif len(numa_nodes) > 1:
                    yield "a device of several NUMA nodes"
                elif set(numa_nodes) - set(self._nodes):
                    yield "a device of a NUMA node that is not there"
            if ids and not _is_guaranteed(spec):
                yield "a Burstable pod holds devices"


def _is_guaranteed(spec: Case) -> bool:
    """Whether the pod is Guaranteed; an approximation: every container has limits alone, of CPUs and memory."""
    every = [*(spec.get("initContainers") or []), *spec["containers"]]
    return all(
        {"cpu", "memory"} <= container["resources"].get("limits", {}).keys()
        and "requests" not in container["resources"]
        for container in every
    )


def _total(state: Any) -> int:
    """The bytes that the Memory Manager has reserved."""
    return sum(sum(node["reserved"].values()) for node in (state.get("memory") if state else None) or ())
