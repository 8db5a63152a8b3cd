"""The node that ``simulate`` asks: read from ``--node``, with the flags applied that stand for its kubelet's settings.

Owns which documents ``--node`` takes, and the flags' values. Leaves what is known of such a node to
``replay.simulation``.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topomend.cache.topology_reader import why_not_ready
from topomend.cli.flags.kubelet_flags import (
    TOPOLOGY_MANAGER_POLICIES,
    TOPOLOGY_MANAGER_SCOPES,
    read_choice,
    read_options,
    read_reservations,
    read_version,
)
from topomend.cli.input.did_you_mean import did_you_mean, nearest
from topomend.cli.input.discovered_node import PODS_UNKNOWN, SETTINGS_UNKNOWN, lacks
from topomend.cli.input.lists import is_list, items_of
from topomend.cli.input.made_machine import made_machine, nearest_machine, recorded_machine, warn_of_problems
from topomend.cli.input.manifests import read_documents
from topomend.cli.output.console import echo
from topomend.cli.output.failures import BadInput
from topomend.discover.kubelet_config import KubeletConfig, read_kubelet_config
from topomend.model.bitmask import format_id_list, lowest, parse_id_list
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.shapes.known_machines import KnownMachine, find_machine
from topomend.model.shapes.pasted_machine import PastedMachine
from topomend.replay.cpu.options import KNOWN_OPTIONS as CPU_OPTIONS
from topomend.replay.simulation import Simulation, simulation_of, with_reserved_cpus, with_settings
from topomend.replay.topology.options import KNOWN_OPTIONS as TOPOLOGY_OPTIONS
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import NODE_TOPOLOGY
from topomend.wire.node import read_node
from topomend.wire.pods.bound_pod import read_bound_pod
from topomend.wire.published.node_topology import read_node_topology, why_not_started

_OPTION_GATES = {
    f"{manager}Policy{level}Options": True
    for manager in ("CPUManager", "TopologyManager")
    for level in ("Alpha", "Beta")
}
"""A given option enables the feature gates that guard it."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "topology_manager_policy": TOPOLOGY_MANAGER_POLICIES,
    "topology_manager_scope": TOPOLOGY_MANAGER_SCOPES,
    "cpu_manager_policy": ("none", "static"),
    "memory_manager_policy": ("None", "Static"),
}
_OPTIONS: Mapping[str, frozenset[str]] = {
    "topology_manager_options": TOPOLOGY_OPTIONS,
    "cpu_manager_options": CPU_OPTIONS,
}
_FIELDS = {
    **{flag: flag for flag in _CHOICES},
    "topology_manager_options": "topology_manager_policy_options",
    "cpu_manager_options": "cpu_manager_policy_options",
    "reserved_cpus": "reserved_cpus",
    "reserved_memory": "reserved_memory",
    "kubelet_version": "version",
}
_ALIGNING = ("topology_manager_policy", "cpu_manager_policy", "memory_manager_policy")
"""The flags by one of which a kubelet aligns anything, but for devices."""

_FINISHED = ("Succeeded", "Failed")
_UNREADABLE = ("Unreadable", "NotGiven")


@dataclass(frozen=True)
class _Given:
    """What ``--node`` has: a state, and of a cluster's node perhaps the Node and all its pods.

    ``is_made`` is whether it is a machine alone, of whose kubelet nothing is known. ``problem`` is why its kubelet did
    not start, by the NodeTopology. ``unready`` is why that is not Ready: the words, by the reason of the condition.
    """

    state: NodeState
    is_made: bool
    node: Node | None = None
    pods: tuple[BoundPod, ...] | None = None
    problem: str = ""
    unready: Mapping[str, str] = field(default_factory=dict)


def read_simulation(
    source: str, node_name: str | None, config: tuple[Path | None, Path | None], flags: Mapping[str, str]
) -> Simulation:
    """The kubelet to ask. ``config`` are its configuration's file and drop-in folder. Raises BadInput."""
    made = _made_machine(source)
    if made:
        warn_of_problems(made, source, "--node")
    given = _given(made) if made else _read_node(source, node_name)
    problem = given.problem
    if not problem:
        is_set = any(config) or bool(flags.keys() & {*_ALIGNING})
        for words in _unready_words(given, is_set=is_set):
            echo(f"warning: {given.state.name}: {words}", err=True)
    if any(config):
        text = flags.get("kubelet_version")
        read = _read_config(*config, _value("kubelet_version", text) if text else given.state.kubelet.version)
        problem = "; ".join(read.problems)
        given = replace(given, state=with_settings(given.state, read.settings))
    elif given.problem:
        echo(f"warning: {given.state.name}: {given.problem}; --kubelet-config asks about another one", err=True)
    state = _with_flags(given.state, flags)
    if given.is_made and not any(config):
        state = _with_a_reserved_cpu(state)
    node = given.node
    if node and ("reserved_cpus" in flags or any(config)):
        node = with_reserved_cpus(node, state)
    return simulation_of(state, node, given.pods, problem)


def assumptions(source: str, config: tuple[Path | None, Path | None], flags: Mapping[str, str]) -> Iterator[str]:
    """What is assumed of the kubelet of a made-up machine, where the flags do not say it, in a line each."""
    made = None if any(config) else _made_machine(source)
    if made is None:
        return
    if not flags.keys() & {*_ALIGNING}:
        yield f"a kubelet's default settings align nothing; see {', '.join(map(_name, _ALIGNING))}"
    if flags.get("cpu_manager_policy") == "static" and "reserved_cpus" not in flags:
        first = lowest(made.machine.cpus)
        yield f"--reserved-cpus {first} is assumed: the static CPU policy needs a reserved CPU"


def how_to_add(source: str, missing: Iterable[str], simulation: Simulation) -> Iterator[str]:
    """How ``--node`` is given each resource that it lacks, in a line each; of a cluster's node nobody gives it any."""
    if made_machine(source, "--node") is None:
        return
    known = find_machine(source.split(maxsplit=1)[0])
    there = {device.resource for device in simulation.kubelet.state.devices}
    for resource in missing:
        near = nearest(resource, there)
        or_else = f", or write {near}" if near else _not_published(known, resource)
        yield f"--node has no {resource}: add device:{resource}@NUMA=COUNT{or_else}"


def _not_published(known: KnownMachine | None, resource: str) -> str:
    """Why a known machine's shape lacks its GPUs, for the end of a sentence; empty of any other resource."""
    if known is None or "GPUs, which are left out" not in known.open or "gpu" not in resource:
        return ""
    return f"; not published of {known.name}: {known.open.partition(',')[0]}"


def _made_machine(source: str) -> PastedMachine | None:
    return made_machine(source, "--node") or recorded_machine(source, "--node")


def _given(made: PastedMachine) -> _Given:
    return _Given(NodeState(name="shape", machine=made.machine, devices=made.devices), is_made=True, pods=())


# Files


def _read_node(source: str, node_name: str | None) -> _Given:
    where = f"--node {source}"
    if near := _nearest_machine(source):
        raise BadInput(f"{where}: no such file, and no machine of this name{near}")
    try:
        objects = list(_objects(Document(content) for content in read_documents(source, "--node")))
        topology = _chosen([each for each in objects if _kind(each) == NODE_TOPOLOGY], where, node_name)
        state, unready = read_node_topology(topology.content), _unready(topology.content)
        nodes = [read_node(each.content) for each in objects if _kind(each) == "Node"]
        pods = [each for each in objects if _kind(each) == "Pod"]
        bound = tuple(_on(state.name, pods)) if pods else None
        problem = why_not_started(topology.content)
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error
    node = next((node for node in nodes if node.name == state.name), None)
    return _Given(state, is_made=False, node=node, pods=bound, problem=problem, unready=unready)


_OF_NO_AGENT: Mapping[str, str] = {
    SETTINGS_UNKNOWN: "it does not say how its kubelet is set, and default settings align nothing: give "
    "--kubelet-config, or flags such as --cpu-manager-policy; topomend discover --kubelet-config records them",
    PODS_UNKNOWN: "it does not say which pods run there, and counts as empty",
}
"""What an object of ``topomend discover`` lacks, which no agent has written, by the reasons of its conditions."""


def _unready(content: dict[str, Any]) -> dict[str, str]:
    """Why the object is not Ready, by the reason; of each part where no agent wrote it. Raises MalformedObject."""
    if missing := lacks(content):
        return {reason: words for reason, words in _OF_NO_AGENT.items() if reason in missing}
    why = why_not_ready(content)
    return {"": why} if why else {}


def _unready_words(given: _Given, *, is_set: bool) -> Iterator[str]:
    """What to warn of. ``is_set`` is whether the user says how the kubelet is set."""
    for reason, words in given.unready.items():
        if not (is_set and reason == SETTINGS_UNKNOWN) and not (given.pods is not None and reason == PODS_UNKNOWN):
            yield words


def _nearest_machine(source: str) -> str:
    # What Path.exists raises, reading the file says in one line.
    return "" if source == "-" or os.path.exists(source) else nearest_machine(source)  # noqa: PTH110


def _objects(documents: Iterator[Document]) -> Iterator[Document]:
    for document in documents:
        if document.absent:
            continue
        if is_list(document):
            yield from _objects(items_of(document))
        elif _kind(document) in (NODE_TOPOLOGY, "Node", "Pod"):
            yield document
        else:
            raise document["kind"].wrong("NodeTopology, Node, Pod or List")


def _kind(document: Document) -> str:
    return document["kind"].text("")


def _chosen(topologies: Sequence[Document], where: str, node_name: str | None) -> Document:
    """The one NodeTopology, or the one of this name. Raises BadInput, MalformedObject."""
    by_name = {each["metadata"]["name"].text(): each for each in topologies}
    if node_name is not None:
        if node_name not in by_name:
            near = did_you_mean(node_name, by_name) or f"; there are: {', '.join(sorted(by_name)) or 'none'}"
            raise BadInput(f"{where}: no NodeTopology {node_name}{near}")
        return by_name[node_name]
    if not by_name:
        raise BadInput(f"{where}: no NodeTopology; kubectl get ntopo NAME -o yaml prints one")
    if len(by_name) > 1:
        raise BadInput(
            f"{where}: {len(by_name)} NodeTopologies; name one with --node-name: {', '.join(sorted(by_name))}"
        )
    return next(iter(by_name.values()))


def _on(name: str, pods: Sequence[Document]) -> Iterator[BoundPod]:
    """The pods that are on the node, without those that have ended."""
    for pod in pods:
        if pod["spec"]["nodeName"].text("") == name and pod["status"]["phase"].text("") not in _FINISHED:
            yield read_bound_pod(pod.content)


# Settings


def _read_config(file: Path | None, drop_ins: Path | None, version: str) -> KubeletConfig:
    """The configuration as a kubelet of this version reads it."""
    read = read_kubelet_config(file, drop_ins, version=version)
    if read.reason in _UNREADABLE:
        raise BadInput(f"--kubelet-config {file or drop_ins}: {'; '.join(read.problems)}")
    for remark in read.remarks:
        echo(f"warning: {remark}", err=True)
    return read


def _with_flags(state: NodeState, flags: Mapping[str, str]) -> NodeState:
    """The node with the flags applied, as if its kubelet had been started with them. Raises BadInput."""
    settings: dict[str, Any] = {_FIELDS[flag]: _value(flag, text) for flag, text in flags.items()}
    if "reserved_cpus" in flags:
        _check_reserved(state, settings["reserved_cpus"], flags["reserved_cpus"])
        settings["reserved_cpu_millis"] = 0
    if "cpu_manager_options" in flags or "topology_manager_options" in flags:
        settings["feature_gates"] = {**state.kubelet.feature_gates, **_OPTION_GATES}
    return with_settings(state, replace(state.kubelet, **settings))


def _with_a_reserved_cpu(state: NodeState) -> NodeState:
    """A made-up machine under the static CPU policy without reserved CPUs, which needs one."""
    kubelet = state.kubelet
    if kubelet.cpu_manager_policy != "static" or kubelet.reserved_cpus is not None:
        return state
    return replace(state, kubelet=replace(kubelet, reserved_cpus=1 << lowest(state.machine.cpus)))


def _check_reserved(state: NodeState, reserved: int, text: str) -> None:
    if missing := reserved & ~state.machine.cpus:
        there = format_id_list(state.machine.cpus)
        raise BadInput(f"--reserved-cpus {text!r}: the machine has no CPU {format_id_list(missing)}; it has {there}")


def _value(flag: str, text: str) -> Any:
    name = _name(flag)
    if flag in _CHOICES:
        return read_choice(name, text, _CHOICES[flag])
    try:
        return _READERS[flag](text)
    except ValueError as error:
        raise BadInput(f"{name} {text!r}: {error}") from error


def _name(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


def _options(known: frozenset[str]) -> Callable[[str], dict[str, str]]:
    def read(text: str) -> dict[str, str]:
        options = read_options(text)
        for name in options:
            if name not in known:
                near = did_you_mean(name, known) or f"; there are: {', '.join(sorted(known))}"
                raise ValueError(f"no kubelet has an option {name!r}{near}")
        return options

    return read


_READERS: Mapping[str, Callable[[str], Any]] = {
    **{flag: _options(known) for flag, known in _OPTIONS.items()},
    "reserved_cpus": parse_id_list,
    "reserved_memory": read_reservations,
    "kubelet_version": read_version,
}
