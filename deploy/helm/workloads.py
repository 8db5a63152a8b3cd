"""Where values go into the agent's DaemonSet and the operator's Deployment, and what components merge there."""

from collections.abc import Mapping
from typing import Any

from deploy.helm.manifest import Manifest, Path

POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", "0")

KUBELET_ROOT = "/var/lib/kubelet"

COVERS = {
    (*CONTAINER, "volumeMounts"): [
        "{{- range .Values.kubelet.state.cover }}",
        '{{- $volume := eq . "image_manager" | ternary "nothing" "no-file" }}',
        "- {name: {{ $volume }}, mountPath: /kubelet-state/{{ . }}, readOnly: true}",
        "{{- end }}",
    ],
    (*POD, "volumes"): [
        '{{- if without .Values.kubelet.state.cover "image_manager" }}',
        "- {name: no-file, hostPath: {path: /dev/null, type: CharDevice}}",
        "{{- end }}",
    ],
}
"""What covers files with credentials in the kubelet's root folder (docs/run/layouts.md)."""


def more(component: str, path: Path) -> list[str]:
    """What values add to what a component appends at ``path``."""
    return COVERS.get(path, []) if component == "kubelet-state" else []


def guarded(value: Any, line: str) -> list[str]:
    """The line for a value that a component adds: the kubelet's root folder is a value, and not every one has pki."""
    if isinstance(value, Mapping):
        line = line.replace(f": {KUBELET_ROOT}}}", ': {{ include "topomend.kubeletRoot" . }}}')
        line = line.replace(f": {KUBELET_ROOT},", ': {{ include "topomend.kubeletRoot" . }},')
        if value.get("mountPath") == "/kubelet-state/pki":
            return ['{{- if include "topomend.hasPki" . }}', line, "{{- end }}"]
    return [line]


METRICS_PORT, MONITORS = "9400", {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}
"""The port as the manifests have it; the kinds by which the Prometheus Operator finds pods, and their lists."""


def edit(manifest: Manifest) -> None:
    """Put the values into a workload, or into what limits or watches it; other objects have none."""
    if manifest.kind == "DaemonSet":
        _edit_agent(manifest)
    elif manifest.kind == "Deployment":
        _edit_operator(manifest)
    elif manifest.kind == "PodDisruptionBudget":
        budget = ".Values.operator.podDisruptionBudget"
        manifest.replace(("spec", "maxUnavailable"), f"{{{{ {budget}.maxUnavailable }}}}")
        _insert_scalar(
            manifest, ("spec", "maxUnavailable"), "unhealthyPodEvictionPolicy", f"{budget}.unhealthyPodEvictionPolicy"
        )
    elif manifest.kind == "NetworkPolicy":
        selector = ("spec", "ingress", "0", "from", "0", "namespaceSelector", "matchLabels")
        labelled = '(dict "matchLabels" (dict "topomend.io/scrapes" "enabled"))'
        value = f"(.Values.metrics.namespaceSelector | default {labelled})"
        manifest.replace_entry(selector, [f"{{{{- toYaml {value} | nindent {manifest.column(selector)} }}}}"])
    elif manifest.kind == "SecurityContextConstraints":
        volumes = ", ".join(manifest.content["volumes"])
        further = "{{ if .Values.agent.extraVolumes }}, configMap, secret{{ end }}"
        manifest.replace(("volumes",), f"[{volumes}{further}]")
    elif manifest.kind in (*MONITORS, "PrometheusRule"):
        _append(manifest, ("metadata", "labels"), ".Values.metrics.labels")
        if manifest.kind in MONITORS:
            manifest.replace(("spec", MONITORS[manifest.kind], "0", "interval"), "{{ .Values.metrics.interval }}")


def _edit_agent(manifest: Manifest) -> None:
    values = ".Values.agent"
    _edit_both(manifest, values, 'printf "%s-agent" (include "topomend.fullname" .)')
    _replace(manifest, ("spec", "updateStrategy"), f"{values}.updateStrategy")
    _replace(manifest, (*POD, "tolerations"), f"{values}.tolerations")
    _insert(manifest, (*POD, "tolerations"), "affinity", f"{values}.affinity")
    openshift = 'dict "type" "container_device_plugin_t" "level" "s0"'
    _insert(
        manifest,
        (*POD, "securityContext", "seccompProfile"),
        "seLinuxOptions",
        f"ternary ({openshift}) {values}.seLinuxOptions .Values.openshift.enabled",
    )
    manifest.replace((*POD, "volumes", "2", "hostPath", "path"), '{{ include "topomend.kubeletRoot" . }}/pod-resources')
    for key, value in (("volumeMounts", "extraVolumeMounts"), ("volumes", "extraVolumes")):
        parent = CONTAINER if key == "volumeMounts" else POD
        _append(manifest, (*parent, key), f"{values}.{value}")


def _edit_operator(manifest: Manifest) -> None:
    values = ".Values.operator"
    _edit_both(manifest, values, "")
    manifest.replace(("spec", "replicas"), f"{{{{ {values}.replicas }}}}")
    _replace(manifest, (*POD, "affinity"), f"{values}.affinity")
    _insert(manifest, (*POD, "affinity"), "topologySpreadConstraints", f"{values}.topologySpreadConstraints")
    manifest.insert_after(
        (*POD, "affinity"),
        [
            f"{{{{- if or {values}.tolerations .Values.startupTaint.enabled }}}}",
            "tolerations:",
            "  {{- if .Values.startupTaint.enabled }}",
            "  - {key: topomend.io/topology-not-known, operator: Exists}",
            "  - {key: startup-taint.cluster-autoscaler.kubernetes.io/topomend-topology-not-known, operator: Exists}",
            "  {{- end }}",
            f"  {{{{- with {values}.tolerations }}}}",
            "  {{- toYaml . | nindent 8 }}",
            "  {{- end }}",
            "{{- end }}",
        ],
    )
    _insert(manifest, (*CONTAINER, "securityContext"), "volumeMounts", f"{values}.extraVolumeMounts")
    _insert(manifest, (*POD, "containers"), "volumes", f"{values}.extraVolumes")


def _edit_both(manifest: Manifest, values: str, constraints: str) -> None:
    """``constraints`` are the OpenShift SecurityContextConstraints that the pods require, if any."""
    labels = ("spec", "template", "metadata", "labels")
    _append(manifest, labels, f"{values}.podLabels")
    _insert_annotations(manifest, labels, f"{values}.podAnnotations", constraints)
    _insert(manifest, (*POD, "serviceAccountName"), "imagePullSecrets", ".Values.imagePullSecrets")
    manifest.replace_entry(
        (*POD, "priorityClassName"),
        [f"{{{{- with {values}.priorityClassName }}}}", "priorityClassName: {{ . }}", "{{- end }}"],
    )
    _replace(manifest, (*POD, "nodeSelector"), f"{values}.nodeSelector")
    manifest.replace((*CONTAINER, "image"), '{{ include "topomend.image" . | quote }}')
    _insert_scalar(manifest, (*CONTAINER, "image"), "imagePullPolicy", ".Values.image.pullPolicy")
    manifest.append(
        (*CONTAINER, "args"),
        [
            f"{{{{- range $name, $value := {values}.settings }}}}",
            # Numbers of a file are floats to helm, which prints those of a million or more with an exponent.
            '{{- $text := kindIs "float64" $value | ternary (toJson $value) $value }}',
            '- {{ printf "--%s=%v" (kebabcase $name) $text | quote }}',
            "{{- end }}",
            "{{- with .Values.log.level }}",
            "- --log-level={{ . }}",
            "{{- end }}",
            "{{- with .Values.log.format }}",
            "- --log-format={{ . }}",
            "{{- end }}",
        ],
    )
    _append(manifest, (*CONTAINER, "env"), f"{values}.extraEnv")
    _edit_metrics(manifest)
    _replace(manifest, (*CONTAINER, "resources"), f"{values}.resources")


def _edit_metrics(manifest: Manifest) -> None:
    container = manifest.content["spec"]["template"]["spec"]["containers"][0]
    flag = f"--metrics-address=$(POD_IP):{METRICS_PORT}"
    argument = (*CONTAINER, "args", str(container["args"].index(flag)))
    port = (*CONTAINER, "ports", str([each["name"] for each in container["ports"]].index("metrics")))
    manifest.replace(argument, flag.replace(METRICS_PORT, "{{ .Values.metrics.port }}"))
    manifest.replace((*port, "containerPort"), "{{ .Values.metrics.port }}")
    for entry in (argument, port):
        manifest.guard(entry, ".Values.metrics.enabled")


def _insert_annotations(manifest: Manifest, after: Path, value: str, constraints: str) -> None:
    is_found_by_them = '(include "topomend.monitor" . | eq "annotations")'
    required = [
        "  {{- if .Values.openshift.enabled }}",
        f"  openshift.io/required-scc: {{{{ {constraints} }}}}",
        "  {{- end }}",
    ]
    either = f"or {value} {is_found_by_them}{' .Values.openshift.enabled' if constraints else ''}"
    manifest.insert_after(
        after,
        [
            f"{{{{- if {either} }}}}",
            "annotations:",
            *(required if constraints else ()),
            f"  {{{{- if {is_found_by_them[1:-1]} }}}}",
            '  prometheus.io/scrape: "true"',
            "  prometheus.io/port: {{ .Values.metrics.port | quote }}",
            "  {{- end }}",
            f"  {{{{- with {value} }}}}",
            "  {{- toYaml . | nindent 8 }}",
            "  {{- end }}",
            "{{- end }}",
        ],
    )


def _replace(manifest: Manifest, path: Path, value: str) -> None:
    """The value takes the place of what a key has."""
    column = manifest.column(path)
    manifest.replace_entry(path, [f"{path[-1]}:", f"  {{{{- toYaml {value} | nindent {column + 2} }}}}"])


def _insert(manifest: Manifest, after: Path, key: str, value: str) -> None:
    """A new key after another one, if the value is not empty."""
    column = manifest.column(after)
    manifest.insert_after(
        after, [f"{{{{- with {value} }}}}", f"{key}:", f"  {{{{- toYaml . | nindent {column + 2} }}}}", "{{- end }}"]
    )


def _insert_scalar(manifest: Manifest, after: Path, key: str, value: str) -> None:
    manifest.insert_after(after, [f"{{{{- with {value} }}}}", f"{key}: {{{{ . }}}}", "{{- end }}"])


def _append(manifest: Manifest, path: Path, value: str) -> None:
    """The entries of a value after those that a list or mapping has."""
    column = manifest.inner_column(path)
    manifest.append(path, [f"{{{{- with {value} }}}}", f"{{{{- toYaml . | nindent {column} }}}}", "{{- end }}"])
