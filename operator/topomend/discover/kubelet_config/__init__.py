"""The kubelet's configuration, as far as admission depends on it: its file with drop-ins and flags, or its ``configz``.

Owns KubeletConfiguration (kubelet.config.k8s.io/v1beta1), read as the kubelet reads it: ``discover.documents`` turns
text into JSON values, ``decode`` these into the fields of ``fields``, ``merge`` and ``overrides`` put drop-ins and
flags over the file, and ``settings`` picks what admission depends on. ``kubelet_settings`` decides which source is
used.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from topomend.base.plain_text import plain
from topomend.discover.documents.value import Members
from topomend.discover.host_files import SourceUnreadable
from topomend.discover.kubelet_config.decode import Content, Decoder
from topomend.discover.kubelet_config.fields import ROOT, types_of
from topomend.discover.kubelet_config.files import (
    API_VERSION,
    KIND,
    ConfigFile,
    check_drop_in,
    check_file,
    drop_in_paths,
    read_file,
)
from topomend.discover.kubelet_config.kubelet_process import Flags
from topomend.discover.kubelet_config.merge import VERSIONED_MINOR, merged, with_all_defaults, with_derived_defaults
from topomend.discover.kubelet_config.overrides import overridden
from topomend.discover.kubelet_config.settings import POLICIES, settings_of
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay.gates import minor_of, read_gates
from topomend.replay.startup.configuration import UNKNOWN_HOST, Host
from topomend.replay.startup.validation import why_not_start
from topomend.wire.document import Document, MalformedObject

MAX_SENTENCES, MAX_SENTENCE = 4, 400
"""The most of the kubelet's sentences that are quoted, and letters of each."""

NOT_GIVEN = "no kubelet configuration is given to read: name its file"

_DEFAULT_EVICTION = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
"""Filled in where the file sets no thresholds (pkg/kubelet/eviction/defaults_linux.go)."""

_MERGED_EVICTION_MINOR = 33
"""Kubernetes 1.33 has mergeDefaultEvictionSettings."""

_WITHOUT_FILE: Content = {
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "readOnlyPort": 10255,
}
"""The defaults of a kubelet that is started without a file (cmd/kubelet/app/options/options.go:applyLegacyDefaults)."""


@dataclass(frozen=True)
class Written:
    """The files as they were read, and the flags: what they mean depends on the kubelet's release.

    ``drop_ins`` is None where no folder of drop-ins is given. With an empty one the kubelet writes and reads what it
    has as JSON nevertheless, and loses what JSON leaves out: an empty list of ``enforceNodeAllocatable``.
    """

    file: ConfigFile | None
    drop_ins: tuple[ConfigFile, ...] | None
    flags: Flags


@dataclass(frozen=True)
class KubeletConfig:
    """The settings of one kubelet, and where they come from.

    ``reason`` is empty if the configuration was read completely; otherwise ``problems`` name what is wrong. ``source``
    is a condition's reason that names the source; ``remarks`` are observations about it. ``after_restart`` are the
    settings that the kubelet would have after a restart, None if those in force.
    """

    settings: KubeletSettings
    reason: str = ""
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    source: str = "Read"
    after_restart: KubeletSettings | None = None

    @cached_property
    def lists_ended_pods(self) -> bool:
        """Whether this kubelet's pod-resources list pods that have ended, too."""
        return read_gates(self.settings).lists_ended_pods

    @property
    def lists_cpus(self) -> bool:
        """Whether this kubelet's pod-resources list allocatable CPUs (cpumanager/policy_none.go:GetAllocatableCPUs)."""
        return self.settings.cpu_manager_policy == "static"


def read_kubelet_config(
    file: Path | None, drop_ins: Path | None = None, flags: Flags | None = None, *, version: str
) -> KubeletConfig:
    """The settings that a kubelet of this version reads in ``file`` with every ``*.conf`` under ``drop_ins`` over it.

    ``flags`` override both (cmd/kubelet/app/server.go:kubeletConfigFlagPrecedence). A kubelet may have any of the three
    without the others; a field that none of them sets has its default. A missing folder counts as one without drop-ins,
    with a remark: distributions create it only when there is a drop-in. They are merged in the kubelet's order. Which
    files are valid, and what they mean, depends on the release. Never raises; see ``reason``.
    """
    if file is None and drop_ins is None and flags is None:
        return KubeletConfig(KubeletSettings(version), "NotGiven", (NOT_GIVEN,))
    try:
        written = read_written(file, drop_ins, flags)
    except SourceUnreadable as error:
        return _unreadable(f"the kubelet's configuration {error}", version)
    if file is None and flags is None and not written.drop_ins:
        return _unreadable(f"no kubelet configuration: folder {drop_ins} has no file whose name ends in .conf", version)
    config = _interpreted(written, version)
    return replace(config, remarks=(*config.remarks, *folder_remarks(drop_ins)))


def read_written(file: Path | None, drop_ins: Path | None, flags: Flags | None) -> Written:
    """The files as they are now, whatever they mean. Raises SourceUnreadable."""
    dropped_in = None if drop_ins is None else tuple(map(read_file, drop_in_paths(drop_ins)))
    return Written(read_file(file) if file else None, dropped_in, dict(flags or {}))


def read_configz(answer: object, version: str) -> KubeletConfig:
    """The settings in the answer of a kubelet of this version to ``/configz``: those in force, with flags and defaults.

    Kubelets write ``kind`` and ``apiVersion`` into it since 1.36 only (cmd/kubelet/app/server.go:setConfigz). All write
    every policy, because each has a default. Never raises.
    """
    try:
        document = Document(answer)["kubeletconfig"]
        if not (document["kind"].absent and document["apiVersion"].absent):
            _check_kind(document)
        elif all(document[name].absent for name in POLICIES):
            raise document.wrong(f"a {KIND}, which has {', '.join(POLICIES)}")
    except MalformedObject as error:
        return _unreadable(f"the kubelet's configz is not a {KIND}: {error}", version)
    settings, problems = settings_of(document, version)
    return KubeletConfig(settings, "Invalid" if problems else "", tuple(problems))


def config_fingerprint(*files: Path | None, drop_ins: Path | None = None) -> object:
    """A value that changes whenever a file changes, or a drop-in is added or removed."""
    try:
        return tuple((path, *mark_of(path)) for path in (*filter(None, files), *drop_in_paths(drop_ins)))
    except SourceUnreadable as error:
        return str(error)


def mark_of(path: Path) -> tuple[int, int, int]:
    """A value that changes whenever the file is written or replaced; all zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _unreadable(problem: str, version: str) -> KubeletConfig:
    return KubeletConfig(KubeletSettings(version), "Unreadable", (problem,))


def folder_remarks(folder: Path | None) -> list[str]:
    """Why nothing of the folder is dropped in, whatever is in it."""
    if folder is None:
        return []
    if os.path.islink(folder):  # noqa: PTH114 - Path's methods raise if a folder above has been closed meanwhile
        return [f"folder {folder} is a link, which the kubelet does not follow: nothing is dropped in"]
    if os.path.isdir(folder):  # noqa: PTH112
        return []
    return [f"folder {folder} is not there: nothing is dropped in"]


# What the files mean


def _interpreted(written: Written, version: str) -> KubeletConfig:
    try:
        judged = judge(written, version)
    except SourceUnreadable as error:
        return _unreadable(f"the kubelet's configuration {error}", version)
    problems = tuple(
        f"the kubelet's configuration: {problem}; the kubelet does not start with this" for problem in judged.wrong
    )
    problems = problems or _not_started(judged.sentences) or judged.wrong_settings
    return KubeletConfig(judged.settings, "Invalid" if problems else "", problems, judged.remarks)


@dataclass(frozen=True)
class Judged:
    """What a kubelet of one release makes of files and flags.

    ``content`` has its defaults. ``wrong`` are the values that fit no field, ``sentences`` the kubelet's own about the
    rest, ``wrong_settings`` those of the ``settings`` with which no kubelet starts. ``remarks`` are observations.
    """

    content: Content
    settings: KubeletSettings
    wrong: tuple[str, ...]
    sentences: tuple[str, ...]
    wrong_settings: tuple[str, ...]
    remarks: tuple[str, ...]


def judge(written: Written, version: str, host: Host = UNKNOWN_HOST) -> Judged:
    """What a kubelet of this version on ``host`` makes of it. Raises SourceUnreadable where it is no configuration."""
    read = read_content(written, version)
    settings, wrong = settings_of(Document(read.content), version)
    sentences = why_not_start(read.content, version, host=host, has_defaults=True)
    return Judged(read.content, settings, tuple(read.problems), sentences, tuple(wrong), tuple(read.remarks))


def _not_started(sentences: Sequence[str]) -> tuple[str, ...]:
    quoted = "; ".join(plain(sentence, MAX_SENTENCE) for sentence in sentences[:MAX_SENTENCES])
    return (f"a kubelet with this configuration does not start: {quoted}",) if quoted else ()


@dataclass(frozen=True)
class Read:
    """What files and flags say: the content with its defaults, each value that fits no field, and remarks."""

    content: Content
    problems: list[str]
    remarks: list[str]


def read_content(written: Written, version: str) -> Read:
    """What a kubelet of this version reads. Raises SourceUnreadable for a file that is no configuration."""
    minor = minor_of(version)
    types = types_of(minor)
    decoder = Decoder(types)
    content = dict(_WITHOUT_FILE)
    if written.file is not None:
        check_file(written.file)
        content = _with_default_eviction(decoder.configuration(written.file.text.value), minor)
    problems, remarks = list(decoder.problems), list(_remarks(decoder, minor))
    if written.file is not None:
        remarks += [f"{name} stands twice: the last one counts" for name in written.file.text.repeated]
    if written.drop_ins is not None or written.flags:
        content = with_derived_defaults(content, minor)
    if minor < VERSIONED_MINOR:
        content = with_all_defaults(content, types, minor)
    if written.drop_ins is not None:
        if written.file is None:
            # Without a file, drop-ins are merged over the flags, of which this one adds up when it is read again.
            content = overridden(content, {"vmodule": written.flags.get("vmodule", ())}, minor)
        members: list[Members] = [check_drop_in(drop_in, minor) for drop_in in written.drop_ins]
        content, decoder = merged(content, members, types, minor)
        problems += decoder.problems
        remarks += _remarks(decoder, minor)
    if minor >= VERSIONED_MINOR:
        content = with_all_defaults(content, types, minor)
    return Read(overridden(content, written.flags, minor), problems, remarks)


def _with_default_eviction(content: Content, minor: int) -> Content:
    """The file's thresholds, filled in before any drop-in is merged (cmd/kubelet/app/server.go:loadConfigFile)."""
    hard = content.get("evictionHard")
    if hard is None:
        return {**content, "evictionHard": _DEFAULT_EVICTION}
    if content.get("mergeDefaultEvictionSettings") is True and minor >= _MERGED_EVICTION_MINOR:
        return {**content, "evictionHard": {**_DEFAULT_EVICTION, **hard}}
    return content


def _remarks(decoder: Decoder, minor: int) -> list[str]:
    """The members that the kubelet passes over, each with the field that was perhaps meant."""
    remarks = []
    for path, name, struct in decoder.unknown:
        if struct == ROOT and name in ("kind", "apiVersion"):
            continue
        close = get_close_matches(name.lower(), [known.lower() for known in decoder.types[struct]], n=1)
        meant = next((known for known in decoder.types[struct] if [known.lower()] == close), None)
        hint = f": did you mean {meant}?" if meant else ""
        remarks.append(f"no kubelet v1.{minor} knows {path[:80]}, which is passed over{hint}")
    return remarks


def _check_kind(document: Document) -> None:
    if document["kind"].text() != KIND or document["apiVersion"].text() != API_VERSION:
        raise document.wrong(f"a {KIND} of {API_VERSION}")
