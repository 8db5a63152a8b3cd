"""Compare what topomend reads from a configuration with what the kubelet's own loader reads.

topomend's content is written as one file again, with every value explicit, and the oracle loads that: the effective
configuration must be the one that it has of the original files and flags. So every field is compared, with the
kubelet's own defaults on both sides. The settings that admission depends on are compared directly as well.
"""

import json
import re
import tempfile
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from verify.config_oracle.generate import HEAD, Generator, encoded
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.discover.documents.read import is_json, read_document
from topomend.discover.documents.value import NotADocument, NotTold, plain_value
from topomend.discover.host_files import SourceUnreadable
from topomend.discover.kubelet_config import read_content, read_kubelet_config, read_written
from topomend.discover.kubelet_config.fields import ROOT, Types, types_of
from topomend.discover.kubelet_config.files import NOT_TOLD
from topomend.discover.kubelet_config.go_values import parse_duration
from topomend.discover.kubelet_config.kubelet_process import read_flags
from topomend.discover.kubelet_config.merge import as_unstructured
from topomend.replay.gates import minor_of
from topomend.replay.startup.quantity import parse

Case = dict[str, Any]

MERGED_EVICTION = "mergeDefaultEvictionSettings"
"""Compared apart: with it, a file cannot say that there are no thresholds."""


ZEROS: tuple[object, ...] = (None, {}, "", 0, "0s")
"""What a field is that Go leaves out, or that has its type's zero value."""


@dataclass
class Report:
    """How many cases were read by both, refused by both, and which ones differ. Of ``not_told`` topomend says that it
    cannot tell how the kubelet reads them."""

    read: int = 0
    refused: int = 0
    not_told: int = 0
    not_compared: int = 0
    differences: list[tuple[int, Case, str]] = field(default_factory=list)


REFUSED = "refused by both"


def compare(oracle: KubeletOracle, case: Case, version: str) -> str | None:
    """The difference on a case, REFUSED or NOT_TOLD; None if both read it alike, empty if the kubelet says nothing."""
    theirs = oracle.ask(case)
    if "panic" in theirs or (not {"file", "flags"} & set(case) and not any(map(is_conf, case.get("dropIns", ())))):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        sources = (*lay_out(Path(folder), case), read_flags(case.get("flags", ())) if "flags" in case else None)
        ours = read_kubelet_config(*sources, version=version)
        why_not: object = ours.problems[:2] if ours.reason == "Unreadable" else None
        content: dict[str, Any] = {}
        if why_not is None:
            try:
                read = read_content(read_written(*sources), version)
                content, why_not = read.content, read.problems or None
            except SourceUnreadable as error:
                why_not = str(error)
    if "error" in theirs or why_not is not None:
        if NOT_TOLD in str(why_not):
            return NOT_TOLD
        if "error" in theirs and why_not is not None:
            return REFUSED
        return f"the kubelet: {theirs.get('error', 'reads it')[-300:]}; topomend: {why_not or 'reads it'}"
    again = oracle.ask(
        {
            "file": encoded(json.dumps(explicit(content, types_of(minor_of(version)))).encode()),
            # Whatever a file says of these, the kubelet has the flags' values: it registers them twice.
            "flags": [flag for flag in case.get("flags", ()) if "split-stream" in flag],
        }
    )
    if "panic" in again:
        return ""  # By flags alone a gate can be set that no file may set.
    wanted, got = comparable(theirs["config"]), comparable(again.get("config", {}))
    got[MERGED_EVICTION] = content.get(MERGED_EVICTION) or False
    wanted[MERGED_EVICTION] = wanted.get(MERGED_EVICTION) or False
    got = with_zeros_of(content, got)
    differing = sorted(name for name in {*wanted, *got} if wanted.get(name) != got.get(name))
    if differing:
        said = again.get("error", again.get("panic", ""))
        return "; ".join(f"{name}: {wanted.get(name)!r} and not {got.get(name)!r}" for name in differing) + str(said)
    if ours.reason:
        return None
    return "; ".join(settings_differences(theirs["config"], ours.settings)) or None


def is_conf(name: str) -> bool:
    return name.endswith(".conf")


def document_difference(oracle: KubeletOracle, text: bytes) -> str | None:
    """How a text is read otherwise than by the decoders of Kubernetes; None if it is not."""
    theirs = oracle.ask({"document": encoded(text)})
    try:
        value = read_document(text).value
        ours = json.dumps(plain_value(as_unstructured(value) if is_json(text) else value), sort_keys=True)
    except NotTold:
        return NOT_TOLD
    except NotADocument as error:
        return None if "error" in theirs else f"{text!r}: refused ({error}) and not {theirs}"
    expected = json.dumps(theirs["document"], sort_keys=True) if "error" not in theirs else str(theirs["error"])
    return None if ours == expected else f"{text!r}: {ours} and not {expected}"


def lay_out(folder: Path, case: Case) -> tuple[Path | None, Path | None]:
    """Write the case's files; the file and the folder of drop-ins."""
    file = drop_ins = None
    if "file" in case:
        file = folder / "kubelet.yaml"
        file.write_bytes(b64decode(case["file"]))
    if "dropIns" in case:
        drop_ins = folder / "conf.d"
        drop_ins.mkdir()
        for name, text in case["dropIns"].items():
            (drop_ins / name).parent.mkdir(parents=True, exist_ok=True)
            (drop_ins / name).write_bytes(b64decode(text))
        for name, target in case.get("links", {}).items():
            (drop_ins / name).symlink_to(target)
    return file, drop_ins


def explicit(content: Mapping[str, Any], types: Types) -> dict[str, Any]:
    """The content as a file that sets everything which it has."""
    written = _written(ROOT, content, types)
    # Absent thresholds of content are none; a file without thresholds has the default ones.
    return {**written, **HEAD, "evictionHard": written.get("evictionHard", {}), MERGED_EVICTION: False}


def _written(kind: str, content: Any, types: Types) -> Any:
    kind = kind.removeprefix("*")
    if content is None:
        return None
    if kind in types:
        return {name: _written(types[kind][name], inner, types) for name, inner in content.items()}
    if kind.startswith("[]"):
        return [_written(kind[2:], item, types) for item in content]
    if kind.startswith("map["):
        return {name: _written(kind.partition("]")[2], item, types) for name, item in content.items()}
    return f"{content}ns" if kind in ("v1.Duration", "v1.TimeOrMetaDuration") else content


def comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without what tells the same in two ways."""
    logging = dict(config.get("logging", {}))
    if isinstance(logging.get("flushFrequency"), str):
        logging["flushFrequency"] = parse_duration(logging["flushFrequency"])
    # Whether a map is empty or absent, and whether a verbosity is written, is no difference.
    kept = {name: inner for name, inner in config.items() if inner not in ({}, [], None, "")}
    # The kubelet makes the relative paths of its file absolute, and leaves those of drop-ins and flags as they are.
    kept = _without_empty({**kept, "logging": logging})
    for reservation in kept.get("reservedMemory", ()):
        # Kubelets before 1.32 keep fractions that the newer ones round up in drop-ins.
        for resource, quantity in reservation.get("limits", {}).items():
            reservation["limits"][resource] = -(-parse(quantity).nano // 10**6)
    text = re.sub(r'"/[^"]*/config-oracle[0-9]+/case/', '"', json.dumps(kept))
    comparable: dict[str, Any] = json.loads(text)
    return comparable


def with_zeros_of(content: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, Any]:
    """What was read again, with the zeros of content: a file cannot say them where a field has a default, flags can."""
    result = dict(got)
    for name, value in content.items():
        if isinstance(value, dict) and isinstance(got.get(name), dict):
            result[name] = with_zeros_of(value, got[name])
        elif value is not False and value in ("", 0):
            result.pop(name, None)
    return {name: value for name, value in result.items() if value != {}}


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {name: _without_empty(content) for name, content in value.items()}
        return {name: content for name, content in inner.items() if content is False or content not in ZEROS}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def settings_differences(config: Mapping[str, Any], settings: Any) -> Iterator[str]:
    """Where the settings are not those of the kubelet's effective configuration."""
    reserved = [
        (one.get("numaNode", 0), resource, -(-parse(quantity).nano // 10**9))
        for one in config.get("reservedMemory", ())
        for resource, quantity in sorted((one.get("limits") or {}).items())
    ]
    pairs = {
        "topologyManagerPolicy": settings.topology_manager_policy,
        "topologyManagerScope": settings.topology_manager_scope,
        "cpuManagerPolicy": settings.cpu_manager_policy,
        "memoryManagerPolicy": settings.memory_manager_policy,
        "cpuManagerPolicyOptions": dict(settings.cpu_manager_policy_options) or None,
        "topologyManagerPolicyOptions": dict(settings.topology_manager_policy_options) or None,
    }
    for name, ours in pairs.items():
        if config.get(name) != ours and (name in config or ours):
            yield f"{name}: {config.get(name)!r} and not {ours!r}"
    ours = [(one.numa_node, one.resource, one.size) for one in settings.reserved_memory]
    if sorted(ours) != sorted(reserved):
        yield f"reservedMemory: {reserved} and not {ours}"


def compare_many(oracle: KubeletOracle, seed: int, count: int, version: str) -> Report:
    """Compare random cases ``seed``, ``seed + 1``, ..."""
    report, types = Report(), types_of(minor_of(version))
    for number in range(seed, seed + count):
        case = Generator(Random(number), types).case()
        difference = compare(oracle, case, version)
        if difference is None:
            report.read += 1
        elif difference == REFUSED:
            report.refused += 1
        elif difference == NOT_TOLD:
            report.not_told += 1
        elif difference == "":
            report.not_compared += 1
        else:
            report.differences.append((number, case, difference))
    return report
