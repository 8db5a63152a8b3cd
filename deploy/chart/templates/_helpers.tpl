{{/* What all names begin with. The policies and the drain know topomend's objects by the end of their names. */}}
{{- define "topomend.fullname" -}}
{{ .Values.fullnameOverride | default "topomend" }}
{{- end }}

{{/* The operator's namespace. Nobody means `default`. */}}
{{- define "topomend.namespace" -}}
{{ .Values.namespaceOverride | default (eq .Release.Namespace "default" | ternary "topomend-system" .Release.Namespace) }}
{{- end }}

{{- define "topomend.agentNamespace" -}}
{{ .Values.agent.namespace }}
{{- end }}

{{/* A release cannot create the namespace that it is stored in. Where both are one, it is the agents'. */}}
{{- define "topomend.createsNamespace" -}}
{{- $name := include "topomend.namespace" . -}}
{{- if and .Values.namespaces.create (ne $name .Release.Namespace) (ne $name (include "topomend.agentNamespace" .)) }}yes{{ end }}
{{- end }}

{{- define "topomend.createsAgentNamespace" -}}
{{- if and .Values.namespaces.create (ne (include "topomend.agentNamespace" .) .Release.Namespace) }}yes{{ end }}
{{- end }}

{{- define "topomend.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if or .tag (not .digest) }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* What follows an object's labels: of the root and, if there are, annotations of its own. */}}
{{- define "topomend.metadata" -}}
{{- $values := (first .).Values -}}
{{- with $values.commonLabels }}{{ toYaml . | nindent 4 }}{{ end }}
{{- $annotations := $values.commonAnnotations }}
{{- range rest . }}{{ $annotations = merge (dict) . $annotations }}{{ end }}
{{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "topomend.crdAnnotations" -}}
{{- if .Values.crds.keep }}helm.sh/resource-policy: keep{{ else }}{}{{ end }}
{{- end }}

{{- define "topomend.kubeletRoot" -}}
{{- $ofLayout := eq .Values.kubelet.layout "microk8s" | ternary "/var/snap/microk8s/common/var/lib/kubelet" "/var/lib/kubelet" -}}
{{ .Values.kubelet.rootDir | default $ofLayout }}
{{- end }}

{{/* The layout kubeadm has the configuration in the root folder. */}}
{{- define "topomend.readsState" -}}
{{- if or .Values.kubelet.state.enabled (eq .Values.kubelet.layout "kubeadm") }}yes{{ end }}
{{- end }}

{{- define "topomend.hasPki" -}}
{{- $ofLayout := not (has .Values.kubelet.layout (list "k3s" "microk8s" "rke2")) -}}
{{- if kindIs "bool" .Values.kubelet.state.pki | ternary .Values.kubelet.state.pki $ofLayout }}yes{{ end }}
{{- end }}

{{/* How Prometheus finds the pods; nothing where there are no metrics. */}}
{{- define "topomend.monitor" -}}
{{ .Values.metrics.enabled | ternary .Values.metrics.monitor "" }}
{{- end }}

{{/* Labels of the objects of a hook; the argument is the root and the component. Its pods are no operator's. */}}
{{- define "topomend.hookLabels" -}}
app.kubernetes.io/name: topomend
app.kubernetes.io/component: {{ last . }}
app.kubernetes.io/part-of: topomend
{{- with (first .).Values.commonLabels }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}

{{/* A pod of a hook, as Pod Security's level restricted wants it, but for its command. It runs on a full cluster too. */}}
{{- define "topomend.hookPod" -}}
restartPolicy: Never
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector:
  {{- toYaml .Values.operator.nodeSelector | nindent 2 }}
{{- with .Values.operator.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The image's own user, or on OpenShift one of the namespace's range.
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "topomend.hookContainer" -}}
image: {{ include "topomend.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
resources:
  requests:
    cpu: 100m
    memory: 128Mi
  limits:
    memory: 512Mi
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
