"""TM101 to TM112: whether topomend is installed, whole, of one version, and whether its programs are at work."""

from collections.abc import Iterator
from datetime import datetime

from topomend.check.check import check
from topomend.check.facts import Facts, Part, Workload
from topomend.check.finding import CLUSTER, Found, Severity, Subject, node

INSTALL = "install topomend with: kubectl apply --server-side -k deploy"
APPLY_AGAIN = "apply the manifests of this version again: kubectl apply --server-side -k deploy, or helm upgrade"

LEASE_SECONDS = 20.0
"""A Lease that was not renewed for so long has no holder: it lasts 15 s, and clocks differ a little."""


@check(
    "TM101",
    Severity.ERROR,
    "A kind of topomend is not served",
    Part.KINDS,
    why="Agents cannot publish and the operator cannot record without their kinds.",
    cure=INSTALL,
)
def kinds_are_served(facts: Facts) -> Iterator[Found]:
    """The API server does not serve one of topomend's kinds: its CustomResourceDefinition is missing."""
    for kind in facts.kinds:
        if not kind.served:
            yield Found(_definition(kind.name), "the API server does not serve this kind", INSTALL)


@check(
    "TM102",
    Severity.ERROR,
    "A kind is older than the program",
    Part.KINDS,
    why="The API server drops fields that it does not know, without a word: what agents publish arrives incomplete.",
    cure="Apply the CustomResourceDefinitions of this version: kubectl apply --server-side -f crds/",
)
def kinds_are_current(facts: Facts) -> Iterator[Found]:
    """The schema that the API server has of a kind lacks fields which this version of topomend writes.

    Not judged where the installation is of another version than the plugin (TM109).
    """
    for kind in facts.kinds:
        if kind.served and kind.lacking and facts.is_of_this_version:
            more = f" and {len(kind.lacking) - 3} more" if len(kind.lacking) > 3 else ""
            message = f"its schema lacks {', '.join(kind.lacking[:3])}{more}, which version {facts.version} writes"
            yield Found(_definition(kind.name), message, "kubectl apply --server-side -f crds/")


def _definition(name: str) -> Subject:
    return Subject("CustomResourceDefinition", name)


@check(
    "TM103",
    Severity.ERROR,
    "There is no operator",
    Part.OPERATORS,
    why="Nobody explains refusals, and no pod is relaunched or ungated.",
    cure=INSTALL,
)
def operator_is_there(facts: Facts) -> Iterator[Found]:
    """No Deployment has the labels of the operator, or it is scaled to 0, as after `kubectl numa drain`."""
    if not facts.operators:
        yield Found(CLUSTER, "no Deployment of topomend's operator is there", INSTALL)
    for operator in facts.operators:
        if operator.wanted == 0:
            yield Found(operator.subject, "it is scaled to 0, as kubectl numa drain leaves it", APPLY_AGAIN)


@check(
    "TM104",
    Severity.ERROR,
    "No pod of the operator is ready",
    Part.OPERATORS,
    why="Nobody explains refusals, and no pod is relaunched or ungated.",
    cure="Read why its pods do not start: `kubectl describe` for images and rights, `kubectl logs` for the rest.",
)
def operator_is_ready(facts: Facts) -> Iterator[Found]:
    """The operator's Deployment has no ready pod."""
    for operator in facts.operators:
        if operator.wanted and not operator.ready:
            why = _troubles(facts, "operator", operator)
            yield Found(operator.subject, f"none of its {operator.wanted} pods is ready{why}", look(operator))


@check(
    "TM105",
    Severity.WARNING,
    "Some pods of the operator are not ready",
    Part.OPERATORS,
    why="If the other pod's node fails, nobody takes over.",
    cure="Read why the pod does not start: `kubectl describe`, `kubectl logs`.",
)
def operator_has_a_second(facts: Facts) -> Iterator[Found]:
    """Fewer pods of the operator's Deployment are ready than it asks for."""
    for operator in facts.operators:
        if 0 < operator.ready < operator.wanted:
            why = _troubles(facts, "operator", operator)
            yield Found(operator.subject, f"{operator.ready} of {operator.wanted} pods are ready{why}", look(operator))


def _troubles(facts: Facts, component: str, workload: Workload) -> str:
    namespace = workload.subject.namespace
    pods = [pod for pod in facts.own_pods if pod.component == component and pod.subject.namespace == namespace]
    return "".join(f"; {pod.subject.name}: {pod.trouble}" for pod in [pod for pod in pods if pod.trouble][:2])


def look(workload: Workload) -> str:
    """The commands that show why a Deployment or DaemonSet is not at work."""
    namespace, kind, name = workload.subject.namespace, workload.subject.kind.lower(), workload.subject.name
    return f"kubectl -n {namespace} describe {kind} {name}; kubectl -n {namespace} logs {kind}/{name}"


@check(
    "TM106",
    Severity.ERROR,
    "No operator leads",
    Part.OPERATORS,
    Part.LEASE,
    why="Only the operator that holds the Lease acts. Without a leader nothing is explained, relaunched or ungated.",
    cure="See whether the operator's pods run, reach the API server, and may write the Lease (TM119).",
)
def operator_leads(facts: Facts) -> Iterator[Found]:
    """The operator's Lease does not exist, has no holder, or was not renewed in time.

    Operators that observe, and one that runs without `--leader-elect`, have no Lease.
    """
    operator = facts.operator
    if operator is None or not operator.ready or facts.observes or "--leader-elect" not in operator.arguments:
        return
    lease = Subject("Lease", "topomend-operator", operator.subject.namespace)
    if facts.lease is None:
        yield Found(lease, "it does not exist, so no operator leads", look(operator))
    elif not facts.lease.holder:
        yield Found(lease, "nobody holds it, so no operator leads", look(operator))
    elif not facts.lease.is_alive:
        age = _age(facts, facts.lease.renewed)
        if age is None or age > LEASE_SECONDS:
            since = "" if age is None else f" for {span(age)}"
            yield Found(lease, f"its holder {facts.lease.holder} has not renewed it{since}", look(operator))


def _age(facts: Facts, moment: datetime | None) -> float | None:
    return None if moment is None else (facts.now - moment).total_seconds()


@check(
    "TM107",
    Severity.ERROR,
    "The operator makes no progress",
    Part.OPERATORS,
    Part.PARAMETERS,
    why="New pods are no longer gated, so storms are not braked and steered pods are refused.",
    cure="Read the operator's log. Delete its pod if it hangs: another one takes over.",
)
def operator_progresses(facts: Facts) -> Iterator[Found]:
    """Brake or Steering are no longer valid.

    Only an operator that leads and gets its work done renews them, every minute for ten minutes. Whether each of its
    duties makes progress is in its metrics alone.
    """
    operator = facts.operator
    if operator is None or facts.observes:
        return
    for parameter in facts.parameters:
        if parameter.valid_until is not None and parameter.valid_until < facts.now:
            late = (facts.now - parameter.valid_until).total_seconds()
            yield Found(parameter.subject, f"no operator has renewed it: it ended {span(late)} ago", look(operator))


def span(seconds: float) -> str:
    """So long, in the largest unit of which it is two: ``3 d``, ``90 min``."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@check(
    "TM108",
    Severity.ERROR,
    "Brake or Steering is missing",
    Part.OPERATORS,
    Part.PARAMETERS,
    why="The policies read these objects. Without them no new pod is gated, whatever the policies say.",
    cure="See that the operator may create them (TM119), and that its log does not complain.",
)
def parameters_are_there(facts: Facts) -> Iterator[Found]:
    """An operator of mode relaunch is ready, and the objects that its policies read do not exist."""
    operator = facts.operator
    if operator is None or not operator.ready or facts.observes:
        return
    for kind, name in (("Brake", "topomend-brake"), ("Steering", "topomend-steer")):
        if not any(parameter.subject.kind == kind for parameter in facts.parameters):
            subject = Subject(kind, name, operator.subject.namespace)
            yield Found(subject, "it does not exist, so its policy gates no pod", look(operator))


@check(
    "TM109",
    Severity.WARNING,
    "Versions differ",
    Part.OPERATORS,
    Part.AGENTS,
    why="Within a release everything fits together. Other combinations are tested for upgrades alone.",
    cure="Finish the upgrade: apply the manifests of one version, and install the plugin of that version.",
)
def versions_agree(facts: Facts) -> Iterator[Found]:
    """Operator, agents and this plugin are not of one version, or operator and agents run different images."""
    workloads = [*facts.operators, *facts.agents]
    for workload in workloads:
        version = workload.version.removeprefix("v")
        if version and version != facts.version:
            yield Found(workload.subject, f"it is of version {version}, this plugin of {facts.version}", APPLY_AGAIN)
    images = dict.fromkeys(workload.image for workload in workloads if workload.image)
    if len(images) > 1:
        yield Found(CLUSTER, f"operator and agents run different images: {', '.join(images)}", APPLY_AGAIN)


@check(
    "TM110",
    Severity.WARNING,
    "There are several installations",
    Part.OPERATORS,
    why="Two operators relaunch and gate the same pods, each by its own Lease.",
    cure="Drain all but one: kubectl numa drain --operator-namespace NAME, then delete its manifests.",
)
def operator_is_alone(facts: Facts) -> Iterator[Found]:
    """More than one Deployment has the labels of topomend's operator."""
    for operator in facts.operators[1:]:
        namespace = operator.subject.namespace
        message = f"it is a second operator beside {facts.operators[0].subject}"
        yield Found(operator.subject, message, f"kubectl numa drain --operator-namespace {namespace}")


@check(
    "TM111",
    Severity.ERROR,
    "There are no agents",
    Part.AGENTS,
    why="Without agents no node's topology is known.",
    cure=INSTALL,
)
def agents_are_there(facts: Facts) -> Iterator[Found]:
    """No DaemonSet has the labels of the agents."""
    if not facts.agents:
        yield Found(CLUSTER, "no DaemonSet of topomend's agents is there", INSTALL)


@check(
    "TM112",
    Severity.ERROR,
    "An agent does not run",
    Part.AGENTS,
    Part.OWN_PODS,
    Part.NODES,
    why="The topology of that node is not known, or soon old. No pod is placed there by topomend.",
    cure="Read why its pod does not start. A Linux node without a pod needs a toleration or label of the DaemonSet.",
)
def agents_run_everywhere(facts: Facts) -> Iterator[Found]:
    """A Linux node has no pod of the agents' DaemonSet, or the pod is not ready."""
    if not facts.agents:
        return
    namespace = facts.agents[0].subject.namespace
    pods = {pod.node: pod for pod in facts.own_pods if pod.component == "agent"}
    for name in sorted(facts.snapshot.nodes):
        pod = pods.get(name)
        if pod is None and facts.node_labels[name].linux:
            cure = f"kubectl -n {namespace} describe daemonset {facts.agents[0].subject.name}"
            yield Found(node(name), "no pod of the agents' DaemonSet is there", cure)
        elif pod and pod.trouble:
            cure = f"kubectl -n {namespace} describe pods -l app.kubernetes.io/component=agent"
            yield Found(node(name), f"its agent is not ready: {pod.trouble}", cure)
