"""Read the facts of all checks from a cluster, several at a time. What cannot be read is named, and ends nothing.

Owns which objects are asked for. Leaves what an object means to the readers of ``check``.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from topomend import __version__
from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.check import installed_objects as objects
from topomend.check.facts import Authority, Facts, GroupOfPods, Lease, Malformed, Parameter, Part, Publication, Right
from topomend.check.finding import Subject
from topomend.check.node_objects import read_labels, read_publication
from topomend.check.shipped import (
    CLAIMS_FLAG,
    DEFRAGMENT_FLAG,
    GATING,
    KUEUE_FLAG,
    OPERATOR,
    Names,
    Shipped,
    rights_of_component,
)
from topomend.cli.numa.check.certificates import authority_of, certificate_of
from topomend.cli.numa.check.rights import denied
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.drain.operators import LABELS as OPERATORS
from topomend.gating.definitions import NAMES, Installation
from topomend.kube.errors import APIError, Forbidden, NotFound
from topomend.kube.kueue import ADMISSION_CHECKS
from topomend.kube.pod_groups import GROUP_RESOURCES
from topomend.kube.resources import (
    BRAKES,
    CLUSTER_ROLE_BINDINGS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    SECRETS,
    STEERINGS,
    UNENDED,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from topomend.model.devices.claimed_device import CPU_DRIVER
from topomend.model.pods.running_pod import RunningPod
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.runtime.leader_election import NAME, RENEW_SECONDS, RETRY_SECONDS
from topomend.runtime.manifests import documents, install_yaml
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import API_VERSION, BRAKE, BRAKE_NAME, FIT_GATE, RELAUNCH_GATE, STEERING, STEERING_NAME
from topomend.wire.node import read_node
from topomend.wire.pods.pod_group import read_group_size, read_pod_group
from topomend.wire.pods.running_pod import read_running_pod
from topomend.wire.pods.scheduling import read_watched_pod

ROLE = "topomend-checker"
"""The ClusterRole of the manifests that has every right but the one to read the webhook's Secret."""

OURS = "app.kubernetes.io/part-of=topomend"
AGENTS = "app.kubernetes.io/name=topomend,app.kubernetes.io/component=agent"
OWN_PODS = "app.kubernetes.io/name=topomend,app.kubernetes.io/component in (operator,agent)"
"""Labels of all of topomend's objects, of its DaemonSet, and of its pods."""

AT_A_TIME = 8
"""How many requests are under way together."""

MAX_GROUPS = 50
"""About so many groups of pods the API server is asked."""

NO_SUCH_OBJECT = (MalformedObject, AttributeError, KeyError, TypeError)
"""What comes of an answer that is not of the API's own form, as of a broken server or a proxy in its place."""

_Read = TypeVar("_Read")
_Fields = dict[str, Any]
_Steps = Mapping[Part, Callable[[], _Fields]]


@dataclass
class ClusterFacts:
    """Reads one cluster. For one use; its own threads share what they find."""

    cluster: Cluster
    now: datetime
    malformed: list[Malformed] = field(default_factory=list)
    unread: dict[Part, str] = field(default_factory=dict)
    shipped: Shipped = field(default_factory=lambda: Shipped(manifests()))
    members: Counter[tuple[str, PodGroup]] = field(default_factory=Counter)
    snapshot: Snapshot = field(default_factory=Snapshot)
    publications: tuple[changes.Published | changes.Unreadable, ...] = ()

    def read(self) -> Facts:
        """All facts. Raises APIError only where the API server does not answer at all or does not know the account."""
        self.cluster.client.version()
        facts = Facts(self.now, __version__)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for steps in (self._first, self._of_installation, self._of_groups):
                for fields in pool.map(lambda step: self._try(*step), steps(facts).items()):
                    facts = replace(facts, **fields)
        snapshot = changes.apply(self.snapshot, changes.PublicationsListed(self.publications, ""))
        malformed = tuple(sorted(self.malformed, key=lambda one: one.subject))
        return replace(facts, snapshot=snapshot, unread=dict(self.unread), malformed=malformed)

    def _try(self, part: Part, step: Callable[[], _Fields]) -> _Fields:
        try:
            return step()
        except Forbidden as error:
            role = "no role of topomend may" if part is Part.CERTIFICATE else f"the ClusterRole {ROLE} may"
            self.unread[part] = f"{error.message}; {role}"
        except APIError as error:
            self.unread[part] = f"{part.value}: {error}"
        except NO_SUCH_OBJECT as error:
            self.unread[part] = f"{part.value} cannot be read: {_words(error)}"
        return {}

    def _each(
        self, resource: Resource, kind: str, reader: Callable[[dict[str, Any]], Iterable[_Read]], **selectors: str
    ) -> tuple[_Read, ...]:
        """What the reader makes of each object. One that is malformed is noted. Raises APIError."""

        def read(content: dict[str, Any]) -> Iterable[_Read]:
            return self._readable(content, kind, lambda it: tuple(reader(it))) or ()

        return self.cluster.client.read(resource, read, **selectors).items  # type: ignore[arg-type]

    def _readable(self, content: dict[str, Any], kind: str, reader: Callable[[dict[str, Any]], _Read]) -> _Read | None:
        try:
            return reader(content)
        except NO_SUCH_OBJECT as error:
            self.malformed.append(Malformed(objects.subject_of(content, kind), _words(error)))
            return None

    def _first(self, _: Facts) -> _Steps:
        return {
            Part.KINDS: self._kinds,
            Part.OPERATORS: self._operators,
            Part.AGENTS: self._agents,
            Part.OWN_PODS: self._own_pods,
            Part.TOPOLOGIES: self._topologies,
            Part.NODES: self._nodes,
            Part.PODS: self._pods,
            Part.CPU_DRIVERS: self._cpu_drivers,
            Part.ADMISSION_CHECKS: self._admission_checks,
            Part.VALIDATING_POLICIES: self._validating_policies,
            Part.ROLE_BINDINGS: self._role_bindings,
        }

    def _kinds(self) -> _Fields:
        served = self.cluster.client.schemas(API_VERSION)
        kinds = [
            objects.read_kind(name, schema, _schema_of(served, kind)) for name, kind, schema in self.shipped.schemas()
        ]
        return {"kinds": tuple(kinds)}

    def _operators(self) -> _Fields:
        found = self._each(DEPLOYMENTS, "Deployment", lambda it: [objects.read_deployment(it)], labels=OPERATORS)
        return {"operators": tuple(sorted(found, key=lambda one: one.subject))}

    def _agents(self) -> _Fields:
        found = self._each(DAEMON_SETS, "DaemonSet", lambda it: [objects.read_daemon_set(it)], labels=AGENTS)
        return {"agents": tuple(sorted(found, key=lambda one: one.subject))}

    def _own_pods(self) -> _Fields:
        selectors = {"labels": OWN_PODS, "fields": UNENDED}
        return {"own_pods": self._each(PODS, "Pod", lambda it: [objects.read_own_pod(it)], **selectors)}

    def _nodes(self) -> _Fields:
        read = self._each(NODES, "Node", lambda content: [(read_node(content), read_labels(content))])
        self.snapshot = changes.apply(self.snapshot, changes.NodesListed(tuple(node for node, _ in read), ""))
        return {"node_labels": {node.name: labels for node, labels in read}}

    def _topologies(self) -> _Fields:
        read = self.cluster.client.read(NODE_TOPOLOGIES, self._topology).items
        self.publications = tuple(change for change, _ in read)
        return {"published": {_name_of(change): published for change, published in read if published is not None}}

    def _topology(
        self, content: dict[str, Any]
    ) -> list[tuple[changes.Published | changes.Unreadable, Publication | None]]:
        """The change of the snapshot, and the publication, which is None as long as an agent has not published."""
        publication = self._readable(content, "NodeTopology", read_publication) or Publication()
        (change,) = self.cluster.read_published(content)
        return [(change, publication if content.get("status") else None)]

    def _cpu_drivers(self) -> _Fields:
        try:
            nodes = self._each(RESOURCE_SLICES, "ResourceSlice", _node_of, fields=f"spec.driver={CPU_DRIVER}")
        except NotFound:
            nodes = ()  # this API server has no DRA, or one from before v1
        return {"cpu_drivers": frozenset(nodes)}

    def _admission_checks(self) -> _Fields:
        if not self.cluster.client.serves(ADMISSION_CHECKS):
            return {"serves_kueue": False}  # a user without rights there would be refused instead
        return {"admission_checks": self._each(ADMISSION_CHECKS, "AdmissionCheck", objects.read_admission_check)}

    def _validating_policies(self) -> _Fields:
        policies = self.cluster.client.list(VALIDATING_ADMISSION_POLICIES, labels=OURS).items
        bindings = self.cluster.client.list(VALIDATING_ADMISSION_POLICY_BINDINGS, labels=OURS).items
        return {"validating_policies": objects.read_policies(policies, bindings)}

    def _role_bindings(self) -> _Fields:
        listed = self.cluster.client.read(
            CLUSTER_ROLE_BINDINGS, lambda it: [it["metadata"]["name"]], labels=OURS, metadata_only=True
        )
        return {"role_bindings": frozenset(listed.items)}

    def _pods(self) -> _Fields:
        read = self._each(PODS, "Pod", self._pod, fields=UNENDED)
        return {
            "running": tuple(pod for pod in read if isinstance(pod, RunningPod)),
            "waiting": tuple(pod for pod in read if isinstance(pod, WatchedPod)),
        }

    def _pod(self, content: dict[str, Any]) -> list[RunningPod | WatchedPod]:
        document = Document(content)
        group = read_pod_group(document)
        if group:
            self.members[document["metadata"]["namespace"].text(), group] += 1
        gates = {gate["name"].text("") for gate in document["spec"]["schedulingGates"]}
        if gates:
            return [read_watched_pod(content)] if gates.intersection((FIT_GATE, RELAUNCH_GATE)) else []
        is_of_interest = not document["spec"]["nodeName"].absent and _looks_aligned(document["spec"])
        return [read_running_pod(content)] if is_of_interest else []

    def _of_installation(self, facts: Facts) -> _Steps:
        """What can be asked once it is known where the operator is and by which names it goes."""
        names = names_of(facts)
        return {
            Part.LEASE: partial(self._lease, names),
            Part.PARAMETERS: partial(self._parameters, names),
            Part.WEBHOOKS: partial(self._webhooks, names),
            Part.MUTATING_POLICIES: partial(self._mutating_policies, names),
            Part.CERTIFICATE: partial(self._certificate, names),
            Part.RIGHTS: partial(self._rights, names, facts),
        }

    def _lease(self, names: Names) -> _Fields:
        """The Lease, which is watched for a moment where it looks old or is of the future: clocks may differ.

        One that is renewed tells the operator's time, by which its other objects are valid.
        """
        try:
            lease, version = self._read_lease(names)
            deadline = time.monotonic() + _LEASE_PATIENCE
            while not self._is_current(lease) and time.monotonic() < deadline:
                time.sleep(RETRY_SECONDS / 2)
                later, newer = self._read_lease(names)
                if newer != version and later.renewed:
                    return {"lease": replace(later, is_alive=True), "now": later.renewed}
        except NotFound:
            return {"lease": None}
        return {"lease": lease}

    def _read_lease(self, names: Names) -> tuple[Lease, str]:
        content = self.cluster.client.get(LEASES, NAME, _namespace(names))
        return objects.read_lease(content), content["metadata"]["resourceVersion"]

    def _is_current(self, lease: Lease) -> bool:
        return lease.renewed is not None and abs((self.now - lease.renewed).total_seconds()) <= 2 * _LEASE_PATIENCE

    def _parameters(self, names: Names) -> _Fields:
        found = list[Parameter]()
        for resource, kind, name in ((BRAKES, BRAKE, BRAKE_NAME), (STEERINGS, STEERING, STEERING_NAME)):
            try:
                content = self.cluster.client.get(resource, name, _namespace(names))
            except NotFound:
                continue
            read = self._readable(content, kind, partial(objects.read_parameter, kind=kind))
            # A malformed one is there, whatever it says.
            found.append(read or Parameter(objects.subject_of(content, kind)))
        return {"parameters": tuple(found)}

    def _webhooks(self, names: Names) -> _Fields:
        webhooks, authorities = dict[str, bool](), list[Authority]()
        for name in _definitions(names):
            try:
                content = self.cluster.client.get(MUTATING_WEBHOOKS, name)
            except NotFound:
                continue
            webhooks[name] = bool(content.get("webhooks"))
            authorities += authority_of(content)
        return {"webhooks": webhooks, "authorities": tuple(authorities)}

    def _mutating_policies(self, names: Names) -> _Fields:
        from topomend.gating.installer import in_version, served_version  # noqa: PLC0415  slow to import

        version = served_version(self.cluster.client)
        if not version:
            return {"serves_mutating_policies": False}
        policies, bindings = (
            [content for name in _definitions(names) for content in self._one(in_version(kind, version), name)]
            for kind in (MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS)
        )
        return {"mutating_policies": objects.read_bound(policies, bindings)}

    def _one(self, resource: Resource, name: str) -> Iterator[dict[str, Any]]:
        try:
            yield self.cluster.client.get(resource, name)
        except NotFound:
            return

    def _certificate(self, names: Names) -> _Fields:
        namespace = _namespace(names)
        try:
            secret = self.cluster.client.get(SECRETS, names.service, namespace)
        except NotFound:
            return {"certificate": None}
        return {"certificate": certificate_of(secret, Subject("Secret", names.service, namespace))}

    def _rights(self, names: Names, facts: Facts) -> _Fields:
        client, wanted = self.cluster.client, list[Right]()
        policies = self.shipped.policies(names, observes=facts.observes)
        serves_claims = not facts.is_told(CLAIMS_FLAG) or client.serves(RESOURCE_SLICES)
        if facts.is_installed:
            wanted += self.shipped.rights(names, observes=facts.observes)
            for flag in (CLAIMS_FLAG, DEFRAGMENT_FLAG, KUEUE_FLAG):
                is_of_use = serves_claims or flag != CLAIMS_FLAG
                wanted += rights_of_component(flag, names) if facts.is_told(flag) and is_of_use else ()
        return {"shipped_policies": policies, "denied": denied(client, wanted), "serves_claims": serves_claims}

    def _of_groups(self, facts: Facts) -> _Steps:
        waiting = {(pod.namespace, pod.group) for pod in facts.waiting if pod.group}
        return {Part.GROUPS: partial(self._groups, sorted(waiting, key=repr)[:MAX_GROUPS])}

    def _groups(self, waiting: Iterable[tuple[str, PodGroup]]) -> _Fields:
        groups = [
            GroupOfPods(namespace, group, self._size(namespace, group), self.members[namespace, group])
            for namespace, group in waiting
        ]
        return {"groups": tuple(groups)}

    def _size(self, namespace: str, group: PodGroup) -> int | None:
        if group.size is not None:
            return group.size
        for resource in GROUP_RESOURCES.get(group.api_group, ()):
            try:
                content = self.cluster.client.get(resource, group.name, namespace)
            except NotFound:
                continue
            return self._readable(content, "PodGroup", partial(read_group_size, group.api_group))
        return None


_LEASE_PATIENCE = 2 * RENEW_SECONDS + RETRY_SECONDS
"""Within so many seconds a holder that lives renews its Lease."""


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, MalformedObject) else f"its form is wrong ({error!r:.80})"


def manifests() -> list[Any]:
    """The objects of the manifests of this version."""
    return documents(install_yaml().read_text())


def _schema_of(schemas: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The schema of a kind, whose name there has its group in front: ``io.topomend.v1alpha1.Brake``."""
    return next((schema for name, schema in schemas.items() if name.rpartition(".")[2] == kind), None)


def _name_of(change: changes.Published | changes.Unreadable) -> str:
    return change.state.name if isinstance(change, changes.Published) else change.name


def _node_of(content: dict[str, Any]) -> Iterator[str]:
    node = Document(content)["spec"]["nodeName"].text("")
    if node:
        yield node


def _looks_aligned(spec: Document) -> bool:
    """Whether a container has a limit of whole CPUs, or asks for devices: nobody takes any other for aligned."""
    for kind in ("containers", "initContainers"):
        for container in spec[kind]:
            for name, amount in container["resources"]["limits"].fields():
                if "/" in name or (name == "cpu" and amount.quantity() % 1000 == 0):
                    return True
    return False


def names_of(facts: Facts) -> Names:
    """The names of the installation, as far as its workloads tell them."""
    names = Names()
    if operator := facts.operator:
        service = operator.value_of("--gating-service", "TOPOMEND_GATING_SERVICE", GATING)
        if facts.observes:  # it has no Service of which kustomize could tell the operator the name
            service = operator.account.replace(OPERATOR, GATING)
        names = replace(names, service=service if GATING in service else GATING)
        names = replace(names, operator=f"{operator.subject.namespace}/{operator.account or 'default'}")
    if facts.agents:
        agents = facts.agents[0]
        reader = agents.value_of("KUBELET_READER", "KUBELET_READER", names.reader)
        names = replace(names, agent=f"{agents.subject.namespace}/{agents.account or 'default'}", reader=reader)
    return names


def _namespace(names: Names) -> str:
    return names.operator.partition("/")[0]


def _definitions(names: Names) -> list[str]:
    namespace, _, account = names.operator.partition("/")
    installation = Installation(namespace, account, names.service)
    return [installation.name(definition) for definition in NAMES]
