"""Every value of the chart does what its comment says: what it changes, and where, beside the chart as it is."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import pytest
import yaml
from deploy.helm.chart import CHART
from deploy.helm.schema import SET_BY_THE_CHART, ValuesDisagree, described, values_schema
from deploy.watch.kept import RULES
from tests.deploy.chart.rendered import HELMS, Object, by_key, key, pod_of, refusal, rendered, template, the

import topomend
from topomend.reconcile.settings import Settings

ABSENT = object()
"""Expected of what a value takes away, and found where nothing is."""

ON, OFF = True, False

CONTAINER = ("spec", "template", "spec", "containers", "0")
OPERATOR, AGENT = ("Deployment", "topomend-operator"), ("DaemonSet", "topomend-agent")
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
TERM = {"matchExpressions": [{"key": "example.com/numa", "operator": "Exists"}]}
NODES = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
TOLERATED = [{"key": "example.com/gpu", "operator": "Exists"}]
VOLUME = {"name": "certificates", "hostPath": {"path": "/etc/ssl", "type": "Directory"}}
MOUNT = {"name": "certificates", "mountPath": "/etc/ssl", "readOnly": True}


@dataclass(frozen=True)
class Case:
    """``value`` at ``path`` has ``expected`` at ``where`` in the object ``of`` a kind and a name.

    Expected of a list is one entry of it; without ``where`` it is the object's presence.
    """

    path: str
    value: Any
    of: tuple[str, str]
    where: tuple[str, ...] = ()
    expected: Any = None

    def __str__(self) -> str:
        return self.path


def _of_both(path: str, value: Any, where: tuple[str, ...], expected: Any) -> Iterator[Case]:
    yield Case(path, value, OPERATOR, where, expected)
    yield Case(path, value, AGENT, where, expected)


def _of_a_workload(name: str, of: tuple[str, str]) -> Iterator[Case]:
    pod, template_of = ("spec", "template", "spec"), ("spec", "template", "metadata")
    resources = {"limits": {"cpu": "3"}}
    yield Case(f"{name}.priorityClassName", "important", of, (*pod, "priorityClassName"), "important")
    yield Case(f"{name}.priorityClassName", "", of, (*pod, "priorityClassName"), ABSENT)
    yield Case(f"{name}.resources", resources, of, (*CONTAINER, "resources", "limits", "cpu"), "3")
    yield Case(f"{name}.nodeSelector", {"pool": "numa"}, of, (*pod, "nodeSelector", "pool"), "numa")
    yield Case(f"{name}.tolerations", TOLERATED, of, (*pod, "tolerations"), TOLERATED[0])
    yield Case(f"{name}.affinity", NODES, of, (*pod, "affinity", "nodeAffinity"), NODES["nodeAffinity"])
    yield Case(f"{name}.annotations", {"a": "b"}, of, ("metadata", "annotations"), {"a": "b"})
    yield Case(f"{name}.podAnnotations", {"a": "b"}, of, (*template_of, "annotations"), {"a": "b"})
    yield Case(f"{name}.podLabels", {"team": "hpc"}, of, (*template_of, "labels", "team"), "hpc")
    account = ("ServiceAccount", of[1])
    yield Case(f"{name}.serviceAccount.annotations", {"a": "b"}, account, ("metadata", "annotations"), {"a": "b"})
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    yield Case(f"{name}.extraEnv", [proxy], of, (*CONTAINER, "env"), proxy)
    yield Case(f"{name}.extraVolumes", [VOLUME], of, (*pod, "volumes"), VOLUME)
    yield Case(f"{name}.extraVolumeMounts", [MOUNT], of, (*CONTAINER, "volumeMounts"), MOUNT)


def _cases() -> Iterator[Case]:
    image, arguments = (*CONTAINER, "image"), (*CONTAINER, "args")
    version = f"v{topomend.__version__}"
    yield from _of_both("image.repository", "registry/numa", image, f"registry/numa:{version}")
    yield from _of_both("image.tag", "v9.9.9", image, "topomend:v9.9.9")
    yield from _of_both("image.digest", DIGEST, image, f"topomend@{DIGEST}")
    yield from _of_both("image.pullPolicy", "Always", (*CONTAINER, "imagePullPolicy"), "Always")
    secrets = ("spec", "template", "spec", "imagePullSecrets")
    yield from _of_both("imagePullSecrets", [{"name": "registry"}], secrets, {"name": "registry"})
    yield from _of_features(arguments)
    yield from _of_kubelets()
    yield from _of_workloads()
    yield from _of_both("log.level", "debug", arguments, "--log-level=debug")
    yield from _of_both("log.format", "json", arguments, "--log-format=json")
    yield from _of_metrics(arguments)
    yield from _of_the_release()


def _of_metrics(arguments: tuple[str, ...]) -> Iterator[Case]:
    health, webhook = {"name": "health", "containerPort": 8081}, {"name": "webhook", "containerPort": 8443}
    yield Case("metrics.enabled", OFF, OPERATOR, (*CONTAINER, "ports"), [health, webhook])
    yield Case("metrics.enabled", OFF, AGENT, (*CONTAINER, "ports"), [health])
    yield from _of_both("metrics.port", 9999, arguments, "--metrics-address=$(POD_IP):9999")
    yield from _of_both("metrics.port", 9999, (*CONTAINER, "ports"), {"name": "metrics", "containerPort": 9999})
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    selector = ("spec", "ingress", "0", "from", "0", "namespaceSelector")
    for name in ("topomend-operator", "topomend-agent"):
        yield Case("metrics.namespaceSelector", monitoring, ("NetworkPolicy", name), selector, monitoring)
        yield Case("metrics.monitor", "ServiceMonitor", ("ServiceMonitor", name))
        yield Case("metrics.monitor", "ServiceMonitor", ("Service", f"{name}-metrics"))
        yield Case("metrics.monitor", "PodMonitor", ("PodMonitor", name))
    annotations = ("spec", "template", "metadata", "annotations")
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": "9400"}
    yield from _of_both("metrics.monitor", "annotations", annotations, scraped)
    yield Case("metrics.rules", ON, ("PrometheusRule", "topomend-alerts"))


def _of_features(arguments: tuple[str, ...]) -> Iterator[Case]:
    yield Case("mode", "observe", OPERATOR, arguments, "--mode=observe")
    yield Case("gating.enabled", OFF, ("ClusterRoleBinding", "topomend-gating"))
    for name in ("steer", "brake", "creator", "changes"):
        yield Case(f"gating.{name}", OFF, ("MutatingWebhookConfiguration", f"topomend-{name}"))
    yield Case("preemption.enabled", OFF, ("ClusterRoleBinding", "topomend-preemption"))
    yield Case("scaleUp.enabled", OFF, ("ClusterRoleBinding", "topomend-scale-up"))
    yield Case("volumes.enabled", OFF, ("ClusterRoleBinding", "topomend-volumes"))
    yield Case("placeholders.enabled", ON, OPERATOR, arguments, "--placeholders")
    yield Case("defragment.enabled", ON, OPERATOR, arguments, "--defragment")
    yield Case("defragment.enabled", ON, ("ClusterRoleBinding", "topomend-defragment"))
    yield Case("startupTaint.enabled", ON, OPERATOR, arguments, "--startup-taint")
    yield Case("startupTaint.enabled", ON, ("ClusterRoleBinding", "topomend-startup-taint"))
    yield Case("claims.enabled", ON, OPERATOR, arguments, "--claims")
    yield Case("claims.enabled", ON, ("ClusterRoleBinding", "topomend-claims"))
    yield Case("kueue.enabled", ON, OPERATOR, arguments, "--kueue")
    yield Case("kueue.enabled", ON, ("ClusterRoleBinding", "topomend-kueue"))
    yield Case("nodeResourceTopology.enabled", ON, AGENT, arguments, "--node-resource-topology")
    yield Case("nodeFeatures.enabled", ON, AGENT, arguments, "--node-features=$(POD_NAMESPACE)")
    yield Case("openshift.enabled", ON, ("SecurityContextConstraints", "topomend-agent"))
    yield Case("networkPolicy.enabled", OFF, ("NetworkPolicy", "topomend-operator"))
    yield Case("networkPolicy.enabled", OFF, ("NetworkPolicy", "topomend-agent"))


def _of_workloads() -> Iterator[Case]:
    yield Case("operator.replicas", 3, OPERATOR, ("spec", "replicas"), 3)
    budget, of_budget = "operator.podDisruptionBudget", ("PodDisruptionBudget", "topomend-operator")
    yield Case(f"{budget}.enabled", OFF, of_budget)
    yield Case(f"{budget}.maxUnavailable", "50%", of_budget, ("spec", "maxUnavailable"), "50%")
    policy = "unhealthyPodEvictionPolicy"
    yield Case(f"{budget}.{policy}", "AlwaysAllow", of_budget, ("spec", policy), "AlwaysAllow")
    yield from _of_a_workload("operator", OPERATOR)
    spread = ("spec", "template", "spec", "topologySpreadConstraints")
    yield Case("operator.topologySpreadConstraints", SPREAD, OPERATOR, spread, SPREAD[0])
    yield Case("agent.namespace", "numa-agents", AGENT, ("metadata", "namespace"), "numa-agents")
    strategy = {"type": "OnDelete", "rollingUpdate": None}
    yield Case("agent.updateStrategy", strategy, AGENT, ("spec", "updateStrategy"), {"type": "OnDelete"})
    yield from _of_a_workload("agent", AGENT)
    options = {"type": "spc_t"}
    selinux = ("spec", "template", "spec", "securityContext", "seLinuxOptions")
    yield Case("agent.seLinuxOptions", options, AGENT, selinux, options)


def _of_the_release() -> Iterator[Case]:
    definition = ("CustomResourceDefinition", "relaunches.topomend.io")
    yield Case("crds.enabled", OFF, definition)
    yield Case("crds.keep", OFF, definition, ("metadata", "annotations"), ABSENT)
    yield Case("namespaces.create", OFF, ("Namespace", "topomend-agent"))
    yield Case("namespaceOverride", "numa", OPERATOR, ("metadata", "namespace"), "numa")
    yield Case("fullnameOverride", "acme-topomend", ("Deployment", "acme-topomend-operator"))
    yield Case("commonLabels", {"team": "hpc"}, OPERATOR, ("metadata", "labels", "team"), "hpc")
    yield Case("commonAnnotations", {"a": "b"}, OPERATOR, ("metadata", "annotations", "a"), "b")
    job = ("Job", "topomend-drain")
    yield Case("uninstall.drain", OFF, job)
    yield Case("uninstall.timeoutSeconds", 600, job, ("spec", "activeDeadlineSeconds"), 600)
    yield Case("test.timeoutSeconds", 30, ("Pod", "topomend-check"), (*CONTAINER[2:], "args"), "--wait=30")


def _of_kubelets() -> Iterator[Case]:
    arguments, mounts = (*CONTAINER, "args"), (*CONTAINER, "volumeMounts")
    path = "/host/etc/kubernetes/kubelet/config"
    yield Case("kubelet.layout", "bottlerocket", AGENT, arguments, f"--kubelet-config={path}")
    root = {"path": "/data/pod-resources", "type": "DirectoryOrCreate"}
    volume = {"name": "pod-resources", "hostPath": root}
    yield Case("kubelet.rootDir", "/data", AGENT, ("spec", "template", "spec", "volumes"), volume)
    yield Case("kubelet.state", {"enabled": True}, AGENT, arguments, "--kubelet-state=/kubelet-state")
    hidden = {"name": "no-file", "mountPath": "/kubelet-state/kubeconfig", "readOnly": True}
    yield Case("kubelet.state", {"enabled": True, "cover": ["kubeconfig"]}, AGENT, mounts, hidden)


CASES = list(_cases())

SETTINGS: dict[str, dict[str, Any]] = {
    "operator": {
        "workers": 8,
        "maxAttempts": 3,
        "relaunchRate": 0.5,
        "relaunchBurst": 7,
        "relistSeconds": 60,
        "recordHours": 48,
        "defragmentMinutes": 30,
        "defragmentMoves": 2,
        "defragmentRate": 1.5,
        "defragmentThreshold": 25,
        "defragmentPriority": 100,
        "webhookUrl": "https://numa.example.com/gate",
    },
    "agent": {"interval": 2, "kubeletCa": "/etc/ssl/kubelet.pem", "kubeletTlsVerify": "required"},
}

FLAGS = {
    "operator": [
        *("--workers=8", "--max-attempts=3", "--relaunch-rate=0.5", "--relaunch-burst=7", "--relist-seconds=60"),
        *("--record-hours=48", "--webhook-url=https://numa.example.com/gate"),
        *("--defragment-minutes=30", "--defragment-moves=2", "--defragment-rate=1.5", "--defragment-threshold=25"),
        "--defragment-priority=100",
    ],
    "agent": ["--interval=2", "--kubelet-ca=/etc/ssl/kubelet.pem", "--kubelet-tls-verify=required"],
}


def nested(path: str, value: Any) -> dict[str, Any]:
    """The value below the names of its path."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def merged(into: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the latter where both have a value."""
    for name, value in more.items():
        both = isinstance(into.get(name), dict) and isinstance(value, dict)
        into[name] = merged(into[name], value) if both else value
    return into


def _everything() -> dict[str, Any]:
    """All that the cases add, at once."""
    found: dict[str, Any] = {}
    for case in CASES:
        if case.value not in (False, "", "observe"):
            merged(found, nested(case.path, case.value))
    return merged(found, {name: {"settings": values} for name, values in SETTINGS.items()})


EVERYTHING = _everything()


@cache
def default() -> dict[tuple[str, str], Object]:
    return _by_name(rendered(hooks=True))


def _by_name(items: list[Object]) -> dict[tuple[str, str], Object]:
    return {(kind, name): item for (_, kind, _, name), item in by_key(items).items()}


def found(items: Mapping[tuple[str, str], Object], of: tuple[str, str], where: tuple[str, ...]) -> Any:
    """What is at a place of an object; ABSENT where the object or the place is not."""
    value: Any = items.get(of, ABSENT)
    for step in where:
        if value is ABSENT:
            return ABSENT
        value = value[int(step)] if step.isdigit() else value.get(step, ABSENT)
    return value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_value_does_what_it_says_and_its_default_does_not(case: Case) -> None:
    items = _by_name(rendered(hooks=True, **nested(case.path, case.value)))
    before, after = found(default(), case.of, case.where), found(items, case.of, case.where)
    if not case.where:
        assert (before is ABSENT) != (after is ABSENT)
    elif isinstance(after, list) and not isinstance(case.expected, list):
        assert case.expected in after
        assert before is ABSENT or case.expected not in before
    else:
        assert after == case.expected
        assert before != case.expected


@pytest.mark.parametrize("of", ["operator", "agent"])
def test_settings_become_flags(of: str) -> None:
    items = rendered(**nested(f"{of}.settings", SETTINGS[of]))
    kind = {"operator": "Deployment", "agent": "DaemonSet"}[of]
    written = pod_of(items, kind)["containers"][0]["args"]
    assert set(written) - set(pod_of(rendered(), kind)["containers"][0]["args"]) == set(FLAGS[of])


def test_every_setting_of_the_operator_is_a_value_or_the_charts_own() -> None:
    own = {"".join(word if not at else word.capitalize() for at, word in enumerate(name.split("_"))): name
           for name in (each.name for each in fields(Settings))}  # fmt: skip
    assert {own[name] for name in SETTINGS["operator"]} | SET_BY_THE_CHART == set(own.values())
    assert not {own[name] for name in SETTINGS["operator"]} & SET_BY_THE_CHART


def leaves(schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """The paths of all values that have none below them."""
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from leaves(inner, f"{at}{name}.")
        else:
            yield at + name


def test_each_value_has_a_case() -> None:
    tried = {case.path for case in CASES}
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path in leaves(schema):
        parent, _, name = path.rpartition(".")
        if not parent.endswith(".settings"):
            assert path in tried | {"global", "metrics.interval", "metrics.labels"} or parent == "kubelet.state", path
        else:
            assert name in SETTINGS[parent.removesuffix(".settings")], path


def test_values_have_the_comments_above_them() -> None:
    """Those whose names, known from other charts, do not say it all."""
    text = (CHART / "values.yaml").read_text()
    plain = {"tolerations", "affinity", "resources", "updateStrategy", "topologySpreadConstraints"}
    plain |= {"extraEnv", "extraVolumeMounts"}
    commented = dict(described(text))
    schema = json.loads((CHART / "values.schema.json").read_text())
    silent = {path for path in leaves(schema) if path not in commented and ".settings." not in path}
    assert {path.rpartition(".")[2] for path in silent} <= plain | {"global"}


def test_a_value_without_a_type_and_a_type_without_a_value_stop_the_generation() -> None:
    values = (CHART / "values.yaml").read_text()
    with pytest.raises(ValuesDisagree, match="speed"):
        values_schema(f"{values}speed: 3\n")
    with pytest.raises(ValuesDisagree, match=r"operator\.replicas"):
        values_schema(values.replace("  replicas: 2\n", ""))


# What combines


@pytest.mark.parametrize(
    ("kind", "endpoints"), [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")]
)
def test_a_monitor_has_the_interval_and_the_labels_by_which_a_prometheus_selects_it(kind: str, endpoints: str) -> None:
    labels = {"release": "kube-prometheus-stack"}
    items = rendered(metrics={"monitor": kind, "interval": "15s", "labels": labels, "rules": True})
    for name in ("topomend-operator", "topomend-agent"):
        monitor = the(items, kind, name)
        assert monitor["spec"][endpoints] == [{"port": "metrics", "interval": "15s"}]
        assert labels.items() <= monitor["metadata"]["labels"].items()
    assert labels.items() <= the(items, "PrometheusRule")["metadata"]["labels"].items()
    assert "release" not in the(items, "Deployment")["metadata"]["labels"]


def test_annotations_for_scraping_name_the_port_that_is_served_beside_those_of_the_user() -> None:
    items = rendered(metrics={"monitor": "annotations", "port": 9999}, operator={"podAnnotations": {"a": "b"}})
    annotations = the(items, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": "9999", "a": "b"}


@pytest.mark.parametrize("monitor", ["PodMonitor", "ServiceMonitor", "annotations"])
def test_without_metrics_nothing_asks_prometheus_to_scrape(monitor: str) -> None:
    off = {"enabled": False}
    assert by_key(rendered(metrics=off | {"monitor": monitor})) == by_key(rendered(metrics=off))


def test_the_rules_of_the_chart_are_those_of_the_file() -> None:
    rule = the(rendered(metrics={"rules": True}), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())


@pytest.mark.parametrize(
    ("kubelet", "mounts"),
    [
        ({"state": {"enabled": True}}, True),
        ({"state": {"enabled": True, "pki": False}}, False),
        ({"state": {"enabled": True}, "layout": "k3s"}, False),
        ({"state": {"enabled": True, "pki": True}, "layout": "k3s"}, True),
        ({"layout": "kubeadm"}, True),
        ({}, False),
    ],
    ids=str,
)
def test_the_cover_of_pki_is_where_the_root_folder_has_pki(kubelet: dict[str, Any], mounts: bool) -> None:
    container = pod_of(rendered(kubelet=kubelet), "DaemonSet")["containers"][0]
    assert ("/kubelet-state/pki" in [mount["mountPath"] for mount in container["volumeMounts"]]) == mounts


def test_a_digest_with_a_tag_names_both() -> None:
    image = pod_of(rendered(image={"tag": "v2", "digest": DIGEST}), "Deployment")["containers"][0]["image"]
    assert image == f"topomend:v2@{DIGEST}"


def test_all_pods_are_pulled_from_the_one_registry_with_its_secrets() -> None:
    items = rendered(hooks=True, image={"repository": "registry/numa"}, imagePullSecrets=[{"name": "key"}])
    pods = [_pod(item) for item in items if item["kind"] in ("Pod", "Job", "Deployment", "DaemonSet")]
    assert len(pods) == 4
    for pod in pods:
        assert pod["imagePullSecrets"] == [{"name": "key"}]
        assert {each["image"] for each in pod["containers"]} == {f"registry/numa:v{topomend.__version__}"}


def _pod(item: Object) -> Object:
    spec: Object = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
    return spec


def test_labels_and_annotations_reach_all_objects_and_no_selector() -> None:
    plain = _by_name(rendered(hooks=True))
    for name, item in _by_name(
        rendered(hooks=True, commonLabels={"team": "hpc"}, commonAnnotations={"cost": "7"})
    ).items():
        assert item["metadata"]["labels"]["team"] == "hpc", name
        if "helm.sh/hook" not in item["metadata"]["annotations"]:
            assert item["metadata"]["annotations"]["cost"] == "7", name
        assert item.get("spec", {}).get("selector") == plain[name].get("spec", {}).get("selector")


def test_the_startup_taint_and_a_users_tolerations_are_both_tolerated() -> None:
    items = rendered(startupTaint={"enabled": True}, operator={"tolerations": TOLERATED})
    tolerations = pod_of(items, "Deployment")["tolerations"]
    assert len(tolerations) == 3
    assert tolerations[-1:] == TOLERATED


def test_a_chart_that_contains_this_one_may_have_global_values() -> None:
    assert _by_name(rendered(hooks=True, **nested("global.imageRegistry", "registry"))) == default()


def test_observing_takes_no_taints_off() -> None:
    said = refusal(values={"mode": "observe", "defragment": {"enabled": True}})
    assert "defragment.enabled: an operator that observes moves no pod: use mode relaunch" in said
    said = refusal(values={"mode": "observe", "startupTaint": {"enabled": True}})
    assert "startupTaint.enabled: an operator that observes changes no node: use mode relaunch, or leave the" in said


def test_observing_answers_no_admission_check() -> None:
    said = refusal(values={"mode": "observe", "kueue": {"enabled": True}})
    assert "kueue.enabled: an operator that observes answers no admission check: use mode relaunch, or leave" in said


# Names


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ((), {}, ("topomend-system", "topomend-agent", ["topomend-agent", "topomend-system"])),
        (("--namespace=numa",), {}, ("numa", "topomend-agent", ["topomend-agent"])),
        (("--namespace=numa",), {"agent": {"namespace": "numa"}}, ("numa", "numa", [])),
        ((), {"namespaceOverride": "numa", "agent": {"namespace": "numa"}}, ("numa", "numa", ["numa"])),
        (("--namespace=other",), {"namespaceOverride": "hpc"}, ("hpc", "topomend-agent", ["hpc", "topomend-agent"])),
        ((), {"namespaces": {"create": False}}, ("topomend-system", "topomend-agent", [])),
    ],
    ids=str,
)
def test_a_release_may_be_in_any_namespace(
    helm: str, options: tuple[str, ...], values: dict[str, Any], expected: tuple[str, str, list[str]]
) -> None:
    operator, agents, created = expected
    items = rendered(*options, helm=helm, hooks=True, **values)
    assert the(items, "Deployment")["metadata"]["namespace"] == operator
    assert the(items, "DaemonSet")["metadata"]["namespace"] == agents
    assert sorted(item["metadata"]["name"] for item in items if item["kind"] == "Namespace") == created
    assert {item["metadata"].get("namespace", operator) for item in items} == {operator, agents}


def test_no_object_and_no_hook_is_named_as_it_was_called_before() -> None:
    items = rendered("--namespace=numa", hooks=True, fullnameOverride="acme-topomend", agent={"namespace": "numa"})
    for item in items:
        if item["kind"] != "CustomResourceDefinition":
            assert item["metadata"]["name"].startswith("acme-topomend-"), key(item)
            for subject in item.get("subjects", ()):
                assert subject["name"].startswith("acme-topomend-"), key(item)
                assert subject["namespace"] == "numa", key(item)


def test_without_metrics_no_other_flag_of_a_workload_is_missing() -> None:
    values = {key: value for key, value in EVERYTHING.items() if key != "metrics"}
    for kind in ("Deployment", "DaemonSet"):
        with_metrics, without = (
            pod_of(rendered(**values, metrics={"enabled": enabled}), kind)["containers"][0]["args"]
            for enabled in (True, False)
        )
        gone = [flag for flag in with_metrics if flag not in without]
        assert gone == ["--metrics-address=$(POD_IP):9400"], kind


def test_no_alert_is_installed_that_fires_for_ever_without_metrics() -> None:
    items = rendered(metrics={"enabled": False, "rules": True})
    assert "PrometheusRule" not in {item["kind"] for item in items}


@pytest.mark.parametrize("number", [-1_000_000, 1_000_000, 1_000_001])
def test_a_large_number_of_a_file_becomes_no_exponent(number: int) -> None:
    items = rendered(operator={"settings": {"defragmentPriority": number}})
    assert f"--defragment-priority={number}" in pod_of(items, "Deployment")["containers"][0]["args"]


def test_openshift_allows_the_volumes_that_agents_are_given() -> None:
    of_agents = [{"name": "ca", "configMap": {"name": "ca"}}]
    plain, given = (
        the(rendered(openshift={"enabled": True}, agent=agent), "SecurityContextConstraints")["volumes"]
        for agent in ({}, {"extraVolumes": of_agents})
    )
    assert set(given) - set(plain) == {"configMap", "secret"}


# The chart itself


@pytest.mark.parametrize("helm", HELMS)
def test_both_helms_render_everything_alike(helm: str) -> None:
    ours, others = (by_key(rendered(helm=each, hooks=True, **EVERYTHING)) for each in (helm, "helm4"))
    assert ours == others


def test_the_charts_version_is_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (topomend.__version__, f"v{topomend.__version__}")


def test_a_release_that_is_too_old_is_refused() -> None:
    assert "chart requires kubeVersion: >=1.30" in refusal("--kube-version=1.29.9")
    assert "kind: Deployment" in template("--kube-version=1.30.0-gke.1")
