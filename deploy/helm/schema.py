"""The chart's values.schema.json: the type of every value, and the right name for every misspelt one.

The bounds of the operator's settings are those of its flags. Defaults and descriptions are in values.yaml, above each
value; a value that is there and not here is an error, and so is the contrary.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import yaml
from deploy.helm import kubernetes_types, nearest
from deploy.helm.kubernetes_types import reference
from deploy.helm.templates import LAYOUTS

from topomend.cli.agent import agent
from topomend.reconcile.settings import FLAG, OBSERVE, RELAUNCH, Flag, Settings
from topomend.runtime.log import FORMATS, LEVELS

Schema = dict[str, Any]

NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A label of a DNS name (apimachinery pkg/util/validation/validation.go)."""

SET_BY_THE_CHART = {
    *("mode", "health_address", "metrics_address", "namespace", "service_account", "webhook_address"),
    *(
        "gating_service",
        "startup_taint",
        "placeholders",
        "claims",
        "defragment",
        "kueue",
        "leader_elect",
        "identity",
        "pod_name",
        "pod_uid",
    ),
}
"""Settings of the operator that its manifest or another value has."""

OF_OTHER_CHARTS = {
    "replicaCount": ["operator.replicas"],
    "nameOverride": ["fullnameOverride"],
    "installCRDs": ["crds.enabled"],
    "prometheus": ["metrics"],
}
"""Names by which other charts call the same."""

TAKEN_PORTS = [8081, 8443]
"""Of probes, and of the operator's webhook, in deploy/base."""

COVERED = ["config.json", ".dockercfg", "bootstrap-kubeconfig", "kubeconfig", "image_manager"]


class ValuesDisagree(ValueError):
    """values.yaml and the schema have different values."""


def values_schema(values: str) -> str:
    """values.schema.json for the text of values.yaml. Raises ValuesDisagree."""
    tree = _tree()
    comments = dict(described(values))
    _check(tree, yaml.safe_load(values), "")
    definitions = {name: _strict(schema) for name, schema in _definitions().items()}
    root = _object(tree, comments, "", _elsewhere(tree))
    root["properties"]["global"] = {"type": "object", "description": "Of a chart that contains this one; not read."}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **root, "definitions": definitions}
    return _printed(schema, "") + "\n"


def _printed(value: Any, indent: str) -> str:
    """JSON with a line for each property and each rule, so that changes of values can be read as such."""
    if isinstance(value, dict) and "if" not in value and any(isinstance(each, dict) for each in value.values()):
        entries = [f"{json.dumps(key)}: {_printed(each, indent + ' ')}" for key, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        entries = [_printed(each, indent + " ") for each in value]
    else:
        return json.dumps(value)
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n{indent} " + f",\n{indent} ".join(entries) + f"\n{indent}{end}"


def described(values: str) -> Iterator[tuple[str, str]]:
    """Path and comment of each value that has a comment above it."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in values.splitlines():
        if remark := re.fullmatch(r" *# ?(.*)", line):
            comment.append(remark[1])
            continue
        if key := re.match(r"( *)([\w./-]+):", line):
            path = [(column, name) for column, name in path if column < len(key[1])] + [(len(key[1]), key[2])]
            if comment:
                yield ".".join(name for _, name in path), " ".join(comment)
        comment = []


def _tree() -> Mapping[str, Any]:
    """The values: a mapping where they are nested, else their schema."""
    switch = {"enabled": _boolean()}
    return {
        "image": {
            "repository": _text("^([^/@ ]+/)*[^/:@ ]+$"),
            "tag": _text(r"^(\w[\w.-]{0,127})?$"),
            "digest": _text("^(sha256:[0-9a-f]{64})?$"),
            "pullPolicy": _choice("", "Always", "IfNotPresent", "Never"),
        },
        "imagePullSecrets": _list("V1LocalObjectReference"),
        "mode": _choice(RELAUNCH, OBSERVE),
        "gating": {name: _boolean() for name in ("enabled", "steer", "brake", "creator", "changes")},
        **dict.fromkeys(
            ("preemption", "scaleUp", "volumes", "placeholders", "startupTaint", "claims", "defragment", "kueue"),
            switch,
        ),
        **dict.fromkeys(("nodeResourceTopology", "nodeFeatures", "openshift", "networkPolicy"), switch),
        "kubelet": {
            "layout": _choice("", *LAYOUTS),
            "rootDir": _text("^(/.*[^/])?$"),
            "state": {
                "enabled": _boolean(),
                "pki": {"type": ["boolean", "null"]},
                "cover": {"type": "array", "items": _choice(*COVERED), "uniqueItems": True},
            },
        },
        "operator": {
            "replicas": _whole(1, 10),
            "podDisruptionBudget": {
                "enabled": _boolean(),
                "maxUnavailable": {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+%$"},
                "unhealthyPodEvictionPolicy": _choice("", "IfHealthyBudget", "AlwaysAllow"),
            },
            "settings": _settings(),
            **_of_a_workload(),
            "topologySpreadConstraints": _list("V1TopologySpreadConstraint"),
        },
        "agent": {
            "namespace": _text(NAME),
            "updateStrategy": reference("V1DaemonSetUpdateStrategy"),
            "settings": _settings_of_the_agent(),
            **_of_a_workload(),
            "seLinuxOptions": reference("V1SELinuxOptions"),
        },
        "log": {"level": _choice("", *LEVELS), "format": _choice("", *FORMATS)},
        "metrics": {
            "enabled": _boolean(),
            "port": _whole(1024, 65535) | {"not": {"enum": TAKEN_PORTS}},
            "namespaceSelector": reference("V1LabelSelector"),
            "monitor": _choice("", "PodMonitor", "ServiceMonitor", "annotations"),
            "interval": _text("^[1-9][0-9]*(s|m)$"),
            "labels": _labels(),
            "rules": _boolean(),
        },
        "crds": {"enabled": _boolean(), "keep": _boolean()},
        "namespaces": {"create": _boolean()},
        "namespaceOverride": _text(f"^$|{NAME}"),
        "fullnameOverride": _text("^(([a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?-)?topomend)?$"),
        "commonLabels": _labels(),
        "commonAnnotations": _texts(),
        "uninstall": {"drain": _boolean(), "timeoutSeconds": _whole(60, 3600)},
        "test": {"timeoutSeconds": _whole(0, 3600)},
    }


def _of_a_workload() -> Mapping[str, Any]:
    return {
        "priorityClassName": _text("^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"),
        "resources": reference("V1ResourceRequirements"),
        "nodeSelector": _texts(),
        "tolerations": _list("V1Toleration"),
        "affinity": reference("V1Affinity"),
        "annotations": _texts(),
        "podAnnotations": _texts(),
        "podLabels": _labels(),
        "serviceAccount": {"annotations": _texts()},
        "extraEnv": _list("V1EnvVar"),
        "extraVolumes": _list("V1Volume"),
        "extraVolumeMounts": _list("V1VolumeMount"),
    }


def _definitions() -> dict[str, Any]:
    return kubernetes_types.definitions(
        "V1Affinity",
        "V1DaemonSetUpdateStrategy",
        "V1EnvVar",
        "V1LabelSelector",
        "V1LocalObjectReference",
        "V1ResourceRequirements",
        "V1SELinuxOptions",
        "V1Toleration",
        "V1TopologySpreadConstraint",
        "V1Volume",
        "V1VolumeMount",
    )


def _settings_of_the_agent() -> Schema:
    bounds = next(each.type for each in agent.params if each.name == "interval")
    interval = {"type": "number", "minimum": bounds.min, "maximum": bounds.max}  # type: ignore[attr-defined]
    settings = {"interval": interval, "kubeletCa": _text("^/.+"), "kubeletTlsVerify": _choice("preferred", "required")}
    return _strict_of(settings, "agent.settings.")


def _settings() -> Schema:
    """The operator's settings that are left to users, by their flags' names in the style of values."""
    mine = {setting.name: setting for setting in fields(Settings) if setting.name not in SET_BY_THE_CHART}
    properties = {_camel(name): _setting(each.default, each.metadata[FLAG]) for name, each in mine.items()}
    return _strict_of(properties, "operator.settings.")


def _setting(default: Any, flag: Flag) -> Schema:
    kinds = {int: "integer", float: "number", str: "string"}
    schema: Schema = {"type": kinds[type(default)], "description": flag.help}
    if flag.minimum is not None:
        schema["exclusiveMinimum" if flag.min_open else "minimum"] = flag.minimum
    return schema | ({"maximum": flag.maximum} if flag.maximum is not None else {})


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _check(tree: Mapping[str, Any], values: Mapping[str, Any], at: str) -> None:
    if tree.keys() != values.keys():
        names = ", ".join(at + name for name in sorted(tree.keys() ^ values.keys()))
        raise ValuesDisagree(f"deploy/chart/values.yaml and deploy/helm/schema.py do not both have {names}")
    for name, inner in tree.items():
        if _is_nested(inner):
            _check(inner, values[name], f"{at}{name}.")


def _object(
    tree: Mapping[str, Any], comments: Mapping[str, str], at: str, elsewhere: Mapping[str, Sequence[str]]
) -> Schema:
    properties = {}
    for name, inner in tree.items():
        path = at + name
        schema = _object(inner, comments, f"{path}.", {}) if _is_nested(inner) else inner
        description = {"description": comments[path]} if path in comments and "$ref" not in schema else {}
        properties[name] = description | schema
    required = sorted(name for name, inner in tree.items() if not _may_be_null(inner))
    return _strict_of(properties, at, elsewhere) | ({"required": required} if required else {})


def _is_nested(inner: Mapping[str, Any]) -> bool:
    return not {"type", "$ref"} & inner.keys()


def _may_be_null(inner: Mapping[str, Any]) -> bool:
    """Whether a null, by which helm takes away what values.yaml has, leaves something out that nothing asks for.

    Without a text or a number conditions of templates are neither true nor false, and flags have no value.
    """
    if _is_nested(inner):
        return False
    return "$ref" in inner or inner["type"] in ("array", "object") or "null" in inner["type"]


def _elsewhere(tree: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Names of nested values that users look for at the top, and where they are."""
    found: dict[str, list[str]] = {}
    for parent, inner in tree.items():
        for name in inner if _is_nested(inner) else ():
            if name not in (*tree, "enabled"):
                found.setdefault(name, []).append(f"{parent}.{name}")
    return found | OF_OTHER_CHARTS


def _strict_of(
    properties: Mapping[str, Any], at: str = "", elsewhere: Mapping[str, Sequence[str]] | None = None
) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        **nearest.rules(properties.keys(), at, elsewhere or {}),
    }


def _strict(schema: Schema) -> Schema:
    if "properties" not in schema:
        return schema
    required = {"required": schema["required"]} if "required" in schema else {}
    return _strict_of(schema["properties"]) | required


def _boolean() -> Schema:
    return {"type": "boolean"}


def _whole(minimum: int, maximum: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def _text(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def _choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _list(name: str) -> Schema:
    return {"type": "array", "items": reference(name)}


def _texts() -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _labels() -> Schema:
    """Labels of a user, which are not those by which topomend's own objects are selected."""
    own = r"^app\.kubernetes\.io/(name|component|part-of|version)$"
    return _texts() | {"patternProperties": {own: {"const": "left to topomend"}}}
