"""A configuration of k3s or RKE2 (``config.yaml``) as the drop-in and the flags that they give a kubelet.

Source: k3s-io/k3s, pkg/daemons/agent/agent_linux.go:kubeletArgsAndConfig, pkg/util/args.go:GetArgs; before 1.32, the
same defaults are flags (kubeletArgs). Left out is what neither the resource managers nor a kubelet's start depend on.
"""

from collections.abc import Iterator, Mapping, Sequence

from topomend.check.finding import Subject
from topomend.cli.input.kubelet_input import KubeletInput, configuration, first_object, naming
from topomend.cli.output.failures import BadInput
from topomend.discover.kubelet_config.kubelet_process import Flags, read_flags
from topomend.wire.document import Document

K3S_CONFIG = "K3sConfig"
"""Their configuration has no kind of its own."""

_ARGUMENTS = ("kubelet-arg", "kubelet-arg+")

_DROP_IN = "00-k3s-defaults.conf"

_DROP_IN_MINOR = 32
"""Since this release the defaults are in a drop-in."""

_FILES = ("config", "config-dir")

_UNKNOWN = ("further files below config.yaml.d, and arguments of k3s' own command line",)


def of_k3s_config(name: str, content: bytes, minor: int) -> KubeletInput | None:
    """What the kubelet of k3s or RKE2 of this minor release reads; None if the file has no arguments for one.

    Raises BadInput.
    """
    document = first_object(content)
    if document is None or not document["kind"].absent or all(document[key].absent for key in _ARGUMENTS):
        return None
    with naming(name):
        flags = _flags(document)
    if given := [f"{flag}={flags[flag][-1]}" for flag in _FILES if flag in flags]:
        raise BadInput(f"{name}: {given[0]} has the kubelet read another file: lint that, with these arguments in it")
    return _input(name, flags, minor)


def _flags(document: Document) -> Flags:
    """Arguments stand without dashes, as a list or alone."""
    return read_flags([f"--{text}" if "=" in text else f"--{text}=" for text in _arguments(document)])


def _arguments(document: Document) -> Iterator[str]:
    for key in _ARGUMENTS:
        given = document[key]
        if isinstance(given.content, str):
            yield given.content
        else:
            yield from (item.text() for item in given)


def _input(name: str, flags: Mapping[str, Sequence[str]], minor: int) -> KubeletInput:
    subject = Subject(K3S_CONFIG, name)
    if minor >= _DROP_IN_MINOR:
        defaults = {
            "evictionHard": {"imagefs.available": "5%", "nodefs.available": "5%"},
            "evictionMinimumReclaim": {"imagefs.available": "10%", "nodefs.available": "10%"},
            "failSwapOn": False,
            "serializeImagePulls": False,
        }
        return KubeletInput(subject, None, {_DROP_IN: configuration(_DROP_IN, defaults)}, flags, _UNKNOWN)
    by_flag = {
        "eviction-hard": ["imagefs.available<5%,nodefs.available<5%"],
        "eviction-minimum-reclaim": ["imagefs.available=10%,nodefs.available=10%"],
        "fail-swap-on": ["false"],
    }
    return KubeletInput(subject, None, {}, {**by_flag, **flags}, _UNKNOWN)
