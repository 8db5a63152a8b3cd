"""The kubelet's configuration file and its drop-ins, as far as admission depends on them.

Owns KubeletConfiguration (kubelet.config.k8s.io/v1beta1). A field that the kubelet would refuse is a problem and is
never read as something near. Flags given to the kubelet itself cannot be seen here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from topomend.discover.root import Absent, Unreadable, read_bytes
from topomend.model.bitmask import MAX_ID
from topomend.model.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.model.quantity import format_bytes, value
from topomend.wire.document import Document, MalformedObject

MAX_BYTES = 1 << 20
MAX_DROP_INS = 256
MAX_POLICY = 64
KIND, API_VERSION = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"

_T = TypeVar("_T")

_POLICIES: Mapping[str, tuple[str, ...]] = {
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"),
}
"""What each may say; the first is the kubelet's default (apis/config/v1beta1/defaults.go)."""

_GATES: Mapping[str, str] = {
    "CPUManagerPolicyAlphaOptions": "alpha",
    "CPUManagerPolicyBetaOptions": "beta",
    "TopologyManagerPolicyAlphaOptions": "alpha",
    "TopologyManagerPolicyBetaOptions": "beta",
    "PodLevelResources": "beta",
    "PodLevelResourceManagers": "alpha",
    "DRAExtendedResource": "beta",
    "KubeletPodResourcesListUseActivePods": "stable",
}
"""The gates that admission depends on, and their stage in v1.36 (pkg/features/kube_features.go)."""

_DEFAULT_EVICTION = "100Mi"
"""evictionHard memory.available where evictionHard is not given at all (apis/config/v1beta1/defaults_linux.go)."""


@dataclass(frozen=True)
class KubeletConfig:
    """``reason`` is empty where the configuration was read whole; ``problems`` say what is wrong, and with what."""

    settings: KubeletSettings
    reason: str = ""
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def read_kubelet_config(file: Path | None, drop_ins: Path | None = None) -> KubeletConfig:
    """The settings in ``file`` with every ``*.conf`` under ``drop_ins`` merged over it, in the kubelet's order."""
    if file is None:
        return KubeletConfig(KubeletSettings(), "NotGiven", ("no kubelet configuration is given: name its file",))
    try:
        content = _load(file)
        for drop_in in _drop_ins(drop_ins):
            content = _merged(content, _load(drop_in))
    except Unreadable as error:
        return KubeletConfig(KubeletSettings(), "Unreadable", (f"the kubelet's configuration {error}",))
    return _read(Document(content))


def config_fingerprint(file: Path | None, drop_ins: Path | None = None) -> object:
    """Changes whenever one of the files does."""
    if file is None:
        return None
    try:
        return tuple((path, *_mark(path)) for path in (file, *_drop_ins(drop_ins)))
    except Unreadable as error:
        return str(error)


def _mark(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _drop_ins(folder: Path | None) -> Iterator[Path]:
    """Files in the order of a walk by name (cmd/kubelet/app/server.go:mergeKubeletConfigurations)."""
    if folder is None:
        return
    if not folder.is_dir():
        raise Absent(f"folder {folder} is not there")
    found = sorted(folder.rglob("*.conf"))
    if len(found) > MAX_DROP_INS:
        raise Unreadable(f"folder {folder} holds more than {MAX_DROP_INS} files")
    yield from (path for path in found if not path.is_dir())


def _load(path: Path) -> dict[str, Any]:
    try:
        # Not the faster loader in C: a file that is nested too deeply ends the process in it.
        content = yaml.safe_load(read_bytes(path, MAX_BYTES))
    except Unreadable as error:
        raise type(error)(f"{path} {error}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Unreadable(f"{path} is not YAML: {' '.join(str(error).split())[:160]}") from error
    document = Document(content)
    try:
        if document["kind"].text() != KIND or document["apiVersion"].text() != API_VERSION:
            raise document.wrong(f"a {KIND} of {API_VERSION}")
    except MalformedObject as error:
        raise Unreadable(f"{path} is no {KIND} of {API_VERSION}: {error}") from error
    assert isinstance(content, dict)  # noqa: S101 - a document that has a kind is one
    return content


def _merged(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7396): maps merge, null deletes, everything else replaces.

    Every map that is read here is one of plain values, so what lies deeper is not merged.
    """
    both = {
        key: _without_nulls({**base[key], **content})
        for key, content in patch.items()
        if isinstance(content, dict) and isinstance(base.get(key), dict)
    }
    return _without_nulls({**base, **patch, **both})


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: content for key, content in fields.items() if content is not None}


# The fields


def _read(document: Document) -> KubeletConfig:
    problems: list[str] = []

    def field(read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except MalformedObject as error:
            problems.append(f"the kubelet's configuration: {error}; the kubelet does not start with this")
            return otherwise

    def choice(name: str) -> str:
        found = document[name].content
        # A word that is not known is carried on as it is, so that nobody takes the node for one without a policy.
        otherwise = found[:MAX_POLICY] if isinstance(found, str) else _POLICIES[name][0]
        return field(lambda: _choice(document[name], _POLICIES[name]), otherwise)

    def options(name: str) -> dict[str, str]:
        return field(lambda: {key: each.text() for key, each in document[name].fields()}, {})

    reserved_cpus = field(lambda: document["reservedSystemCPUs"].id_list() or None, None)
    cpu, memory = field(lambda: _reserved(document, "cpu"), 0), field(lambda: _reserved(document, "memory"), 0)
    settings = KubeletSettings(
        topology_manager_policy=choice("topologyManagerPolicy"),
        topology_manager_scope=choice("topologyManagerScope"),
        topology_manager_policy_options=options("topologyManagerPolicyOptions"),
        cpu_manager_policy=choice("cpuManagerPolicy"),
        cpu_manager_policy_options=options("cpuManagerPolicyOptions"),
        memory_manager_policy=choice("memoryManagerPolicy"),
        reserved_cpus=reserved_cpus,
        # A list of CPUs overrides the amounts (cmd/kubelet/app/server.go:run).
        reserved_cpu_millis=cpu if reserved_cpus is None else reserved_cpus.bit_count() * 1000,
        reserved_memory=field(lambda: tuple(_reservations(document["reservedMemory"])), ()),
        feature_gates=field(lambda: _gates(document["featureGates"]), {}),
    )
    eviction = field(lambda: _eviction(document), None)
    if not problems and eviction is not None:
        problems += _unbalanced(settings, memory + eviction)
    return KubeletConfig(settings, "Invalid" if problems else "", tuple(problems))


def _choice(field: Document, known: tuple[str, ...]) -> str:
    """One of the known words. An empty text is the default, as it is for the kubelet."""
    text = field.text(known[0]) or known[0]
    if text not in known:
        raise field.wrong(f"one of {', '.join(known)}")
    return text


def _reserved(document: Document, resource: str) -> int:
    """kubeReserved + systemReserved: thousandths of a CPU, or bytes."""
    total = 0
    for name in ("kubeReserved", "systemReserved"):
        field = document[name][resource]
        if not field.absent:
            field.text()
            total += field.quantity() if resource == "cpu" else value(field.quantity())
    return total


def _reservations(reservations: Document) -> Iterator[MemoryReservation]:
    for each in reservations:
        for resource, quantity in each["limits"].fields():
            yield MemoryReservation(
                each["numaNode"].integer(default=0, most=MAX_ID - 1), resource, value(quantity.quantity())
            )


def _gates(gates: Document) -> dict[str, bool]:
    """The gates that matter here, AllAlpha and AllBeta carried out on those that are not named themselves."""
    given = {name: gate.boolean() for name, gate in gates.fields()}
    every = {"alpha": given.get("AllAlpha"), "beta": given.get("AllBeta")}
    chosen = {name: given.get(name, every.get(stage)) for name, stage in _GATES.items()}
    return {name: gate for name, gate in chosen.items() if gate is not None}


def _eviction(document: Document) -> int | None:
    """The hard eviction threshold of memory in bytes; None where it is a percentage of what the machine has."""
    hard = document["evictionHard"]
    text = hard["memory.available"].text("" if not hard.absent else _DEFAULT_EVICTION)
    if not text:
        return 0
    return None if text.endswith("%") else value(Document(text, hard["memory.available"].path).quantity())


def _unbalanced(settings: KubeletSettings, reserved: int) -> Iterator[str]:
    """reservedMemory must add up to what is kept from pods (memorymanager/memory_manager.go:validateReservedMemory)."""
    given = sum(each.size for each in settings.reserved_memory if each.resource == "memory")
    if settings.memory_manager_policy == "Static" and given != reserved:
        yield (
            f"the kubelet's configuration: reservedMemory adds up to {format_bytes(given)}; kubeReserved, "
            f"systemReserved and the eviction threshold to {format_bytes(reserved)}: "
            "the kubelet does not start unless they are equal"
        )


def with_version(config: KubeletConfig, version: str | None) -> KubeletConfig:
    """The configuration of a kubelet of this version; None has the version assumed, and said so."""
    if version is not None:
        return replace(config, settings=replace(config.settings, version=version))
    return replace(
        config, remarks=(*config.remarks, f"the kubelet's version is not known: {DEFAULT_VERSION} is assumed")
    )
