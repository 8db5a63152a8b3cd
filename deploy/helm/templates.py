"""The chart's templates, made of the manifests of deploy/: what the base installs, with values for a user's choices.

Conditions come from the components: what one adds by a JSON patch becomes a block under ``if``, what one deletes a
document under ``if``, and its own manifests templates of their own. Names and namespaces become includes. What a merge
patch of a component says is written in ``workloads``; tests/deploy/chart compares the objects with kustomize's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from deploy.helm import workloads
from deploy.helm.manifest import Manifest
from deploy.manifests import DEPLOY, ROOT, files

LAYOUTS = ("aks", "bottlerocket", "eks-al2", "eks-al2023", "k3s", "kubeadm", "microk8s", "rke2")
"""The components of which a cluster needs at most one: the values of ``kubelet.layout``."""

CONDITIONS = {
    "kubelet-state": 'include "topomend.readsState" .',
    **{name: f'eq .Values.kubelet.layout "{name}"' for name in LAYOUTS},
    "node-resource-topology": ".Values.nodeResourceTopology.enabled",
    "node-features": ".Values.nodeFeatures.enabled",
    "openshift": ".Values.openshift.enabled",
    "defragment": ".Values.defragment.enabled",
    "placeholders": ".Values.placeholders.enabled",
    "startup-taint": ".Values.startupTaint.enabled",
    "claims": ".Values.claims.enabled",
    "kueue": ".Values.kueue.enabled",
    "pod-monitor": 'include "topomend.monitor" . | eq "PodMonitor"',
    "service-monitor": 'include "topomend.monitor" . | eq "ServiceMonitor"',
    "scrape-annotations": 'include "topomend.monitor" . | eq "annotations"',
    "prometheus-rule": "and .Values.metrics.enabled .Values.metrics.rules",
    "observe": 'eq .Values.mode "observe"',
}
"""Of each component, in the order in which a user lists them; kubelet-root is the value ``kubelet.rootDir`` alone."""

OBSERVES, ACTS = CONDITIONS["observe"], 'eq .Values.mode "relaunch"'

GUARDS = {
    ("ClusterRole", "topomend-gating"): ".Values.gating.enabled",
    ("ClusterRoleBinding", "topomend-gating"): ".Values.gating.enabled",
    ("MutatingWebhookConfiguration", "topomend-steer"): ".Values.gating.steer",
    ("MutatingWebhookConfiguration", "topomend-brake"): ".Values.gating.brake",
    ("MutatingWebhookConfiguration", "topomend-creator"): ".Values.gating.creator",
    ("MutatingWebhookConfiguration", "topomend-changes"): ".Values.gating.changes",
    ("ClusterRole", "topomend-preemption"): ".Values.preemption.enabled",
    ("ClusterRoleBinding", "topomend-preemption"): ".Values.preemption.enabled",
    ("ClusterRole", "topomend-scale-up"): ".Values.scaleUp.enabled",
    ("ClusterRoleBinding", "topomend-scale-up"): ".Values.scaleUp.enabled",
    ("ClusterRole", "topomend-volumes"): ".Values.volumes.enabled",
    ("ClusterRoleBinding", "topomend-volumes"): ".Values.volumes.enabled",
    ("NetworkPolicy", "topomend-operator"): ".Values.networkPolicy.enabled",
    ("NetworkPolicy", "topomend-agent"): ".Values.networkPolicy.enabled",
    ("PodDisruptionBudget", "topomend-operator"): ".Values.operator.podDisruptionBudget.enabled",
    ("Namespace", "topomend-system"): 'include "topomend.createsNamespace" .',
    ("Namespace", "topomend-agent"): 'include "topomend.createsAgentNamespace" .',
}
"""What a value alone leaves out. A feature loses its rights; the policies that limit them stay, as walls."""

ANNOTATIONS = {
    ("DaemonSet", "topomend-agent"): ".Values.agent.annotations",
    ("Deployment", "topomend-operator"): ".Values.operator.annotations",
    ("ServiceAccount", "topomend-agent"): ".Values.agent.serviceAccount.annotations",
    ("ServiceAccount", "topomend-operator"): ".Values.operator.serviceAccount.annotations",
}

SYSTEM, AGENT = "topomend-system", "topomend-agent"


@dataclass(frozen=True)
class _Change:
    """What a component changes: the JSON patches of one object, or its removal."""

    component: str
    kind: str
    name: str
    operations: tuple[Mapping[str, Any], ...] = ()
    is_removed: bool = False

    def concerns(self, manifest: Manifest) -> bool:
        """Whether the object of this manifest is changed. Kustomize takes a target's name as an expression."""
        return self.kind == manifest.kind and re.fullmatch(self.name, manifest.name) is not None


def templates() -> dict[str, str]:
    """The generated templates: file name -> content."""
    changes = [change for component in CONDITIONS for change in _changes(component)]
    made = {}
    for path in files(DEPLOY):
        is_crd = path.parent != DEPLOY / "base"
        name = f"crd-{path.name.removeprefix('topomend.io_')}" if is_crd else path.name
        made[name] = _template(path, changes, ".Values.crds.enabled" if is_crd else "")
    for component, condition in CONDITIONS.items():
        folder = DEPLOY / "components" / component
        for resource in _kustomization(folder).get("resources", ()):
            made[f"{component}-{resource}"] = _template(folder / resource, changes, condition)
    return made


def _kustomization(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return content


def _changes(component: str) -> Iterator[_Change]:
    folder = DEPLOY / "components" / component
    for patch in _kustomization(folder).get("patches", ()):
        content = yaml.safe_load(patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text())
        if isinstance(content, list):
            yield _Change(component, patch["target"]["kind"], patch["target"]["name"], tuple(content))
        elif content.get("$patch") == "delete":
            yield _Change(component, content["kind"], content["metadata"]["name"], is_removed=True)


def _template(path: Path, changes: Iterable[_Change], condition: str) -> str:
    origin = str(path.relative_to(ROOT))
    documents = re.split(r"^---\n", _raw(path.read_text()), flags=re.MULTILINE)
    texts = [_document(Manifest(text, origin), changes, condition) for text in documents]
    return f"{{{{- /* Generated from {origin} by make generate: do not edit. */}}}}\n" + "".join(texts)


def _raw(text: str) -> str:
    """The text with Prometheus' own templates as helm prints them unread."""
    return re.sub(r"\{\{.*?\}\}", r"{{`\g<0>`}}", text)


def _document(manifest: Manifest, changes: Iterable[_Change], condition: str) -> str:
    key = manifest.kind, manifest.name
    _name(manifest)
    _label(manifest, ANNOTATIONS.get(key, ""))
    conditions = [condition] if condition else []
    for change in changes:
        if change.is_removed and change.concerns(manifest):
            conditions.append(ACTS)
        elif change.concerns(manifest):
            _apply(manifest, change)
    workloads.edit(manifest)
    if key in GUARDS:
        conditions.append(GUARDS[key])
    return _guarded(f"---\n{manifest.edited()}", conditions)


def _guarded(text: str, conditions: list[str]) -> str:
    if not conditions:
        return text
    (first, *others) = conditions
    joined = f"and {' '.join(map(_operand, conditions))}" if others else first
    return f"{{{{- if {joined} }}}}\n{text}{{{{- end }}}}\n"


def _operand(condition: str) -> str:
    return f"({condition})" if " " in condition else condition


def _name(manifest: Manifest) -> None:
    """Names and namespaces become includes, wherever a whole scalar is one; the text of an expression never is."""
    for path, text in manifest.scalars():
        if not re.fullmatch(r"topomend-[a-z-]+", text) or _is_parameter(manifest, path):
            continue
        is_namespace = path[-1] == "namespace" or manifest.kind == "Namespace"
        if is_namespace and text == AGENT:
            manifest.replace(path, '{{ include "topomend.agentNamespace" . }}')
        elif is_namespace and text == SYSTEM:
            manifest.replace(path, '{{ include "topomend.namespace" . }}')
        else:
            manifest.replace(path, text.replace("topomend", '{{ include "topomend.fullname" . }}', 1))


def _is_parameter(manifest: Manifest, path: tuple[str, ...]) -> bool:
    """Whether a rule or a binding names a Brake or a Steering, which the operator creates under that very name."""
    if path == ("spec", "paramRef", "name"):
        return "namespace" in manifest.content["spec"]["paramRef"]
    return path[0] == "rules" and manifest.content["rules"][int(path[1])]["apiGroups"] == ["topomend.io"]


def _label(manifest: Manifest, annotations: str) -> None:
    if manifest.kind == "CustomResourceDefinition":
        annotations = '(include "topomend.crdAnnotations" . | fromYaml)'
    more = f" {annotations}" if annotations else ""
    manifest.insert_after(("metadata", "labels"), [f'{{{{- include "topomend.metadata" (list .{more}) }}}}'])


def _apply(manifest: Manifest, change: _Change) -> None:
    condition = CONDITIONS[change.component]
    for parent, operations in groupby(change.operations, key=lambda each: str(each["path"]).rpartition("/")[0]):
        added = list(operations)
        if added[0]["op"] == "replace":
            _replace_rules(manifest, added[0]["value"])
            continue
        lines = [line for each in added for line in _lines(each)]
        path = tuple(parent.strip("/").split("/"))
        place = manifest.insert_first if path == ("metadata", "labels") else manifest.append
        place(path, [f"{{{{- if {condition} }}}}", *lines, *workloads.more(change.component, path), "{{- end }}"])


def _lines(operation: Mapping[str, Any]) -> list[str]:
    value, key = operation["value"], str(operation["path"]).rpartition("/")[2].replace("~1", "/")
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).removesuffix("\n...\n").strip()
    line = f"- {text}" if key == "-" else f"{key}: {text}"
    return workloads.guarded(value, line)


def _replace_rules(manifest: Manifest, rules: list[Any]) -> None:
    """A role of an operator that observes has other rules."""
    others = yaml.safe_dump({"rules": rules}, sort_keys=False, default_flow_style=None).splitlines()
    manifest.insert_before(("rules",), [f"{{{{- if {OBSERVES} }}}}", *others, "{{- else }}"])
    manifest.insert_after(("rules",), ["{{- end }}"])
