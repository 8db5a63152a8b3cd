"""Carry out what the words of a remedy say, and ask replay whether the pod is admitted then.

Reads the words as a user does, and knows nothing of how they were found.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from verify.nearest.counterfactual import RefusedPod

from topomend.explain.remedy import Remedy
from topomend.explain.setting_remedy import SettingRemedy
from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, Resources
from topomend.model.quantity import parse_quantity
from topomend.replay.admission import is_admitted, release

_FIELDS = {
    "topologyManagerPolicy": "topology_manager_policy",
    "memoryManagerPolicy": "memory_manager_policy",
    "topologyManagerPolicyOptions": "topology_manager_policy_options",
    "cpuManagerPolicyOptions": "cpu_manager_policy_options",
    "reservedSystemCPUs": "reserved_cpus",
}


def wrong_remedies(refused: RefusedPod, remedy: Remedy) -> list[str]:
    """Each way in the words, and each setting, that does not get the pod admitted or cannot be read."""
    wrong = []
    for way in _ways(remedy.words):
        changed = _carried_out(refused, way)
        if changed is None or not is_admitted(*changed):
            wrong.append(f"remedy {way!r}: " + ("cannot be read" if changed is None else "refused all the same"))
    for setting in remedy.settings:
        if setting.words not in remedy.words:
            wrong.append(f"remedy {setting.words!r} is not in {remedy.words!r}")
        kubelet = _changed_settings(refused.state.kubelet, setting)
        if not is_admitted(replace(refused.state, kubelet=kubelet), refused.pod):
            wrong.append(f"setting {setting}: refused all the same")
    return wrong


def _ways(words: str) -> list[str]:
    return words.removeprefix("would be admitted ").split(" or ") if words else []


def _carried_out(refused: RefusedPod, way: str) -> tuple[NodeState, Pod] | None:
    """The node and the pod after what the words say; None if they say nothing that is known."""
    for pattern, change in _PATTERNS:
        found = re.fullmatch(pattern, way)
        if found:
            return change(refused.state, refused.pod, *found.groups(""))
    return None


def _with_settings(state: NodeState, pod: Pod, **settings: object) -> tuple[NodeState, Pod]:
    return replace(state, kubelet=replace(state.kubelet, **settings)), pod  # type: ignore[arg-type]


def _with_amount(resource: str) -> Callable[..., tuple[NodeState, Pod]]:
    def change(state: NodeState, pod: Pod, amount: str, *rest: str) -> tuple[NodeState, Pod]:
        name = resource or rest[0]
        container = rest[-1] or pod.containers[0].name
        return state, _changed_pod(pod, name, parse_quantity(amount), container)

    return change


def _changed_pod(pod: Pod, resource: str, quantity: int | None, container: str = "") -> Pod:
    """The pod with another amount in one container, or without the resource in any."""

    def changed(amounts: dict[str, int]) -> dict[str, int]:
        if quantity is None:
            return {name: amount for name, amount in amounts.items() if name != resource}
        return {**amounts, resource: quantity} if resource in amounts else amounts

    containers = (
        replace(
            each,
            resources=Resources(changed(dict(each.resources.requests)), changed(dict(each.resources.limits))),
        )
        if container in {"", each.name}
        else each
        for each in pod.containers
    )
    return replace(pod, containers=tuple(containers))


def _without_option(state: NodeState, pod: Pod, option: str) -> tuple[NodeState, Pod]:
    kubelet = state.kubelet
    cpu, topology = dict(kubelet.cpu_manager_policy_options), dict(kubelet.topology_manager_policy_options)
    (cpu if option in cpu else topology).pop(option)
    return _with_settings(state, pod, cpu_manager_policy_options=cpu, topology_manager_policy_options=topology)


def _with_option(state: NodeState, pod: Pod, option: str, value: str, policy: str) -> tuple[NodeState, Pod]:
    options = {**state.kubelet.topology_manager_policy_options, option: value}
    chosen = policy or state.kubelet.topology_manager_policy
    return _with_settings(state, pod, topology_manager_policy_options=options, topology_manager_policy=chosen)


_IN = r"(?: in container ([\w-]+))?(?:, which spans the same \d+ NUMA nodes)?"

_PATTERNS: tuple[tuple[str, Callable[..., tuple[NodeState, Pod]]], ...] = (
    (rf"with (\d+) CPUs?{_IN}", _with_amount("cpu")),
    (rf"with (\w+) of ([\w-]+){_IN}", _with_amount("")),
    (rf"with (\d+) ([\w.-]+/[\w.-]+){_IN}", _with_amount("")),
    (r"with Memory Manager (None)", lambda state, pod, name: _with_settings(state, pod, memory_manager_policy=name)),
    (r"with policy ([\w-]+)", lambda state, pod, name: _with_settings(state, pod, topology_manager_policy=name)),
    (r"without the option ([\w-]+)", _without_option),
    (r"with the option ([\w-]+)=(\w+)(?: and policy ([\w-]+))?", _with_option),
    (
        r"with whole cores reserved, such as CPUs ([\d,-]+)",
        lambda state, pod, cpus: _with_settings(state, pod, reserved_cpus=parse_id_list(cpus)),
    ),
    (r"without ([\w.-]+/[\w.-]+)", lambda state, pod, resource: (state, _changed_pod(pod, resource, None))),
    (r"once ([\w-]+)/([\w.-]+) ends", lambda state, pod, namespace, name: (release(state, namespace, name), pod)),
)


def _changed_settings(kubelet: KubeletSettings, setting: SettingRemedy) -> KubeletSettings:
    for name, value in setting.changes.items():
        field, _, option = name.partition(".")
        new: object = parse_id_list(value or "") if field == "reservedSystemCPUs" else value
        if option:
            options = {key: old for key, old in getattr(kubelet, _FIELDS[field]).items() if key != option}
            new = options if value is None else {**options, option: value}
        kubelet = replace(kubelet, **{_FIELDS[field]: new})  # type: ignore[arg-type]
    return kubelet


def waits(sentence: str) -> Iterator[str]:
    """The pods that a sentence says the pod waits for."""
    found = re.search(r"waits for (\S+?/\S+)(?: and (\S+/\S+))? to end", sentence)
    yield from (name for name in (found.groups("") if found else ()) if name)
