"""The kubelet's configuration, as far as admission depends on it: its file with drop-ins and flags, or its ``configz``.

Owns KubeletConfiguration (kubelet.config.k8s.io/v1beta1). A field that the kubelet would refuse is a problem, and is
never read as a similar valid value. ``kubelet_settings`` decides which source is used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

from topomend.discover.host_files import SourceUnreadable, read_bytes
from topomend.discover.kubelet_process import Flags
from topomend.model.bitmask import MAX_ID
from topomend.model.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.model.plain_text import plain
from topomend.model.quantity import format_bytes, value
from topomend.replay.gates import read_gates
from topomend.wire.document import Document, MalformedObject

MAX_BYTES = 1 << 16
"""Bytes. Real files have 2 to 10 KiB; the parser takes a second for this many."""

MAX_OPTIONS, MAX_RESERVATIONS, MAX_LIMITS, MAX_TEXT = 32, 256, 16, 256
"""The most that can be published of each, far more than any kubelet uses."""

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
"""The valid values of each field; the first is the kubelet's default (apis/config/v1beta1/defaults.go)."""

_GATES: Mapping[str, str] = {
    "CPUManagerPolicyAlphaOptions": "alpha",
    "CPUManagerPolicyBetaOptions": "beta",
    "TopologyManagerPolicyAlphaOptions": "alpha",
    "TopologyManagerPolicyBetaOptions": "beta",
    "PodLevelResources": "beta",
    "PodLevelResourceManagers": "alpha",
    "PodLevelResourcesFixKubeletQOSClass": "beta",
    "CPUManagerPolicyOptions": "stable",
    "TopologyManagerPolicyOptions": "stable",
    "MemoryManager": "stable",
    "SidecarContainers": "stable",
    "InPlacePodVerticalScaling": "stable",
    "InPlacePodVerticalScalingExclusiveCPUs": "alpha",
    "InPlacePodVerticalScalingExclusiveMemory": "alpha",
    "InPlacePodVerticalScalingInitContainers": "beta",
    "InPlacePodLevelResourcesVerticalScaling": "beta",
    "DRAExtendedResource": "beta",
    "KubeletPodResourcesListUseActivePods": "stable",
}
"""The gates that admission and resizes depend on, and their stage in v1.36 (pkg/features/kube_features.go)."""

_DEFAULT_EVICTION = "100Mi"
"""evictionHard memory.available if evictionHard is absent (apis/config/v1beta1/defaults_linux.go)."""

NOT_GIVEN = "no kubelet configuration is given to read: name its file"

_TEXT_FLAGS: Mapping[str, str] = {
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "cpu-manager-policy": "cpuManagerPolicy",
    "memory-manager-policy": "memoryManagerPolicy",
    "reserved-cpus": "reservedSystemCPUs",
}
_MAP_FLAGS: Mapping[str, tuple[str, str]] = {
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", "="),
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", "="),
    "kube-reserved": ("kubeReserved", "="),
    "system-reserved": ("systemReserved", "="),
    "eviction-hard": ("evictionHard", "<"),
    "feature-gates": ("featureGates", "="),
}
"""The flags that admission depends on, the field that each overrides, and the separator of a key and its value
(cmd/kubelet/app/options/options.go:AddKubeletConfigFlags)."""

_TRUE, _FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")
"""The values that Go's strconv.ParseBool accepts."""


@dataclass(frozen=True)
class KubeletConfig:
    """The settings of one kubelet, and where they come from.

    ``reason`` is empty if the configuration was read completely; otherwise ``problems`` name what is wrong. ``source``
    is a condition's reason that names the source; ``remarks`` are observations about it.
    """

    settings: KubeletSettings
    reason: str = ""
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    source: str = "Read"

    @cached_property
    def lists_ended_pods(self) -> bool:
        """Whether this kubelet's pod-resources list pods that have ended, too."""
        return read_gates(self.settings).lists_ended_pods


def read_kubelet_config(file: Path | None, drop_ins: Path | None = None, flags: Flags | None = None) -> KubeletConfig:
    """The settings in ``file`` with every ``*.conf`` under ``drop_ins`` merged over it, in the kubelet's order.

    ``flags`` override both (cmd/kubelet/app/server.go:kubeletConfigFlagPrecedence). A kubelet may have any of the three
    without the others; a field that none of them sets has its default. A missing folder counts as one without drop-ins,
    with a remark: distributions create it only when there is a drop-in. Never raises; see ``reason``.
    """
    if file is None and drop_ins is None and flags is None:
        return KubeletConfig(KubeletSettings(), "NotGiven", (NOT_GIVEN,))
    try:
        content = _with_default_eviction(_load(file) if file else {})
        dropped_in = [*_drop_ins(drop_ins)]
        for drop_in in dropped_in:
            content = _merged(content, _load(drop_in))
        content = _overridden(content, flags or {})
    except SourceUnreadable as error:
        return KubeletConfig(KubeletSettings(), "Unreadable", (f"the kubelet's configuration {error}",))
    if file is None and flags is None and not dropped_in:
        why = f"no kubelet configuration: folder {drop_ins} has no file whose name ends in .conf"
        return KubeletConfig(KubeletSettings(), "Unreadable", (why,))
    config = _read(Document(content))
    if drop_ins is None or drop_ins.is_dir():
        return config
    return replace(config, remarks=(*config.remarks, f"folder {drop_ins} is not there: nothing is dropped in"))


def read_configz(answer: object) -> KubeletConfig:
    """The settings in a kubelet's answer to ``/configz``: those in force, with flags and defaults. Never raises."""
    document = Document(answer)
    try:
        _check_kind(document["kubeletconfig"])
    except MalformedObject as error:
        return KubeletConfig(KubeletSettings(), "Unreadable", (f"the kubelet's configz is not a {KIND}: {error}",))
    return _read(document["kubeletconfig"])


def config_fingerprint(*files: Path | None, drop_ins: Path | None = None) -> object:
    """A value that changes whenever a file changes, or a drop-in is added or removed."""
    try:
        return tuple((path, *mark_of(path)) for path in (*filter(None, files), *_drop_ins(drop_ins)))
    except SourceUnreadable as error:
        return str(error)


def mark_of(path: Path) -> tuple[int, int, int]:
    """A value that changes whenever the file is written or replaced; all zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _drop_ins(folder: Path | None) -> Iterator[Path]:
    """Files in the order of a walk by name (cmd/kubelet/app/server.go:mergeKubeletConfigurations)."""
    if folder is None or not folder.is_dir():
        return
    files = sorted(folder.rglob("*.conf"))
    if len(files) > MAX_DROP_INS:
        raise SourceUnreadable(f"folder {folder} has more than {MAX_DROP_INS} files")
    yield from (path for path in files if not path.is_dir())


def _load(path: Path) -> dict[str, Any]:
    try:
        # Not the faster C loader: deeply nested input crashes the process there.
        content = yaml.safe_load(read_bytes(path, MAX_BYTES))
    except SourceUnreadable as error:
        raise type(error)(f"{path} {error}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SourceUnreadable(f"{path} is not YAML: {plain(str(error), 160)}") from error
    try:
        _check_kind(Document(content))
    except MalformedObject as error:
        raise SourceUnreadable(f"{path} is not a {KIND} of {API_VERSION}: {error}") from error
    assert isinstance(content, dict)  # noqa: S101 - a document that has a kind is one
    return content


def _check_kind(document: Document) -> None:
    if document["kind"].text() != KIND or document["apiVersion"].text() != API_VERSION:
        raise document.wrong(f"a {KIND} of {API_VERSION}")


def _with_default_eviction(content: dict[str, Any]) -> dict[str, Any]:
    """The file's threshold, filled in before any drop-in is merged (cmd/kubelet/app/server.go:loadConfigFile)."""
    default = {"memory.available": _DEFAULT_EVICTION}
    hard = content.get("evictionHard")
    if hard is None:
        return {**content, "evictionHard": default}
    if isinstance(hard, dict) and content.get("mergeDefaultEvictionSettings") is True:
        return {**content, "evictionHard": {**default, **hard}}
    return content


def _merged(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7396): maps merge, null deletes, everything else replaces.

    The maps that are read here hold plain values only, so deeper levels are not merged.
    """
    both = {
        key: _without_nulls({**base[key], **content})
        for key, content in patch.items()
        if isinstance(content, dict) and isinstance(base.get(key), dict)
    }
    return _without_nulls({**base, **patch, **both})


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: content for key, content in fields.items() if content is not None}


# Flags


def _overridden(content: dict[str, Any], flags: Flags) -> dict[str, Any]:
    """``content`` with every flag in place of its field. Raises SourceUnreadable."""
    fields: dict[str, Any] = {
        _TEXT_FLAGS[name]: values[-1] for name, values in flags.items() if name in _TEXT_FLAGS and values
    }
    for name, (field, between) in _MAP_FLAGS.items():
        if name in flags:
            fields[field] = _pairs(name, flags[name], between)
    if gates := fields.get("featureGates"):
        # This is the only map that keeps the file's keys which the flag does not name.
        before = content.get("featureGates")
        named = {gate: _boolean(value) for gate, value in gates.items()}
        fields["featureGates"] = {**(before if isinstance(before, dict) else {}), **named}
    if reserved := [part for value in flags.get("reserved-memory", ()) for part in value.split(";") if part]:
        fields["reservedMemory"] = [_reservation(part) for part in reserved]
    return {**content, **fields}


def _pairs(name: str, values: Sequence[str], between: str) -> dict[str, str]:
    """``key=value,...``; repeated flags add up (component-base/cli/flag)."""
    # This flag takes one option each time: its value may contain commas (options.go: NewMapStringStringNoSplit).
    parts = values if name == "cpu-manager-policy-options" else [part for text in values for part in text.split(",")]
    pairs = {}
    for part in filter(None, parts):
        key, separator, value = part.partition(between)
        if not separator:
            raise SourceUnreadable(f"is overridden by --{name} with {part[:60]!r}, which is not KEY{between}VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def _boolean(text: str) -> bool | str:
    """A boolean, or the text itself, which the reader of the field then reports as malformed."""
    return True if text in _TRUE else False if text in _FALSE else text


def _reservation(text: str) -> dict[str, Any]:
    """``NUMA:RESOURCE=QUANTITY,...`` as the file would have it (pkg/util/flag/flags.go:ReservedMemoryVar)."""
    node, _, limits = text.partition(":")
    if not node.isascii() or not node.isdigit() or len(node) > 9:
        raise SourceUnreadable(
            f"is overridden by --reserved-memory with {text[:60]!r}, which does not begin with a NUMA node's id"
        )
    return {"numaNode": int(node), "limits": _pairs("reserved-memory", [limits], "=")}


# The fields


def _read(document: Document) -> KubeletConfig:
    problems: list[str] = []

    def field(read: Callable[[], _T], fallback: _T) -> _T:
        try:
            return read()
        except MalformedObject as error:
            problems.append(f"the kubelet's configuration: {error}; the kubelet does not start with this")
            return fallback

    def choice(name: str) -> str:
        content = document[name].content
        # An unknown word is published as it is, so that no reader takes the node for one without a policy.
        fallback = content[:MAX_POLICY] if isinstance(content, str) else _POLICIES[name][0]
        return field(lambda: _choice(document[name], _POLICIES[name]), fallback)

    def options(name: str) -> dict[str, str]:
        return field(lambda: _options(document[name]), {})

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
    """One of the ``known`` words. An empty text means the default, as it does for the kubelet."""
    text = field.text(known[0]) or known[0]
    if text not in known:
        raise field.wrong(f"one of {', '.join(known)}")
    return text


def _options(document: Document) -> dict[str, str]:
    options = {key: value.text() for key, value in document.fields()}
    if len(options) > MAX_OPTIONS or any(len(text) > MAX_TEXT for pair in options.items() for text in pair):
        raise document.wrong(f"at most {MAX_OPTIONS} options of at most {MAX_TEXT} letters")
    return options


def _reserved(document: Document, resource: str) -> int:
    """kubeReserved + systemReserved, in thousandths of a CPU or in bytes."""
    total = 0
    for name in ("kubeReserved", "systemReserved"):
        field = document[name][resource]
        if not field.absent:
            field.text()
            total += field.quantity() if resource == "cpu" else value(field.quantity())
    return total


def _reservations(reservations: Document) -> Iterator[MemoryReservation]:
    for number, reservation in enumerate(reservations):
        for place, (resource, quantity) in enumerate(reservation["limits"].fields()):
            if number >= MAX_RESERVATIONS or place >= MAX_LIMITS:
                raise reservations.wrong(f"at most {MAX_RESERVATIONS} NUMA nodes with {MAX_LIMITS} limits each")
            yield MemoryReservation(
                reservation["numaNode"].integer(default=0, most=MAX_ID - 1), resource, value(quantity.quantity())
            )


def _gates(gates: Document) -> dict[str, bool]:
    """The gates of ``_GATES``. AllAlpha and AllBeta apply to gates that are not set themselves."""
    given = {name: gate.boolean() for name, gate in gates.fields()}
    by_stage = {"alpha": given.get("AllAlpha"), "beta": given.get("AllBeta")}
    chosen = {name: given.get(name, by_stage.get(stage)) for name, stage in _GATES.items()}
    return {name: gate for name, gate in chosen.items() if gate is not None}


def _eviction(document: Document) -> int | None:
    """The hard eviction threshold of memory in bytes; None if it is a percentage of the machine's memory."""
    hard = document["evictionHard"]
    text = hard["memory.available"].text("" if not hard.absent else _DEFAULT_EVICTION)
    if not text:
        return 0
    return None if text.endswith("%") else value(Document(text, hard["memory.available"].path).quantity())


def _unbalanced(settings: KubeletSettings, reserved: int) -> Iterator[str]:
    """reservedMemory must equal the node's reservations (memorymanager/memory_manager.go:validateReservedMemory)."""
    given = sum(reservation.size for reservation in settings.reserved_memory if reservation.resource == "memory")
    if settings.memory_manager_policy == "Static" and given != reserved:
        yield (
            f"the kubelet's configuration: reservedMemory adds up to {format_bytes(given)}; kubeReserved, "
            f"systemReserved and the eviction threshold to {format_bytes(reserved)}: "
            "the kubelet does not start unless they are equal"
        )


def with_version(config: KubeletConfig, version: str | None) -> KubeletConfig:
    """The configuration with the kubelet's version. None leaves the default version, with a remark."""
    if version is not None:
        return replace(config, settings=replace(config.settings, version=version))
    return replace(
        config, remarks=(*config.remarks, f"the kubelet's version is not known: {DEFAULT_VERSION} is assumed")
    )
