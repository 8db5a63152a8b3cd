"""One source: the chart renders what kustomize builds, object by object, for base, components and other names."""

import json
import re
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from deploy.helm.chart import CHART, generated
from deploy.manifests import ROOT, objects
from tests.deploy.base.test_renamed import HOME, PREFIX, renamed
from tests.deploy.chart.rendered import HELMS, Object, by_key, rendered
from tests.deploy.components.test_components import COMPONENTS, built, patches_of_the_documentation

KEEP = {"helm.sh/resource-policy": "keep"}

VALUES: dict[str, Any] = {
    "claims": {"claims": {"enabled": True}},
    "kueue": {"kueue": {"enabled": True}},
    "kubelet-root": {"kubelet": {"rootDir": "/data/kubelet"}},
    "kubelet-state": {"kubelet": {"state": {"enabled": True}}},
    "node-resource-topology": {"nodeResourceTopology": {"enabled": True}},
    "node-features": {"nodeFeatures": {"enabled": True}},
    "defragment": {"defragment": {"enabled": True}},
    "observe": {"mode": "observe"},
    "openshift": {"openshift": {"enabled": True}},
    "placeholders": {"placeholders": {"enabled": True}},
    "pod-monitor": {"metrics": {"monitor": "PodMonitor"}},
    "prometheus-rule": {"metrics": {"rules": True}},
    "scrape-annotations": {"metrics": {"monitor": "annotations"}},
    "service-monitor": {"metrics": {"monitor": "ServiceMonitor"}},
    "startup-taint": {"startupTaint": {"enabled": True}},
}
"""The values of each component; those of a distribution are layouts."""


def values_of(component: str) -> dict[str, Any]:
    return dict(VALUES.get(component, {"kubelet": {"layout": component}}))


CLUSTER_SCOPED = {item["kind"] for item in objects() if "namespace" not in item["metadata"]}


def compare(chart: list[Object], kustomize: list[Object]) -> None:
    """No object more or less, and none that differs in anything but what tells helm to keep the kinds."""
    theirs, ours = by_key(list(map(_normal, kustomize))), by_key(list(map(_normal, chart)))
    assert ours.keys() == theirs.keys()
    for name, item in ours.items():
        if item["kind"] == "CustomResourceDefinition":
            assert item["metadata"].pop("annotations") == KEEP
        assert item == theirs[name], name


def _normal(item: Object) -> Object:
    """Kustomize has volumes that it merged first, flags in the order of components, and namespaces where none are."""
    if item["kind"] == "DaemonSet":
        pod = item["spec"]["template"]["spec"]
        for entries in (pod["volumes"], pod["containers"][0]["volumeMounts"], pod["containers"][0]["args"]):
            entries.sort(key=partial(json.dumps, sort_keys=True))
    if item["kind"] in CLUSTER_SCOPED:
        item["metadata"].pop("namespace", None)
    return item


def _without_definitions(text: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(text)
    assert schema.pop("definitions")
    return schema


def test_what_is_generated_is_in_step_with_the_manifests_and_the_values() -> None:
    for path, text in generated().items():
        if path.suffix == ".json":
            assert _without_definitions(path.read_text()) == _without_definitions(text), "run make generate"
        else:
            assert path.read_text() == text, f"{path.name}: run make generate"


def test_no_template_is_left_that_nothing_makes() -> None:
    made = {path for path in CHART.rglob("*.yaml") if path.read_text().startswith("{{- /* Generated from")}
    assert made == {path for path in generated() if path.suffix == ".yaml"}


PINNED = re.findall(r"^kubernetes==(\S+)", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE)


@pytest.mark.skipif([version("kubernetes")] != PINNED, reason="make packages: another client has other types")
def test_the_schema_has_kubernetes_types_of_the_pinned_client() -> None:
    path = CHART / "values.schema.json"
    assert path.read_text() == generated()[path], "run make generate"


@pytest.mark.parametrize("helm", HELMS)
def test_the_chart_as_it_is_installs_the_base(helm: str) -> None:
    compare(rendered(helm=helm), objects())


def test_without_keeping_the_kinds_nothing_differs() -> None:
    assert by_key(rendered(crds={"keep": False})) == by_key(objects())


@pytest.mark.parametrize("name", ["topomend-system", "numa"])
def test_a_release_cannot_create_its_own_namespace_and_nothing_else_is_missing(name: str) -> None:
    made, base = by_key(rendered(f"--namespace={name}")), by_key(rendered(namespaceOverride=name))
    assert base.keys() - made.keys() == {("v1", "Namespace", "", name)}
    assert all(base[each] == item for each, item in made.items())


@pytest.mark.cluster  # needs the sandbox's kubectl
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_value_renders_what_its_component_builds(tmp_path: Path, name: str) -> None:
    compare(rendered(**values_of(name)), built(tmp_path, name))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("components", "values"),
    [
        (("kubelet-root", "kubelet-state"), {"kubelet": {"rootDir": "/data/kubelet", "state": {"enabled": True}}}),
        (("kubelet-root", "kubeadm"), {"kubelet": {"rootDir": "/data/kubelet", "layout": "kubeadm"}}),
        (
            ("microk8s", "kubelet-state", "node-resource-topology"),
            {
                "kubelet": {"layout": "microk8s", "state": {"enabled": True, "pki": True}},
                "nodeResourceTopology": {"enabled": True},
            },
        ),
        (
            ("openshift", "placeholders", "startup-taint"),
            {name: {"enabled": True} for name in ("openshift", "placeholders", "startupTaint")},
        ),
        (("openshift", "observe"), {"openshift": {"enabled": True}, "mode": "observe"}),
    ],
    ids=str,
)
def test_values_combine_as_components_do(tmp_path: Path, components: tuple[str, ...], values: dict[str, Any]) -> None:
    compare(rendered(**values), built(tmp_path, *components))


@pytest.mark.cluster
@pytest.mark.parametrize("components", [(), ("startup-taint", "node-resource-topology")], ids=str)
def test_another_namespace_and_prefix_reach_all_that_kustomize_reaches(
    tmp_path: Path, components: tuple[str, ...]
) -> None:
    values = {name: value for component in components for name, value in values_of(component).items()}
    names: dict[str, Any] = {
        "namespaceOverride": HOME,
        "fullnameOverride": f"{PREFIX}topomend",
        "agent": {"namespace": HOME},
    }
    compare(rendered(**values, **names), renamed(tmp_path, *components))


@pytest.mark.cluster
def test_the_patches_that_the_documentation_has_are_values(tmp_path: Path) -> None:
    without_pki, covering = patches_of_the_documentation()
    state: dict[str, Any] = {"enabled": True}
    compare(rendered(kubelet={"state": state | {"pki": False}}), built(tmp_path, "kubelet-state", **without_pki))
    files = ["config.json", "bootstrap-kubeconfig", "kubeconfig", "image_manager"]
    compare(rendered(kubelet={"state": state | {"cover": files}}), built(tmp_path, "kubelet-state", **covering))
