"""TM1xx: whether topomend is installed, whole, of one version, and at work."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from topomend.check.check import check
from topomend.check.facts import Authority, Facts, Part, Workload
from topomend.check.finding import CLUSTER, Found, Severity, Subject, node
from topomend.check.shipped import CLAIMS_FLAG, KUEUE_FLAG

INSTALL = "install topomend with: kubectl apply --server-side -k deploy"
APPLY_AGAIN = "apply the manifests of this version again: kubectl apply --server-side -k deploy, or helm upgrade"

SOON = timedelta(days=14)
"""An authority or a certificate that ends sooner has not been renewed: the operator does that after two thirds of its
life."""

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
            yield Found(operator.subject, f"none of its {operator.wanted} pods is ready{why}", _look(operator))


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
            yield Found(operator.subject, f"{operator.ready} of {operator.wanted} pods are ready{why}", _look(operator))


def _troubles(facts: Facts, component: str, workload: Workload) -> str:
    namespace = workload.subject.namespace
    pods = [pod for pod in facts.own_pods if pod.component == component and pod.subject.namespace == namespace]
    return "".join(f"; {pod.subject.name}: {pod.trouble}" for pod in [pod for pod in pods if pod.trouble][:2])


def _look(workload: Workload) -> str:
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
        yield Found(lease, "it does not exist, so no operator leads", _look(operator))
    elif not facts.lease.holder:
        yield Found(lease, "nobody holds it, so no operator leads", _look(operator))
    elif not facts.lease.is_alive:
        age = _age(facts, facts.lease.renewed)
        if age is None or age > LEASE_SECONDS:
            since = "" if age is None else f" for {_span(age)}"
            yield Found(lease, f"its holder {facts.lease.holder} has not renewed it{since}", _look(operator))


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
            yield Found(parameter.subject, f"no operator has renewed it: it ended {_span(late)} ago", _look(operator))


def _span(seconds: float) -> str:
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
            yield Found(subject, "it does not exist, so its policy gates no pod", _look(operator))


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


@check(
    "TM113",
    Severity.ERROR,
    "A definition for new pods is not in force",
    Part.OPERATORS,
    Part.WEBHOOKS,
    Part.MUTATING_POLICIES,
    why="The new pods of braked controllers or of steered namespaces are not gated, or pods get no creator's stamp.",
    cure="See that the operator leads, and that the ClusterRoleBinding topomend-gating exists.",
)
def new_pods_are_gated(facts: Facts) -> Iterator[Found]:
    """A webhook configuration stands for a definition, and neither a bound policy nor a webhook carries it out.

    An operator without the rights of the role topomend-gating is not meant to (TM120).
    """
    operator = facts.operator
    if operator is None or facts.observes or any(right.role == "topomend-gating" for right in facts.denied):
        return
    for name, has_webhook in facts.webhooks.items():
        if has_webhook or facts.mutating_policies.get(name):
            continue
        what = "a bound policy" if facts.serves_mutating_policies else "a webhook"
        message = f"it is not in force: the operator has not made {what} of it"
        yield Found(Subject("MutatingWebhookConfiguration", name), message, _look(operator))


@check(
    "TM114",
    Severity.ERROR,
    "A policy that limits topomend's accounts is missing",
    Part.VALIDATING_POLICIES,
    Part.ROLE_BINDINGS,
    why="The account keeps its rights, and nothing limits them any more to what topomend does.",
    cure=APPLY_AGAIN,
)
def walls_stand(facts: Facts) -> Iterator[Found]:
    """A ValidatingAdmissionPolicy of the manifests, or its binding, is missing beside the rights that it limits.

    Not judged where the installation is of another version than the plugin (TM109).
    """
    if not facts.is_of_this_version:
        return
    for name, binding in facts.shipped_policies.items():
        if binding not in facts.role_bindings:
            continue
        policy = facts.validating_policies.get(name)
        subject = Subject("ValidatingAdmissionPolicy", name)
        if policy is None:
            yield Found(subject, f"it is missing, and ClusterRoleBinding {binding} gives the rights", APPLY_AGAIN)
        elif not policy.bound:
            yield Found(subject, "it has no binding of its name, so it limits nothing", APPLY_AGAIN)


@check(
    "TM115",
    Severity.ERROR,
    "A policy reads a ClusterRoleBinding that does not exist",
    Part.VALIDATING_POLICIES,
    Part.ROLE_BINDINGS,
    why="The policy learns from it whom it concerns. Without it, it concerns nobody.",
    cure="Apply the manifests again. Names must be changed with kustomize's namePrefix, which changes both.",
)
def walls_know_their_account(facts: Facts) -> Iterator[Found]:
    """The binding of one of topomend's policies names a ClusterRoleBinding that does not exist."""
    for policy in facts.validating_policies.values():
        if policy.bound and policy.parameter and policy.parameter not in facts.role_bindings:
            subject = Subject("ValidatingAdmissionPolicyBinding", policy.name)
            yield Found(subject, f"it reads ClusterRoleBinding {policy.parameter}, which does not exist", APPLY_AGAIN)


@check(
    "TM116",
    Severity.ERROR,
    "A webhook's authority has ended",
    Part.WEBHOOKS,
    why="The API server does not trust the webhook any more. It creates pods without asking it.",
    cure="The operator renews the authority. See that it leads, or that cert-manager does its part.",
)
def authority_is_valid(facts: Facts) -> Iterator[Found]:
    """The caBundle of a webhook is no certificate, has ended, or ends within two weeks."""
    for authority in facts.authorities:
        yield from _ends(facts, authority, "its caBundle")


@check(
    "TM117",
    Severity.WARNING,
    "The webhook's certificate is not valid",
    Part.CERTIFICATE,
    why="The API server does not trust the webhook any more. It creates pods without asking it.",
    cure="Delete the data of the Secret: the operator that leads issues a new certificate within a minute.",
)
def certificate_is_valid(facts: Facts) -> Iterator[Found]:
    """The certificate in the Secret cannot be read, is signed by another authority, has ended, or ends soon.

    Only who may read the Secret sees that: it contains the webhook's key, so no role of topomend's for users has it.
    """
    if facts.certificate is not None:
        yield from _ends(facts, facts.certificate, "its certificate")


def _ends(facts: Facts, authority: Authority, what: str) -> Iterator[Found]:
    cure = "see that an operator leads, which renews it, or that cert-manager does its part"
    if authority.until is None:
        yield Found(authority.subject, f"{what}: {authority.fault}", cure)
    elif authority.until < facts.now:
        yield Found(authority.subject, f"{what} ended {_span((facts.now - authority.until).total_seconds())} ago", cure)
    elif authority.until < facts.now + SOON:
        yield Found(authority.subject, f"{what} ends in {_span((authority.until - facts.now).total_seconds())}", cure)


@check(
    "TM118",
    Severity.INFO,
    "The operator only observes",
    Part.OPERATORS,
    why="It explains refusals, and neither relaunches pods nor gates new ones. That is meant for the first week.",
    cure="Take the component observe out, or set the chart's value mode to relaunch.",
)
def operator_acts(facts: Facts) -> Iterator[Found]:
    """The operator runs with `--mode=observe`."""
    if facts.operator is not None and facts.observes:
        message = "its mode is observe: it explains refusals, and changes nothing"
        yield Found(facts.operator.subject, message, "to have it act, apply deploy/ without the component observe")


@check(
    "TM119",
    Severity.ERROR,
    "An account of topomend lacks a right",
    Part.RIGHTS,
    why="The program is refused what it does, and says so in its log alone.",
    cure=APPLY_AGAIN,
)
def rights_are_there(facts: Facts) -> Iterator[Found]:
    """The account of the operator or of the agents may not do something for which the manifests give it a role.

    Not judged where the installation is of another version than the plugin (TM109).
    """
    if not facts.is_of_this_version:
        return
    for right in facts.denied:
        if right.role not in OPTIONAL_ROLES:
            yield Found(_account(right.account), f"it may not {right} ({right.role} gives that)", APPLY_AGAIN)


_FUNCTIONS = {
    "topomend-gating": "what gates and stamps new pods is neither installed nor renewed",
    "topomend-preemption": "no pod of lower priority is evicted for one that waits",
    "topomend-scale-up": "cluster autoscalers do not count pods that wait gated",
    "topomend-volumes": "pods with volumes go to any node that would not refuse them",
    "topomend-claims": "no node is preferred for the devices of claims",
    "topomend-defragment": "no pod is moved for room",
}

OPTIONAL_ROLES = tuple(_FUNCTIONS)
"""The ClusterRoles that a user may leave out: each switches one function off."""


@check(
    "TM120",
    Severity.INFO,
    "A function is switched off",
    Part.RIGHTS,
    Part.ADMISSION_CHECKS,
    why="Without the role, or the API, the operator leaves that function out. Everything else works.",
    cure="To switch it on, apply the ClusterRoleBinding of that name again.",
)
def functions_are_on(facts: Facts) -> Iterator[Found]:
    """The operator's account lacks rights of a role that a user may leave out.

    With the component claims: or the API server does not serve resource.k8s.io/v1, as before Kubernetes 1.34. With the
    component kueue: or it does not serve kueue.x-k8s.io/v1beta2, as without Kueue, or with one before 0.15.
    """
    if facts.observes:
        return
    if facts.operator and facts.is_told(CLAIMS_FLAG) and not facts.serves_claims:
        message = f"the API server serves no resource.k8s.io/v1: {_FUNCTIONS['topomend-claims']}"
        yield Found(facts.operator.subject, message, "if it is to stay so, take the component claims out")
    if facts.operator and facts.is_told(KUEUE_FLAG) and not facts.serves_kueue:
        message = "the API server serves no kueue.x-k8s.io/v1beta2: no admission check is answered"
        yield Found(facts.operator.subject, message, "install Kueue 0.15 or newer, or take the component kueue out")
    accounts = {right.role: right.account for right in facts.denied if right.role in OPTIONAL_ROLES}
    for role, account in sorted(accounts.items()):
        cure = f"if that is not meant, apply ClusterRole and ClusterRoleBinding {role} again"
        yield Found(_account(account), f"it lacks rights of {role}: {_FUNCTIONS[role]}", cure)


def _account(text: str) -> Subject:
    namespace, _, name = text.partition("/")
    return Subject("ServiceAccount", name, namespace)


@check(
    "TM121",
    Severity.WARNING,
    "An object cannot be read",
    why="Whatever it says is not known, and the other checks leave it out.",
    cure="Correct or delete the object. The operator and the agents write their own ones anew.",
)
def objects_are_readable(facts: Facts) -> Iterator[Found]:
    """A field of an object has a value that it cannot have."""
    for malformed in facts.malformed:
        yield Found(malformed.subject, f"it cannot be read: {malformed.why}", "correct or delete it")


@check(
    "TM122",
    Severity.INFO,
    "The brake holds controllers",
    Part.PARAMETERS,
    why="A controller's pod was refused, so its next pods wait gated until a node admits them.",
    cure="`kubectl numa explain pod/NAME` says why they wait.",
)
def brake_is_free(facts: Facts) -> Iterator[Found]:
    """The storm brake lists controllers that had a pod refused."""
    for parameter in facts.parameters:
        if parameter.owners:
            shown = ", ".join(parameter.owners[:3]) + (", ..." if len(parameter.owners) > 3 else "")
            message = f"it gates the new pods of {len(parameter.owners)} controllers: {shown}"
            yield Found(parameter.subject, message, "kubectl numa explain pod/NAME says why they wait")


@check(
    "TM123",
    Severity.ERROR,
    "An admission check of Kueue is not answered",
    Part.OPERATORS,
    Part.ADMISSION_CHECKS,
    why="Kueue admits no workload of a ClusterQueue that names the check. Those that have quota keep it and wait.",
    cure="Add the component kueue (the chart's value `kueue.enabled`), or take the check out of the ClusterQueues and "
    "delete it.",
)
def admission_checks_are_answered(facts: Facts) -> Iterator[Found]:
    """No operator runs that answers an AdmissionCheck of the controller `topomend.io/numa-fit`, or the check is not
    active.

    The operator makes it active within seconds; `kubectl numa drain` has it inactive.
    """
    for each in facts.admission_checks:
        if not facts.is_told(KUEUE_FLAG):
            message = "no operator answers it: none runs in mode relaunch with --kueue"
            cure = "add the component kueue, or take the check out of the ClusterQueues and delete it"
            yield Found(each.subject, message, cure)
        elif not each.active:
            cure = "see that an operator leads (TM103, TM106), has its rights (TM119), and what its log says"
            yield Found(each.subject, "it is not active: the operator has not answered for it", cure)
