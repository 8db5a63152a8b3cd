"""The kinds of workloads, built-in ones and those of the cluster, by the words with which kubectl names them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topomend.kube.client import Client
from topomend.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)


@dataclass(frozen=True)
class ServedKind:
    """A kind, its resource, and its short words, the singular among them."""

    kind: str
    resource: Resource
    words: tuple[str, ...]

    @property
    def group(self) -> str:
        """Its API group; empty for the core one."""
        return self.resource.api_version.rpartition("/")[0]

    @property
    def shown(self) -> str:
        """``deployment``, or ``rollout.argoproj.io``: how an answer names it."""
        return self.kind.lower() if self in BUILT_IN else f"{self.kind.lower()}.{self.group}"

    def is_named(self, word: str) -> bool:
        """Whether kubectl takes this word for it: ``deploy``, ``Deployments``, ``deployment.apps``."""
        name, _, group = word.lower().partition(".")
        version = self.resource.api_version.rpartition("/")[2]
        return name in (self.kind.lower(), self.resource.plural, *self.words) and (
            not group or group in (self.group, f"{version}.{self.group}")
        )


POD = ServedKind("Pod", PODS, ("po",))

WORKLOADS = (
    ServedKind("Deployment", DEPLOYMENTS, ("deploy",)),
    ServedKind("StatefulSet", STATEFUL_SETS, ("sts",)),
    ServedKind("DaemonSet", DAEMON_SETS, ("ds",)),
    ServedKind("Job", JOBS, ()),
    ServedKind("CronJob", CRON_JOBS, ("cj",)),
    ServedKind("ReplicaSet", REPLICA_SETS, ("rs",)),
    ServedKind("ReplicationController", REPLICATION_CONTROLLERS, ("rc",)),
)
"""The built-in kinds whose objects create pods."""

BUILT_IN = (POD, *WORKLOADS)


def built_in_kind(word: str) -> ServedKind | None:
    """The built-in kind of this name; None for another word."""
    return next((kind for kind in BUILT_IN if kind.is_named(word)), None)


def custom_kinds(client: Client) -> tuple[ServedKind, ...]:
    """The kinds with a namespace that the API server serves outside the core group, in their preferred versions.

    Raises APIError.
    """
    return tuple(_kinds(client.groups().get("items") or ()))


def _kinds(groups: Iterable[Mapping[str, Any]]) -> Iterator[ServedKind]:
    """Source: k8s.io/api apidiscovery/v2. The first version of a group is its preferred one."""
    for group in groups:
        seen = set[str]()
        for version in group.get("versions") or ():
            for listed in version.get("resources") or ():
                kind = (listed.get("responseKind") or {}).get("kind")
                if not kind or listed.get("scope") != "Namespaced" or kind in seen:
                    continue
                seen.add(kind)
                api_version = f"{group['metadata']['name']}/{version['version']}"
                words = (listed.get("singularResource", ""), *(listed.get("shortNames") or ()))
                yield ServedKind(kind, Resource(api_version, listed["resource"]), tuple(filter(None, words)))
