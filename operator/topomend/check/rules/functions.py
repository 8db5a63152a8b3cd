"""TM113 to TM123: whether topomend's functions are in force: gating, its accounts' limits and rights, brake, Kueue."""

from collections.abc import Iterator
from datetime import timedelta

from topomend.check.check import check
from topomend.check.facts import Authority, Facts, Part
from topomend.check.finding import Found, Severity, Subject
from topomend.check.rules.topomend_itself import APPLY_AGAIN, look, span
from topomend.check.shipped import CLAIMS_FLAG, KUEUE_FLAG

SOON = timedelta(days=14)
"""An authority or a certificate that ends sooner has not been renewed: the operator does that after two thirds of its
life."""


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
        yield Found(Subject("MutatingWebhookConfiguration", name), message, look(operator))


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
        yield Found(authority.subject, f"{what} ended {span((facts.now - authority.until).total_seconds())} ago", cure)
    elif authority.until < facts.now + SOON:
        yield Found(authority.subject, f"{what} ends in {span((authority.until - facts.now).total_seconds())}", cure)


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
