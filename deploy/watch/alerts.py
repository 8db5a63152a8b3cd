"""The alerts: what each one asks of Prometheus, when it fires, and what its reader is to do.

One source of the rules file, the PrometheusRule and the page of runbooks.
"""

from dataclasses import dataclass
from typing import Any

PAGE = "docs/reference/alerts.md"

GROUP = "topomend"

CRITICAL, WARNING, INFO = "critical", "warning", "info"

DAY = 86_400

_LOGS = "kubectl logs -n topomend-system -l app.kubernetes.io/component=operator --tail=-1 | grep"
"""The lines of all operators that match."""

_OPERATOR = "system:serviceaccount:topomend-system:topomend-operator"


@dataclass(frozen=True)
class Alert:
    """Fires once ``query`` meets ``condition`` for as long as ``lasts``.

    ``summary`` is one line for whoever is called, with Prometheus' own templates. ``meaning``, ``check`` and ``cure``
    are its runbook: what has happened, commands that tell more, and what to do; in Markdown.
    """

    name: str
    query: str
    condition: str
    lasts: str
    severity: str
    summary: str
    meaning: str
    check: tuple[str, ...]
    cure: str

    @property
    def expression(self) -> str:
        """The rule's expression."""
        return f"{self.query} {self.condition}"

    @property
    def runbook(self) -> str:
        """Where in this repository its runbook is."""
        return f"{PAGE}#{self.name.lower()}"


ALERTS = (
    Alert(
        name="TopomendPodRefused",
        query="sum(increase(topomend_operator_refused_pods_total[5m]))",
        condition="> 0",
        lasts="0s",
        severity=INFO,
        summary="A kubelet refused a pod for its topology.",
        meaning="In the last five minutes a kubelet refused at least one pod that asks for aligned resources. topomend "
        "has explained it and relaunches it, if it may. The alert ends by itself. After a change of the leading "
        "operator it also tells of refused pods that are still there.",
        check=(
            "kubectl get events -A --field-selector reason=TopologyRefusalExplained",
            "kubectl numa explain pod/NAME -n NAMESPACE",
        ),
        cure="Nothing for one pod. If it fires often, pods ask for what nodes have in total and not on one NUMA node: "
        "the panel of free resources shows how far apart the two are, and "
        "[steering](../understand/steering.md) has pods wait instead of being refused.",
    ),
    Alert(
        name="TopomendRefusedPodWaits",
        query="max(topomend_operator_oldest_relaunch_seconds)",
        condition="> 600",
        lasts="1m",
        severity=WARNING,
        summary="A refused pod has not been relaunched for {{ $value | humanizeDuration }}.",
        meaning="A refused pod has a Relaunch, and for ten minutes its replacement does not run: no node admits it, "
        "its creator may not create pods any more, or the API server denies the replacement.",
        check=("kubectl get relaunches -A", "kubectl describe relaunch NAME -n NAMESPACE"),
        cure="The condition of the Relaunch says what it waits for and what each node lacks. Free the resource, have "
        "the pod ask for less, or delete the pod: its record ends with it. "
        "[Why a pod waits](../understand/relaunch.md).",
    ),
    Alert(
        name="TopomendGatedThoughItFits",
        query="max(topomend_operator_gated_though_fits_seconds)",
        condition="> 900",
        lasts="1m",
        severity=WARNING,
        summary="A pod has been gated for {{ $value | humanizeDuration }} though a node would admit it.",
        meaning="A node admits a gated pod, and the pod is not ungated: its NUMA nodes are reserved for older pods, "
        "its node backs off after a refusal that replay had not predicted, or the API server denies the write. A pod "
        "that no node admits does not count, however long it waits.",
        check=(
            "kubectl get pods -A --field-selector status.phase=Pending -o wide",
            "kubectl describe pod NAME -n NAMESPACE",
            f"{_LOGS} NAME",
        ),
        cure="If the log has a denied write, restore the role or the policy that it names. To let one pod go at once, "
        "annotate it with `topomend.io/relaunch=false`. [Whom a pod waits for](../understand/gating.md).",
    ),
    Alert(
        name="TopomendAgentSilent",
        query='sum by (pool) (topomend_operator_pool_nodes{state="unknown"} and on (job, instance) '
        "topomend_operator_leads == 1)",
        condition="> 0",
        lasts="5m",
        severity=WARNING,
        summary="The topology of {{ $value }} node(s) of pool {{ $labels.pool }} is not known any more.",
        meaning="The agent of a node has published and is silent now, or the operator does not believe what it "
        "published. No pod is sent to such a node for its topology, and refusals there are explained by their "
        "message alone. Nodes that never had an agent do not count.",
        check=(
            "kubectl numa check",
            "kubectl get ntopo",
            "kubectl get pods -n topomend-agent -o wide",
        ),
        cure="`check` names each node, its reason and the cure. [Troubleshooting](../run/troubleshooting.md).",
    ),
    Alert(
        name="TopomendReplayMismatch",
        query="sum(increase(topomend_operator_replay_disagreements_total[1h]))",
        condition="> 0",
        lasts="0s",
        severity=WARNING,
        summary="A kubelet refused a pod that replay of its node admits.",
        meaning="In the last hour replay has erred: a kubelet refused a pod, and replay of the node's published state "
        "admits it. The node backs off, so that no storm comes of it.",
        check=("kubectl get events -A --field-selector reason=ReplayMismatch",),
        cure="Compare the node's kubelet settings with what `kubectl numa show NODE` says. If they agree, report it "
        "with the output of `kubectl numa export NODE -n NAMESPACE`, as the event says.",
    ),
    Alert(
        name="TopomendOperatorAway",
        query="(sum(topomend_operator_leads) or vector(0))",
        condition="< 1",
        lasts="2m",
        severity=CRITICAL,
        summary="No operator acts: gated pods wait, and gating ends after ten minutes.",
        meaning="No operator that Prometheus scrapes holds the Lease. Either none runs, none can reach the API server, "
        "or Prometheus does not reach them.",
        check=(
            "kubectl get pods -n topomend-system",
            "kubectl get lease -n topomend-system topomend-operator",
            "kubectl logs -n topomend-system -l app.kubernetes.io/component=operator",
        ),
        cure="If an operator leads, let Prometheus scrape it: label its namespace `topomend.io/scrapes=enabled`, and "
        "see [metrics](../run/metrics.md). If none does: [without an operator](../run/operator-away.md).",
    ),
    Alert(
        name="TopomendDutyStuck",
        query="max by (duty) ((time() - topomend_operator_duty_last_success_timestamp_seconds) * on (job, instance) "
        "group_left () topomend_operator_leads)",
        condition="> 300",
        lasts="2m",
        severity=WARNING,
        summary="The operator's duty {{ $labels.duty }} has not succeeded for {{ $value | humanizeDuration }}.",
        meaning="A duty that the leading operator does again and again fails or hangs. The others go on.",
        check=(
            f"{_LOGS} 'not done'",
            "kubectl numa check",
        ),
        cure="The log names what failed, once a minute: as a rule a right that is missing, or an API server that does "
        "not answer. Apply the manifests again, or restart the operator; no pod is lost by that.",
    ),
    Alert(
        name="TopomendBrakeHeld",
        query="max(topomend_operator_oldest_brake_seconds)",
        condition="> 3600",
        lasts="1m",
        severity=WARNING,
        summary="New pods of a controller have been gated by the brake for {{ $value | humanizeDuration }}.",
        meaning="A controller's pod was refused an hour ago or more, and pods of it are refused or wait gated ever "
        "since. The brake leaves it once it has had none for a minute.",
        check=("kubectl get brake -n topomend-system topomend-brake -o yaml", "kubectl numa fit -f MANIFEST"),
        cure="The Brake lists the controllers. Have theirs ask for what a NUMA node has, or scale them down to the "
        "replicas that fit. [The brake](../understand/brake.md).",
    ),
    Alert(
        name="TopomendCertificateEnds",
        query="min(topomend_operator_certificate_expiry_timestamp_seconds > 0) - time()",
        condition=f"< {14 * DAY}",
        lasts="1h",
        severity=WARNING,
        summary="The webhook's certificate ends in {{ $value | humanizeDuration }}, and was not renewed.",
        meaning="The leading operator renews its certificate after two thirds of its life of 365 days, so for 107 days "
        "it could not; or cert-manager fills the Secret, and did not renew it in time. Afterwards the API server "
        "does not trust the webhook: before Kubernetes 1.36 no new pod is gated or stamped.",
        check=(
            f"{_LOGS} -i -e certificate -e Secret",
            f"kubectl auth can-i patch secret/topomend-gating -n topomend-system --as={_OPERATOR}",
        ),
        cure="Restore the Role `topomend-operator` of the namespace, or cert-manager's Certificate. To have all issued "
        "anew, empty the Secret: `kubectl patch secret topomend-gating -n topomend-system --type=json "
        '-p \'[{"op":"remove","path":"/data"}]\'`.',
    ),
)


def groups() -> dict[str, Any]:
    """The rules as Prometheus reads them."""
    return {"groups": [{"name": GROUP, "rules": [_rule(alert) for alert in ALERTS]}]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": alert.runbook},
    }
