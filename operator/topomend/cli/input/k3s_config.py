"""A configuration of k3s or RKE2 (``config.yaml``) as the drop-in and the flags that they give a kubelet.

Source: k3s-io/k3s, pkg/daemons/agent/agent_linux.go:kubeletArgsAndConfig, pkg/util/args.go:GetArgs; before 1.32, the
same defaults are flags (kubeletArgs). Left out is what neither the resource managers nor a kubelet's start depend on.
"""

from collections.abc import Iterable, Iterator, Mapping

from topomend.check.finding import Subject
from topomend.cli.input.kubelet_input import KubeletInput, configuration, first_object, naming
from topomend.cli.output.failures import BadInput
from topomend.discover.kubelet_config.files import ConfigFile
from topomend.discover.kubelet_config.kubelet_process import read_flags
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
        given = list(_arguments(document))
    flags = read_flags(_merged(_defaults(minor), given))
    if files := [f"{flag}={flags[flag][-1]}" for flag in _FILES if flag in flags]:
        raise BadInput(f"{name}: {files[0]} has the kubelet read another file: lint that, with these arguments in it")
    return KubeletInput(Subject(K3S_CONFIG, name), None, _drop_ins(minor), flags, _UNKNOWN)


def _arguments(document: Document) -> Iterator[str]:
    """Arguments are a list, or one stands alone."""
    for key in _ARGUMENTS:
        given = document[key]
        if isinstance(given.content, str):
            yield given.content
        else:
            yield from (item.text() for item in given)


def _merged(defaults: Mapping[str, str], arguments: Iterable[str]) -> list[str]:
    """The kubelet's command line (pkg/util/args.go:GetArgs).

    Dashes before a name are left out, and a name alone is true. ``NAME=`` replaces k3s' own value, ``NAME+=`` stands
    behind it and what was given so far, ``NAME-=`` before both.
    """
    values = {name: [value] for name, value in defaults.items()}
    replaceable = set(defaults)
    for argument in arguments:
        written, equals, text = argument.removeprefix("--").partition("=")
        name, value = written.rstrip("-+"), text if equals else "true"
        before = values.get(name, [])
        if written.endswith("-"):
            values[name] = [value, *before]
        elif name in replaceable and not written.endswith("+"):
            values[name] = [value]
        else:
            values[name] = [*before, value]
        replaceable.discard(name)
    return [f"--{name}={value}" for name in sorted(values) for value in values[name]]


def _drop_ins(minor: int) -> dict[str, ConfigFile]:
    if minor < _DROP_IN_MINOR:
        return {}
    defaults = {
        "evictionHard": {"imagefs.available": "5%", "nodefs.available": "5%"},
        "evictionMinimumReclaim": {"imagefs.available": "10%", "nodefs.available": "10%"},
        "failSwapOn": False,
        "serializeImagePulls": False,
    }
    return {_DROP_IN: configuration(_DROP_IN, defaults)}


def _defaults(minor: int) -> dict[str, str]:
    if minor >= _DROP_IN_MINOR:
        return {}
    return {
        "eviction-hard": "imagefs.available<5%,nodefs.available<5%",
        "eviction-minimum-reclaim": "imagefs.available=10%,nodefs.available=10%",
        "fail-swap-on": "false",
    }
