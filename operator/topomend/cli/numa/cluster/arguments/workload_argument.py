"""The pods that a user means: by kind and name of a pod or a workload, by a name alone, or by labels.

Owns the words, as kubectl takes them, and finding what they name. Leaves answers about the pods to the verbs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from topomend.cli.input.did_you_mean import did_you_mean, nearest
from topomend.cli.numa.cluster.arguments.owners import Owners
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.output.failures import BadInput
from topomend.kube.errors import APIError, Forbidden, NotFound
from topomend.kube.resources import PODS
from topomend.kube.served_kinds import POD, WORKLOADS, ServedKind, built_in_kind, custom_kinds


@dataclass(frozen=True)
class Target:
    """A pod, or an object whose pods are meant. ``content`` is the object; empty if the user may not read it."""

    kind: ServedKind
    name: str
    content: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def shown(self) -> str:
        """``deployment/web``."""
        return f"{self.kind.shown}/{self.name}"

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod, and not an object that creates pods."""
        return self.kind == POD


@dataclass(frozen=True)
class Chosen:
    """The pods that a user means: those of the targets, or of one namespace or all that have these labels."""

    targets: tuple[Target, ...] = ()
    everywhere: bool = False
    selector: str = ""

    @property
    def single(self) -> str:
        """The name of the pod if exactly one is named; empty otherwise."""
        return self.targets[0].name if len(self.targets) == 1 and self.targets[0].is_pod else ""

    def shown(self, namespace: str) -> str:
        """What was asked, for the first line of an answer."""
        if self.targets:
            return ", ".join(target.shown for target in self.targets)
        where = "all namespaces" if self.everywhere else namespace
        return f"{f'{self.selector} in ' if self.selector else ''}{where}"


def choose(cluster: Cluster, words: Sequence[str], *, everywhere: bool, selector: str) -> Chosen | None:
    """What these words and flags name; None if they name nothing. Raises BadInput and APIError."""
    if [*map(built_in_kind, words)] == [POD]:  # as in kubectl get pods
        return Chosen((), everywhere, selector)
    if words and (everywhere or selector):
        flag = "-A" if everywhere else "-l"
        raise BadInput(f"{' '.join(words)} and {flag}: give names, or {flag} to have all pods that it selects")
    if words:
        return Chosen(tuple(_targets(cluster, words)))
    return Chosen((), everywhere, selector) if everywhere or selector else None


class Members:
    """Which pods belong to what a user means. The owners of a namespace's objects are read as far as it takes."""

    def __init__(self, cluster: Cluster, chosen: Chosen) -> None:
        self._targets = chosen.targets
        self._owners = Owners(cluster.client, cluster.namespace, cluster.note_refused)

    def __contains__(self, content: Mapping[str, Any]) -> bool:
        """Whether the pod is one of the targets or has one above it; any pod is if there is no target."""
        return not self._targets or any(map(partial(self._is_of, content), self._targets))

    def _is_of(self, content: Mapping[str, Any], target: Target) -> bool:
        metadata = content["metadata"]
        if target.is_pod:
            return bool(metadata["name"] == target.name)
        uid = target.content.get("metadata", {}).get("uid", "")
        for owner in self._owners.of(metadata):
            if (owner.kind, owner.group, owner.name) == (target.kind.kind, target.kind.group, target.name):
                return not uid or not owner.uid or owner.uid == uid
        return False


def _targets(cluster: Cluster, words: Sequence[str]) -> Iterator[Target]:
    _check(words)
    if "/" in words[0]:
        for prefix, _, name in (word.partition("/") for word in words):
            yield _existing(cluster, _kind(cluster, prefix), name)
        return
    if len(words) == 1:
        yield _of_name(cluster, words[0])
        return
    kind = _kind(cluster, words[0])
    yield from (_existing(cluster, kind, name) for name in words[1:])


def _check(words: Sequence[str]) -> None:
    """Raise BadInput for words that cannot name anything, or that mix both forms."""
    for word in words:
        kind, slash, name = word.rpartition("/")
        if name in ("", ".", ".."):  # these would be other paths of the API
            raise BadInput(f"{word!r} names nothing: name a pod or a workload, as in pod/train-9 or deploy/web")
        if (slash and not kind) or bool(slash) != any("/" in each for each in words):
            raise BadInput(f"{word} is no KIND/NAME: name all of them so, as in pod/train-9 deploy/web")


def _kind(cluster: Cluster, word: str) -> ServedKind:
    """The kind of this name. Raises BadInput if the API server serves none, and APIError."""
    if found := built_in_kind(word):
        return found
    served = custom_kinds(cluster.client)
    if named := [kind for kind in served if kind.is_named(word)]:
        return named[0]
    names = [kind.kind.lower() for kind in (POD, *WORKLOADS, *served)]
    near = did_you_mean(word, names) or "; name one as pod/NAME, deploy/NAME or KIND.GROUP/NAME"
    raise BadInput(f"no kind {word}{near}")


def _existing(cluster: Cluster, kind: ServedKind, name: str) -> Target:
    """The object of this kind and name. Raises BadInput where there is none, and APIError."""
    try:
        return Target(kind, name, cluster.client.get(kind.resource, name, cluster.namespace))
    except NotFound as error:
        cluster.check_namespace()
        near = nearest(name, cluster.names(kind.resource))
        hint = f": did you mean {kind.shown}/{near}?" if near else "; name another namespace with -n"
        raise BadInput(f"no {kind.shown} {name} in {cluster.namespace}{hint}") from error
    except Forbidden:
        if kind == POD:
            raise
        return Target(kind, name)


def _of_name(cluster: Cluster, name: str) -> Target:
    """The pod of this name, or the one workload that has it. Raises BadInput that names what is near, and APIError."""
    try:
        return Target(POD, name, cluster.client.get(PODS, name, cluster.namespace))
    except NotFound:
        cluster.check_namespace()
    workloads = [(kind, each) for kind in WORKLOADS for each in _names(cluster, kind)]
    found = [f"{kind.shown}/{each}" for kind, each in workloads if each == name]
    if len(found) == 1:
        kind = next(kind for kind, each in workloads if each == name)
        return _existing(cluster, kind, name)
    if found:
        raise BadInput(f"no pod {name} in {cluster.namespace}: did you mean {' or '.join(found)}?")
    near_pod = nearest(name, cluster.names(PODS))
    near_workload = nearest(name, [each for _, each in workloads])
    near = [f"pod/{near_pod}"] if near_pod else []
    near += [f"{kind.shown}/{each}" for kind, each in workloads if each == near_workload][:1]
    hint = f": did you mean {' or '.join(near)}?" if near else "; name another namespace with -n"
    raise BadInput(f"no pod {name} in {cluster.namespace}{hint}")


def _names(cluster: Cluster, kind: ServedKind) -> Sequence[str]:
    """The names of a kind's objects in the namespace; none if they may not be read."""
    try:
        return cluster.client.read(
            kind.resource,
            lambda content: [str(content["metadata"]["name"])],
            namespace=cluster.namespace,
            metadata_only=True,
        ).items
    except APIError:
        return ()
