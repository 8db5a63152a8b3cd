"""The kubelet's packages with some of their functions answered by replay, as an overlay for ``go test``.

An overlay replaces files for one build and leaves the module cache as it is. A replaced function keeps its signature;
the kubelet's own stands beside it under another name, for what replay does not answer: other operations than that of
a new pod. Owns which functions are replaced and their new bodies. Leaves to ``kubelet/*.go`` how they ask.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "kubelet"

CLIENT = "pkg/kubelet/cm/topomend"
"""The package that asks replay, which no kubelet has."""

CPU, MEMORY, DEVICE, TOPOLOGY, CONTAINER_QOS = (
    f"pkg/kubelet/cm/{name}" for name in ("cpumanager", "memorymanager", "devicemanager", "topologymanager", "qos")
)
QOS = "pkg/apis/core/v1/helper/qos"

PACKAGES = (CPU, MEMORY, DEVICE, TOPOLOGY, QOS, CONTAINER_QOS)
"""The packages whose tests are run. A release may lack one."""

ADDED = {
    CLIENT: ("client",),
    CPU: ("cpumanager", *(f"cpumanager_{when}_1_{minor}" for minor in (32, 36, 38) for when in ("before", "since"))),
    MEMORY: ("memorymanager", "memorymanager_before_1_36", "memorymanager_since_1_36"),
    DEVICE: ("devicemanager", "devicemanager_before_1_38", "devicemanager_since_1_38"),
    TOPOLOGY: ("topologymanager", "topologymanager_before_1_38", "topologymanager_since_1_38"),
    QOS: ("qos",),
    CONTAINER_QOS: ("containerqos",),
}
"""The files of ``SOURCES`` that each package gets."""

ORIGINAL = "Kubelets"
"""The end of the name under which a replaced function remains."""

_END = "\n}\n"
"""Where a function ends, as gofmt writes it."""

_PARAMETER = re.compile(r"(\w+(?:, \w+)*) ([^,]+)")


@dataclass(frozen=True)
class Function:
    """A function that replay answers as the ``question``, in kubelets ``since`` a minor version.

    ``body`` may hold ``{names}``, for which ``_filled`` finds the release's own code.
    """

    package: str
    file: str
    receiver: str
    name: str
    body: str
    question: str
    since: int = 0

    def __str__(self) -> str:
        return f"{self.receiver}.{self.name}" if self.receiver else self.name


_AFFINITY = "p.affinity.GetAffinity({logger}string(pod.UID), container.Name)"
_POD_AFFINITY = (
    "p.affinity.GetAffinity({logger}string(pod.UID), append(pod.Spec.InitContainers, pod.Spec.Containers...)[0].Name)"
)


def _static_policy(package: str) -> Iterator[Function]:
    """What the static policies of the CPU and Memory Manager have in common."""
    hints, allocate = "return p.replayHints", "return p.replayAllocate"
    for name, since, body in (
        ("GetTopologyHints", 0, f'{hints}("{{question}}", s, pod, container)'),
        ("GetPodTopologyHints", 0, f'{hints}("{{question}}", s, pod, nil)'),
        ("Allocate", 0, f'{allocate}("{{question}}", s, pod, container, {_AFFINITY})'),
        ("AllocatePod", 36, f'{allocate}("{{question}}", s, pod, nil, {_POD_AFFINITY})'),
    ):
        question = f"{Path(package).name}.{name}"
        yield Function(package, "policy_static.go", "staticPolicy", name, body, question, since)


def _functions() -> Iterator[Function]:
    take = 'return replayTake("{question}", topo, availableCPUs, numCPUs, map[string]any{{{options}}})'
    for name in ("takeByTopologyNUMAPacked", "takeByTopologyNUMADistributed"):
        yield Function(CPU, "cpu_assignment.go", "", name, take, name)
    for name, container in (("guaranteedCPUs", "container"), ("podGuaranteedCPUs", "nil")):
        body = f'return p.replayCount("{{question}}", pod, {container})'
        yield Function(CPU, "policy_static.go", "staticPolicy", name, body, name)
    yield from _static_policy(CPU)
    yield from _static_policy(MEMORY)
    collect = "{collect}\n\treturn m.replayHints"
    for name, container in (("GetTopologyHints", "container"), ("GetPodTopologyHints", "nil")):
        body = f'{collect}("{{question}}", pod, {container})'
        yield Function(DEVICE, "topology_hints.go", "ManagerImpl", name, body, f"devicemanager.{name}")
    body = (
        "affinity := topologymanager.TopologyHint{{}}\n"
        "\tif m.topologyAffinityStore != nil {{\n"
        "\t\taffinity = m.topologyAffinityStore.GetAffinity({logger}podUID, contName)\n"
        "\t}}\n"
        "\treturn m.replayDevices(podUID, contName, resource, required, reusableDevices, {running}, affinity)"
    )
    yield Function(DEVICE, "manager.go", "ManagerImpl", "devicesToAllocate", body, "devicesToAllocate")
    for file, policy in (
        ("policy_best_effort.go", "bestEffortPolicy"),
        ("policy_restricted.go", "restrictedPolicy"),
        ("policy_single_numa_node.go", "singleNumaNodePolicy"),
    ):
        merge = 'return replayMerge("{question}", p.Name(), p.numaInfo, p.opts, providersHints)'
        yield Function(TOPOLOGY, file, policy, "Merge", merge, f"{policy}.Merge")
    yield Function(QOS, "qos.go", "", "ComputePodQOS", 'return replayClass("{question}", pod)', "ComputePodQOS")
    name = "IsContainerEquivalentQOSGuaranteed"
    yield Function(CONTAINER_QOS, "helpers.go", "", name, 'return replayGuaranteed("{question}", container)', name, 36)


FUNCTIONS = tuple(_functions())


class NotReplaced(ValueError):
    """The source of a release does not look as ``FUNCTIONS`` expects; the text says which function of which file."""


def functions_of(minor: int) -> tuple[Function, ...]:
    """The functions that the kubelets of a minor version have."""
    return tuple(function for function in FUNCTIONS if function.since <= minor)


def write(kubernetes: Path, minor: int, folder: Path) -> Mapping[str, str]:
    """Write the changed and added files into ``folder``, and return the overlay: the path in the tree -> the file.

    Raises NotReplaced.
    """
    overlay: dict[str, str] = {}
    sources: dict[Path, str] = {}
    for function in functions_of(minor):
        path = kubernetes / function.package / function.file
        if path not in sources and not path.exists():
            raise NotReplaced(f"{function.package} has no {function.file}")
        sources[path] = replaced(sources.get(path) or path.read_text(), function)
    for package, files in ADDED.items():
        if package == CLIENT or (kubernetes / package).is_dir():
            for file in files:
                sources[kubernetes / package / f"topomend_{file}.go"] = (SOURCES / f"{file}.go").read_text()
    for number, (path, source) in enumerate(sources.items()):
        target = folder / f"{number}.go"
        target.write_text(source)
        overlay[str(path)] = str(target)
    return overlay


def replaced(source: str, function: Function) -> str:
    """The source with ``function`` answered by replay. Raises NotReplaced."""
    found = _signature(function, source)
    if found is None:
        raise NotReplaced(f"{function.file} has no function {function}")
    before, parameters = found[1], found[2]
    # A parameter without a name cannot be passed on.
    operation = re.search(r"\b(\w+) lifecycle\.Operation", parameters)
    end = source.index(_END, found.end())
    try:
        body = function.body.format(**_filled(function, source, source[found.end() : end], parameters))
    except KeyError as error:
        raise NotReplaced(f"{function.file} has another function {function}: nothing to take for {error}") from error
    lines = [found[0]]
    if operation and operation[1] != "_":
        passed = ", ".join(name for names, _ in _PARAMETER.findall(parameters) for name in names.split(", "))
        original = f"p.{function.name}{ORIGINAL}({passed})"
        lines.append(f"if {operation[1]} != lifecycle.AddOperation {{\n\t\treturn {original}\n\t}}")
    if "logger" in body and "logger " not in parameters:
        lines.append("logger := klog.FromContext(ctx)")
    replacement = "\n\t".join([*lines, body]) + _END
    kept = f"{before}{function.name}{ORIGINAL}({source[found.start(2) : end]}{_END}"
    return f"{source[: found.start()]}{replacement}\n{kept}{source[end + len(_END) :]}"


def _signature(function: Function, source: str) -> re.Match[str] | None:
    """The line that starts the function: up to its name, its parameters; None if there is none."""
    receiver = rf"\(\w+ \*?{function.receiver}\) " if function.receiver else ""
    return re.search(rf"^(func {receiver}){function.name}\((.*?)\) .*{{$", source, re.MULTILINE)


def _filled(function: Function, source: str, body: str, parameters: str) -> Mapping[str, str]:
    """What the new body takes from the kubelet's own: how it calls what has another signature in other releases."""
    collect = re.search(r"m\.UpdateAllocatedDevices\(\w*\)", body)
    running = re.search(r"!m\.sourcesReady\.AllReady\(\) && m\.isContainerAlreadyRunning\([^)]*\)", body)
    options = re.findall(
        r"\b(cpuGroupSize|cpuSortingStrategy|preferAlignByUncoreCache|alignBySocket|minNUMAsFromHint)\b", parameters
    )
    filled = {
        "question": function.question,
        "logger": "logger, " if "GetAffinity(logger, " in source else "",
        "options": ", ".join(f'"{option}": {option}' for option in options),
    }
    return filled | {name: code[0] for name, code in (("collect", collect), ("running", running)) if code}
