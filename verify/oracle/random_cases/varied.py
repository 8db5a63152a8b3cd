"""Kept cases with random changes: they are close to edges that random cases rarely reach."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from random import Random

from verify.oracle.kept import KEPT
from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.restarts import unready_restart

BEYOND_THE_MASKS = 64
"""The first NUMA id that the kubelet's masks cannot hold."""


def varied_case(random: Random) -> Case:
    """A kept case with up to two changes; equal states of ``random`` give equal cases."""
    case: Case = {**deepcopy(random.choice(_kept_cases())), "timeoutSeconds": 5}
    for _ in range(random.randint(0, 2)):
        change = random.choice(_SELDOM if random.randrange(6) == 0 else _CHANGES)
        change(random, case)
    return case


@cache
def _kept_cases() -> list[Case]:
    return [json.loads(path.read_text()) for path in KEPT]


def _drop_a_step(random: Random, case: Case) -> None:
    """A restart stays: only after one does a kubelet admit the same pod again."""
    droppable = [number for number, step in enumerate(case["steps"]) if "restart" not in step]
    if len(droppable) > 1:
        del case["steps"][random.choice(droppable)]


def _admit_one_more(random: Random, case: Case) -> None:
    """Another pod with its own uid: no kubelet gets two pods with the same uid."""
    pods = [step["admit"] for step in case["steps"] if "admit" in step]
    if pods:
        another = deepcopy(random.choice(pods))
        name = f"another-{len(pods)}"
        another["metadata"] |= {"name": name, "uid": name}
        case["steps"].insert(random.randint(0, len(case["steps"])), {"admit": another})


def _ask_for_other_cpus(random: Random, case: Case) -> None:
    """Change the CPUs of one container. Not in a pod with pod-level resources: the API server allows no container more
    than those."""
    pods = [step["admit"] for step in case["steps"] if "admit" in step and "resources" not in step["admit"]["spec"]]
    if not pods:
        return
    resources = random.choice(random.choice(pods)["spec"]["containers"]).get("resources", {})
    amount = str(random.randint(1, 6))
    for amounts in resources.values():
        if "cpu" in amounts:
            amounts["cpu"] = amount


def _choose_another_policy(random: Random, case: Case) -> None:
    case["kubelet"]["topologyManagerPolicy"] = random.choice(("best-effort", "restricted", "single-numa-node"))


def _choose_the_other_scope(random: Random, case: Case) -> None:
    case["kubelet"]["topologyManagerScope"] = random.choice(("container", "pod"))


def _restart(random: Random, case: Case) -> None:
    """All running pods are admitted again, as after a kubelet's restart."""
    alive: dict[str, Case] = {}
    steps = case["steps"][: random.randint(0, len(case["steps"]))]
    for step in steps:
        if "admit" in step:
            alive[step["admit"]["metadata"]["name"]] = step["admit"]
        elif "end" in step:
            alive.pop(step["end"]["name"], None)
    if random.randrange(2) == 0:
        resources = sorted({device["resource"] for device in case.get("devices", ())})
        case["steps"] = [*steps, *unready_restart(random, alive.values(), resources)]
    else:
        case["steps"] = [*steps, {"restart": True}, *({"admit": pod} for pod in alive.values())]


def _renumber(_random: Random, case: Case) -> None:
    """The last NUMA node gets an id beyond the kubelet's masks."""
    node = case["machine"]["numaNodes"][-1]
    for core in case["machine"]["cores"]:
        if core["numaNode"] == node["id"]:
            core["numaNode"] = BEYOND_THE_MASKS
    node["id"] = BEYOND_THE_MASKS


def _combine_options(random: Random, case: Case) -> None:
    """Set two options of the static CPU policy, whether the kubelet accepts both or not."""
    kubelet = case["kubelet"]
    if kubelet["cpuManagerPolicy"] == "static":
        kubelet["cpuManagerPolicyOptions"] = dict.fromkeys(random.sample(_CPU_OPTIONS, 2), "true")
        kubelet["featureGates"] = {**kubelet.get("featureGates", {}), "CPUManagerPolicyAlphaOptions": True}


_CPU_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)

_SELDOM: tuple[Callable[[Random, Case], None], ...] = (_renumber, _renumber, _combine_options)

_CHANGES: tuple[Callable[[Random, Case], None], ...] = (
    _drop_a_step,
    _admit_one_more,
    _ask_for_other_cpus,
    _choose_another_policy,
    _choose_the_other_scope,
    _restart,
)
