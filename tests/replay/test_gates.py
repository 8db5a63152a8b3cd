"""The rules that a version and its gates enable. Differences between versions in treating pods: test_versions."""

import pytest

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay.gates import Gates, read_gates


def gates(version: str = "v1.36.3", /, **named: bool) -> Gates:
    return read_gates(KubeletSettings(version=version, feature_gates=named))


@pytest.mark.parametrize("version", ["v1.30.0", "v1.36.3", "1.36.0", "v1.32.1", "v1.34.0+k3s1", "v1.37.2-gke.100"])
def test_known_versions_are_modelled(version: str) -> None:
    assert gates(version).unmodelled == ()


@pytest.mark.parametrize(
    ("version", "replayed"),
    [("v1.29.15", "v1.30"), ("v2.0.0", "v1.37"), ("nonsense", "v1.37")],
)
def test_others_are_said_not_to_be_and_get_the_rules_of_the_nearest(version: str, replayed: str) -> None:
    warning = f"kubelet version {version}: the rules of {replayed} were replayed"
    assert gates(version).unmodelled == (warning,)
    assert gates(version)._replace(unmodelled=()) == gates(f"{replayed}.0")


COMING = {
    "preferred_first",
    "compares_own_sizes",
    "spreads_over_cores",
    "takes_whole_caches_first",
    "keeps_combinations",
    "remainder_in_groups",
    "spreads_like_hint",
    "returns_undivided",
    "restores_pods",
    "counts_memory_of_init",
    "restores_by_container",
    "resize_names_mode",
}
"""The rules of the next release. Gates names the source of each."""


@pytest.mark.parametrize("version", ["v1.38.0-beta.0", "v1.38.1", "v1.360"])
def test_a_newer_kubelet_has_the_next_release_s_rules_too_and_that_is_said(version: str) -> None:
    newest = gates("v1.37.2")
    changed = {field for field in Gates._fields if getattr(gates(version), field) != getattr(newest, field)}
    assert changed == COMING | {"unmodelled"}
    assert not any(getattr(newest, field) for field in COMING)
    (remark,) = gates(version).unmodelled
    assert remark.startswith(f"kubelet version {version}: the rules of v1.37 were replayed, and those for pods of ")
    assert remark.endswith(" v1.38.0-beta.0, which is not released")


def test_no_version_is_unknown() -> None:
    assert gates("").unmodelled == ("kubelet version unknown: the rules of v1.37 were replayed",)


@pytest.mark.parametrize(
    ("version", "gate", "warns"),
    [
        ("v1.32.0", "SidecarContainers", True),
        ("v1.36.0", "SidecarContainers", True),
        ("v1.31.0", "MemoryManager", False),
        ("v1.32.0", "MemoryManager", True),
        ("v1.32.0", "CPUManagerPolicyOptions", False),
        ("v1.33.0", "CPUManagerPolicyOptions", True),
    ],
)
def test_a_gate_that_is_off_and_not_modelled_is_said(version: str, gate: str, warns: bool) -> None:
    expected = (f"feature gate {gate}=false with kubelet {version[:5]}",) if warns else ()
    assert gates(version, **{gate: False}).unmodelled == expected
    assert gates(version, **{gate: True}).unmodelled == ()


SINCE = {
    "device_nodes_only": 36,
    "finds_any_running": 36,
    "lower_case_levels": 33,
    "has_best_effort_memory": 32,
    "refuses_mixed_groups": 32,
    "skips_blank_memory": 37,
    "discovers_cpus_always": 32,
    "reports_no_free_cores": 32,
    "keeps_assigned_cpus": 37,
    "cache_takes_started_cores": 34,
    "bounded_distribution": 37,
    "qos_by_container": 37,
    "resize_judges_resource": 34,
}
"""The first version of each rule that no gate switches; Gates names the source of each."""


@pytest.mark.parametrize(("rule", "first"), SINCE.items())
def test_a_rule_holds_from_its_first_version_on(rule: str, first: int) -> None:
    for minor in range(30, 38):
        assert getattr(gates(f"v1.{minor}.0"), rule) == (minor >= first), minor


def test_before_1_32_kubelets_keep_what_the_last_admitted_pod_held() -> None:
    assert [minor for minor in range(30, 38) if gates(f"v1.{minor}.0").keeps_last_admitted] == [30, 31]


def test_pod_level_managers_need_pod_level_resources_and_their_version() -> None:
    assert gates(PodLevelResourceManagers=True).pod_level_resource_managers
    assert gates("v1.37.0", PodLevelResourceManagers=True).pod_level_resource_managers
    assert not gates("v1.37.0").pod_level_resource_managers
    assert not gates("v1.35.0", PodLevelResourceManagers=True).pod_level_resource_managers
    assert not gates(PodLevelResourceManagers=True, PodLevelResources=False).pod_level_resource_managers


@pytest.mark.parametrize(
    ("version", "default", "forced"),
    [("v1.31.0", False, False), ("v1.32.0", False, True), ("v1.33.9", False, True), ("v1.34.0", True, True)],
)
def test_pod_level_resources_exist_since_1_32_and_are_on_since_1_34(version: str, default: bool, forced: bool) -> None:
    assert gates(version).pod_level_resources == default
    assert not gates(version, PodLevelResources=False).pod_level_resources
    assert gates(version, PodLevelResources=True).pod_level_resources == forced


@pytest.mark.parametrize(
    ("version", "off", "on", "managers"),
    [
        ("v1.33.0", False, False, False),
        ("v1.34.0", False, True, True),
        ("v1.35.0", False, True, True),
        ("v1.36.0", True, True, False),
        ("v1.37.0", True, True, False),
    ],
)
def test_who_skips_pods_with_pod_level_resources(version: str, off: bool, on: bool, managers: bool) -> None:
    assert gates(version, PodLevelResources=False).skips_pod_level_resources == off
    assert gates(version, PodLevelResources=True).skips_pod_level_resources == on
    both = gates(version, PodLevelResources=True, PodLevelResourceManagers=True)
    assert both.skips_pod_level_resources == managers


def test_blank_pod_level_resources_count_before_1_37_or_without_its_gate() -> None:
    fix = "PodLevelResourcesFixKubeletQOSClass"
    assert gates("v1.36.0").blank_pod_resources_count
    assert not gates("v1.37.0").blank_pod_resources_count
    assert gates("v1.37.0", **{fix: False}).blank_pod_resources_count


def test_gates_of_the_managers_count_until_they_are_locked() -> None:
    assert gates("v1.31.0").memory_manager
    assert not gates("v1.31.0", MemoryManager=False).memory_manager
    assert gates("v1.32.0", MemoryManager=False).memory_manager
    assert gates("v1.32.0").cpu_options
    assert not gates("v1.32.0", CPUManagerPolicyOptions=False).cpu_options
    assert gates("v1.33.0", CPUManagerPolicyOptions=False).cpu_options
    assert gates("v1.37.0").topology_options
    assert not gates("v1.37.0", TopologyManagerPolicyOptions=False).topology_options


def test_levels_of_options_have_gates() -> None:
    usual = gates()
    assert (usual.alpha_options, usual.beta_options) == (False, True)
    assert (usual.topology_alpha_options, usual.topology_beta_options) == (False, True)
    turned = gates(
        CPUManagerPolicyAlphaOptions=True,
        CPUManagerPolicyBetaOptions=False,
        TopologyManagerPolicyAlphaOptions=True,
        TopologyManagerPolicyBetaOptions=False,
    )
    assert (turned.alpha_options, turned.beta_options) == (True, False)
    assert (turned.topology_alpha_options, turned.topology_beta_options) == (True, False)


CPU_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("v1.30.14", ("beta", "alpha", "alpha")),
        ("v1.31.14", ("beta", "alpha", "alpha", "alpha")),
        ("v1.32.0", ("beta", "alpha", "alpha", "alpha", "alpha", "alpha")),
        ("v1.33.0", ("stable", "beta", "alpha", "alpha", "beta", "alpha")),
        ("v1.34.0", ("stable", "beta", "alpha", "alpha", "beta", "beta")),
        ("v1.35.0", ("stable", "beta", "alpha", "alpha", "stable", "beta")),
        ("v1.36.3", ("stable", "beta", "alpha", "alpha", "stable", "stable")),
        ("v1.37.1", ("stable", "beta", "alpha", "alpha", "stable", "stable")),
    ],
)
def test_options_of_the_cpu_manager_grow_up(version: str, levels: tuple[str, ...]) -> None:
    assert gates(version).cpu_option_levels == dict(zip(CPU_OPTIONS, levels, strict=False))


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("v1.30.14", ("beta",)),
        ("v1.31.14", ("beta", "beta")),
        ("v1.32.0", ("stable", "beta")),
        ("v1.34.0", ("stable", "beta")),
        ("v1.35.0", ("stable", "stable")),
        ("v1.37.1", ("stable", "stable")),
    ],
)
def test_options_of_the_topology_manager_grow_up(version: str, levels: tuple[str, ...]) -> None:
    names = ("prefer-closest-numa-nodes", "max-allowable-numa-nodes")
    assert gates(version).topology_option_levels == dict(zip(names, levels, strict=False))


@pytest.mark.parametrize(("minor", "checks"), [(33, True), (35, True), (36, False), (37, False)])
def test_what_is_too_large_for_the_node_is_infeasible_until_1_35(minor: int, checks: bool) -> None:
    assert gates(f"v1.{minor}.0").resize_checks_node == checks


def test_exclusive_cpus_and_memory_are_resized_by_their_gates_alone() -> None:
    exclusive = "InPlacePodVerticalScalingExclusive"
    for minor in range(33, 38):
        version = f"v1.{minor}.0"
        assert not gates(version).resize_exclusive_cpus
        assert not gates(version).resize_exclusive_memory
        assert gates(version, **{f"{exclusive}CPUs": True}).resize_exclusive_cpus
        assert gates(version, **{f"{exclusive}CPUs": True}).resize_exclusive_memory == (minor == 33)
        assert gates(version, **{f"{exclusive}Memory": True}).resize_exclusive_memory == (minor > 33)


def test_pods_with_pod_level_resources_are_resized_only_where_these_count() -> None:
    gate = "InPlacePodLevelResourcesVerticalScaling"
    assert not gates("v1.34.0", **{gate: True}).resize_pod_level
    assert not gates("v1.36.0", PodLevelResources=False).resize_pod_level
