"""Shrinks a case as long as a condition stays true."""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from verify.oracle.kubelet_oracle import Case


def shrink(case: Case, holds: Callable[[Case], bool], seconds: float = 60.0) -> Case:
    """Remove one part after another while ``holds`` stays true; the smallest case within ``seconds``."""
    until = time.monotonic() + seconds
    smaller: Case | None = case
    while smaller is not None:
        case = smaller
        smaller = None
        for candidate in _smaller(case):
            if time.monotonic() > until:
                return case
            if holds(candidate):
                smaller = candidate
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    yield from _without_each(case, ("steps",))
    for step in range(len(case["steps"])):
        if "admit" in case["steps"][step]:
            yield from _smaller_pods(case, step)
    yield from _without_numa_nodes(case)
    yield from _without_each(case, ("devices",))
    if len(case["machine"]["cores"]) > 1:
        yield from _without_each(case, ("machine", "cores"))
    yield from _simpler_settings(case)


def _without_each(case: Case, path: tuple[str | int, ...]) -> Iterator[Case]:
    """The case without one element of the list or object at ``path``; halves of a long list first."""
    value = _at(case, path)
    if isinstance(value, list) and len(value) > 3:
        half = len(value) // 2
        for part in (value[:half], value[half:]):
            yield _with(case, path, part)
    keys: list[int | str] = list(range(len(value))) if isinstance(value, list) else list(value)
    for key in reversed(keys):
        smaller = copy.deepcopy(case)
        del _at(smaller, path)[key]
        yield smaller


def _smaller_pods(case: Case, step: int) -> Iterator[Case]:
    spec: tuple[str | int, ...] = ("steps", step, "admit", "spec")
    for kind in ("initContainers", "containers"):
        containers = _at(case, spec).get(kind, [])
        if len(containers) > (kind == "containers"):
            yield from _without_each(case, (*spec, kind))
        for index, container in enumerate(containers):
            if "restartPolicy" in container:
                smaller = copy.deepcopy(case)
                del _at(smaller, (*spec, kind, index))["restartPolicy"]
                yield smaller
            for amounts in container["resources"]:
                yield from _without_each(case, (*spec, kind, index, "resources", amounts))
                for name, amount in container["resources"][amounts].items():
                    if (amount not in {"0", "1"} and "/" in name) or (name == "cpu" and amount != "1"):
                        yield _with(case, (*spec, kind, index, "resources", amounts, name), "1")


def _without_numa_nodes(case: Case) -> Iterator[Case]:
    for node in reversed(case["machine"]["numaNodes"]):
        smaller = copy.deepcopy(case)
        place = case["machine"]["numaNodes"].index(node)
        machine = smaller["machine"]
        del machine["numaNodes"][place]
        machine["cores"] = [core for core in machine["cores"] if core["numaNode"] != node["id"]]
        for other in machine["numaNodes"]:
            if other.get("distances"):
                del other["distances"][place]
        if machine["cores"]:
            yield smaller


def _simpler_settings(case: Case) -> Iterator[Case]:
    for name in ("topologyManagerPolicyOptions", "cpuManagerPolicyOptions", "featureGates", "reservedMemory"):
        if name in case["kubelet"]:
            yield from _without_each(case, ("kubelet", name))
    simplest = {"memoryManagerPolicy": "None", "cpuManagerPolicy": "none", "topologyManagerScope": "container"}
    for name, value in {**simplest, "reservedSystemCPUs": "0"}.items():
        if case["kubelet"].get(name, value) != value:
            yield _with(case, ("kubelet", name), value)
    for index, node in enumerate(case["machine"]["numaNodes"]):
        if node.get("hugepages"):
            yield from _without_each(case, ("machine", "numaNodes", index, "hugepages"))


def _at(case: Case, path: tuple[str | int, ...]) -> Any:
    value: Any = case
    for key in path:
        value = value[key]
    return value


def _with(case: Case, path: tuple[str | int, ...], value: object) -> Case:
    smaller = copy.deepcopy(case)
    _at(smaller, path[:-1])[path[-1]] = value
    return smaller
