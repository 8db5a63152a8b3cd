import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.closed_folder import closed

from topomend.discover.kubelet_config import (
    KubeletConfig,
    config_fingerprint,
    read_kubelet_config,
)
from topomend.model.bitmask import mask_of
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.replay.gates import NEWEST_MINOR, OLDEST_MINOR, read_gates

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

read_files = partial(read_kubelet_config, version=DEFAULT_VERSION)


def config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **fields}))
    return path


def read(folder: Path, version: str = DEFAULT_VERSION, **fields: Any) -> KubeletConfig:
    return read_files(config(folder, **fields), version=version)


def test_an_empty_configuration_has_the_kubelets_defaults(tmp_path: Path) -> None:
    assert read(tmp_path) == KubeletConfig(KubeletSettings())


def test_everything_that_admission_depends_on_is_read(tmp_path: Path) -> None:
    kubelet_config = read(
        tmp_path,
        topologyManagerPolicy="single-numa-node",
        topologyManagerScope="pod",
        topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"},
        cpuManagerPolicy="static",
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
        memoryManagerPolicy="Static",
        kubeReserved={"cpu": "500m", "memory": "256Mi"},
        systemReserved={"cpu": "1"},
        evictionHard={"memory.available": "100Mi"},
        reservedMemory=[
            {"numaNode": 0, "limits": {"memory": "300Mi"}},
            {"numaNode": 1, "limits": {"memory": "56Mi"}},
        ],
        featureGates={"CPUManagerPolicyAlphaOptions": True, "CustomCPUCFSQuotaPeriod": True},
    )
    assert kubelet_config == KubeletConfig(
        KubeletSettings(
            topology_manager_policy="single-numa-node",
            topology_manager_scope="pod",
            topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
            cpu_manager_policy="static",
            cpu_manager_policy_options={"full-pcpus-only": "true"},
            memory_manager_policy="Static",
            reserved_cpu_millis=1500,
            reserved_memory=(MemoryReservation(0, "memory", 300 << 20), MemoryReservation(1, "memory", 56 << 20)),
            feature_gates={"CPUManagerPolicyAlphaOptions": True},
        )
    )


@pytest.mark.parametrize(
    ("kube", "system", "millis"),
    [("999500u", "500u", 1000), ("500m", "0.5", 1000), ("1n", "1n", 1), ("1.0001", "0", 1001)],
)
def test_reserved_amounts_are_rounded_up_once_they_are_added(
    tmp_path: Path, kube: str, system: str, millis: int
) -> None:
    settings = read(tmp_path, kubeReserved={"cpu": kube}, systemReserved={"cpu": system}).settings
    assert settings.reserved_cpu_millis == millis


def test_a_list_of_reserved_cpus_overrides_the_amounts(tmp_path: Path) -> None:
    kubelet_config = read(tmp_path, reservedSystemCPUs="0-1,8", kubeReserved={"cpu": "7"})
    assert kubelet_config.settings.reserved_cpus == mask_of([0, 1, 8])
    assert kubelet_config.settings.reserved_cpu_millis == 3000


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ("v1.36.3", {"AllAlpha": True}, {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": None}),
        ("v1.36.3", {"AllAlpha": True, "PodLevelResourceManagers": False}, {"PodLevelResourceManagers": False}),
        ("v1.36.3", {"AllAlpha": True}, {"PodLevelResourceManagers": True}),
        ("v1.37.2", {"AllAlpha": True}, {"PodLevelResourceManagers": None}),
        ("v1.37.2", {"AllBeta": True}, {"PodLevelResourceManagers": True}),
        ("v1.33.5", {"AllAlpha": True}, {"PodLevelResources": True, "InPlacePodVerticalScaling": None}),
        ("v1.34.4", {"AllBeta": False}, {"PodLevelResources": False, "InPlacePodVerticalScaling": False}),
        ("v1.31.14", {"AllBeta": False}, {"MemoryManager": False, "SidecarContainers": False}),
        ("v1.33.5", {"AllBeta": False}, {"MemoryManager": None, "SidecarContainers": None}),
        ("v1.30.14", {"AllBeta": False}, {"CPUManagerPolicyOptions": False, "TopologyManagerPolicyOptions": False}),
        ("v1.31.14", {"AllAlpha": True, "AllBeta": True}, {"PodLevelResources": None, "DRAExtendedResource": None}),
    ],
)
def test_all_alpha_and_all_beta_set_the_gates_of_their_stage_in_the_kubelets_release(
    tmp_path: Path, version: str, given: dict[str, bool], expected: dict[str, bool | None]
) -> None:
    gates = read(tmp_path, version, featureGates=given).settings.feature_gates
    assert {name: gates.get(name) for name in expected} == expected
    assert not gates.keys() & {"AllAlpha", "AllBeta"}, "an operator of any release reads gates by their own names"


class Asked(Mapping[str, bool]):
    """Gates of which none is set; keeps the names that were asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> bool:
        self.names.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_every_gate_that_replay_asks_for_is_published(tmp_path: Path) -> None:
    asked = Asked()
    for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
        read_gates(KubeletSettings(version=f"v1.{minor}.0", feature_gates=asked))
    assert len(asked.names) > 10
    gates = read(tmp_path, featureGates=dict.fromkeys(asked.names, False)).settings.feature_gates
    assert gates == dict.fromkeys(asked.names, False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"topologyManagerPolicy": "closest"},
            '(--topology-manager-policy) "closest" must be one of',
        ),
        ({"topologyManagerScope": "node"}, 'topologyManagerScope (--topology-manager-scope) "node" must be one of'),
        ({"cpuManagerPolicy": "dynamic"}, "cpuManagerPolicy: 'dynamic' where one of none, static"),
        ({"memoryManagerPolicy": "static"}, "memoryManagerPolicy: 'static' where one of None, Static"),
        ({"cpuManagerPolicy": True}, "cpuManagerPolicy: true where a string"),
        ({"reservedSystemCPUs": 0}, "reservedSystemCPUs: 0 where a string"),
        (
            {"reservedSystemCPUs": "0-"},
            '(--reserved-cpus) 0-, error: strconv.Atoi: parsing "": invalid',
        ),
        ({"kubeReserved": {"cpu": 1}}, "kubeReserved['cpu']: 1 where a string"),
        (
            {"kubeReserved": {"cpu": "lots"}},
            '--kube-reserved value failed to parse: failed to parse quantity "lots"',
        ),
        ({"systemReserved": ["cpu"]}, "systemReserved: a list where an object"),
        ({"reservedMemory": {"numaNode": 0}}, "reservedMemory: an object where a list"),
        ({"reservedMemory": [{"numaNode": -1, "limits": {}}]}, None),
        ({"reservedMemory": [{"numaNode": -1, "limits": {"memory": "1Gi"}}]}, "reservedMemory[0].numaNode: -1 where"),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": True}}, "cpuManagerPolicyOptions['full-pcpus-only']: true"),
        ({"featureGates": {"AllBeta": "no"}}, "featureGates['AllBeta']: 'no' where true or false"),
        ({"evictionHard": {"memory.available": "some"}}, "quantities must match the regular expression"),
    ],
)
def test_a_field_that_the_kubelet_would_refuse_is_named(
    tmp_path: Path, fields: dict[str, Any], words: str | None
) -> None:
    kubelet_config = read(tmp_path, **fields)
    if words is None:
        assert kubelet_config.reason == ""
        return
    assert kubelet_config.reason == "Invalid"
    assert any(words in problem for problem in kubelet_config.problems), kubelet_config.problems


def test_a_policy_that_is_not_known_is_shown_as_it_is_written(tmp_path: Path) -> None:
    assert read(tmp_path, topologyManagerPolicy="closest").settings.topology_manager_policy == "closest"


def test_memory_reservations_must_add_up_to_what_is_kept_from_pods(tmp_path: Path) -> None:
    kubelet_config = read(
        tmp_path,
        memoryManagerPolicy="Static",
        kubeReserved={"memory": "1Gi"},
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    )
    assert kubelet_config.reason == "Invalid"
    assert 'the total amount "1Gi" of type "memory" is not equal to the value "1124Mi"' in kubelet_config.problems[0]


def test_drop_ins_are_merged_in_their_order_and_only_conf_files_count(tmp_path: Path) -> None:
    base = config(tmp_path, topologyManagerPolicy="restricted", kubeReserved={"cpu": "1", "memory": "1Gi"})
    drop_ins = tmp_path / "kubelet.conf.d"
    (drop_ins / "deeper").mkdir(parents=True)
    (drop_ins / "20-b.conf").write_text(yaml.safe_dump({**HEAD, "topologyManagerPolicy": "best-effort"}))
    (drop_ins / "10-a.conf").write_text(
        yaml.safe_dump({**HEAD, "topologyManagerPolicy": "single-numa-node", "kubeReserved": {"cpu": "2"}})
    )
    (drop_ins / "30-c.yaml").write_text(yaml.safe_dump({**HEAD, "topologyManagerPolicy": "none"}))
    settings = read_files(base, drop_ins).settings
    assert settings.topology_manager_policy == "best-effort"
    assert settings.reserved_cpu_millis == 2000


@pytest.mark.parametrize(
    ("fields", "drop_in", "reserved"),
    [
        ({}, {}, "100Mi"),
        ({}, {"evictionHard": {"nodefs.available": "10%"}}, "100Mi"),
        ({}, {"evictionHard": {"memory.available": "1Gi"}}, "1Gi"),
        ({"evictionHard": {"nodefs.available": "10%"}}, {}, "0"),
        ({"evictionHard": {"nodefs.available": "10%"}, "mergeDefaultEvictionSettings": True}, {}, "100Mi"),
        ({"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": True}, {}, "1Gi"),
    ],
)
def test_the_files_default_threshold_is_filled_in_before_drop_ins_are_merged(
    tmp_path: Path, fields: dict[str, Any], drop_in: dict[str, Any], reserved: str
) -> None:
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "7Gi"}}]}
    base = config(tmp_path, **memory, **fields)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "1.conf").write_text(yaml.safe_dump({**HEAD, **drop_in}))
    (problem,) = read_files(base, tmp_path / "conf.d").problems
    assert f'is not equal to the value "{reserved}" determined by Node Allocatable feature' in problem


def test_a_drop_in_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "10.conf").write_text("kind: Pod\napiVersion: v1\n")
    kubelet_config = read_files(config(tmp_path), tmp_path)
    assert kubelet_config.reason == "Unreadable"
    assert "10.conf is not a KubeletConfiguration" in kubelet_config.problems[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a KubeletConfiguration"),
        (b"[1, 2]", "is not a KubeletConfiguration"),
        (b"a: b: c", "is not YAML"),
        (b"\x00\xff\xfe", "is not YAML"),
        (b"[" * 50_000, "topomend cannot tell how the kubelet reads this: more than 500 levels of nesting"),
        (b"x: " + b"y" * (1 << 20), "is longer than"),
        (b"!!python/object/apply:os.system ['true']", "is not a KubeletConfiguration"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    kubelet_config = read_files(path)
    assert kubelet_config.reason == "Unreadable"
    assert words in kubelet_config.problems[0]
    assert str(path) in kubelet_config.problems[0]
    assert len(kubelet_config.problems[0]) < 500


def test_a_missing_file_and_a_missing_argument_are_two_things(tmp_path: Path) -> None:
    assert read_files(None).reason == "NotGiven"
    assert read_files(tmp_path / "no.yaml").reason == "Unreadable"
    assert "no.yaml is not there" in read_files(tmp_path / "no.yaml").problems[0]
    assert "kubelet.d has no file" in read_files(None, tmp_path / "kubelet.d").problems[0]
    (tmp_path / "kubelet.d").mkdir()
    assert "kubelet.d has no file" in read_files(None, tmp_path / "kubelet.d").problems[0]


def test_a_drop_in_folder_that_is_not_there_is_remarked_and_the_file_followed(tmp_path: Path) -> None:
    path, drop_ins = config(tmp_path, cpuManagerPolicy="static"), tmp_path / "kubelet.d"
    kubelet_config = read_files(path, drop_ins)
    assert (kubelet_config.reason, kubelet_config.settings.cpu_manager_policy) == ("", "static")
    assert kubelet_config.remarks == (f"folder {drop_ins} is not there: nothing is dropped in",)
    before = config_fingerprint(path, drop_ins=drop_ins)
    config(tmp_path, cpuManagerPolicy="none", maxPods=7)
    assert config_fingerprint(path, drop_ins=drop_ins) != before


def test_drop_ins_in_a_folder_that_may_not_be_entered_are_not_taken_for_none(tmp_path: Path) -> None:
    path = config(tmp_path)
    with closed(tmp_path / "closed") as folder:
        problem = f"folder {folder}/d cannot be read (Permission denied)"
        kubelet_config = read_files(path, folder / "d")
        assert config_fingerprint(path, drop_ins=folder / "d") == problem
    assert (kubelet_config.reason, kubelet_config.problems) == (
        "Unreadable",
        (f"the kubelet's configuration {problem}",),
    )


@pytest.mark.parametrize(
    ("version", "gates", "lists"),
    [
        ("v1.33.5", {}, True),
        ("v1.34.0", {}, False),
        ("v1.34.0", {"KubeletPodResourcesListUseActivePods": False}, True),
    ],
)
def test_pods_that_have_ended_are_listed_before_1_34_or_without_the_gate(
    version: str, gates: dict[str, bool], lists: bool
) -> None:
    assert KubeletConfig(KubeletSettings(version, feature_gates=gates)).lists_ended_pods is lists


def test_the_fingerprint_follows_every_file(tmp_path: Path) -> None:
    path, drop_ins = config(tmp_path), tmp_path / "d"
    drop_ins.mkdir()
    first = config_fingerprint(path, drop_ins=drop_ins)
    assert config_fingerprint(path, drop_ins=drop_ins) == first
    (drop_ins / "10.conf").write_text("")
    second = config_fingerprint(path, drop_ins=drop_ins)
    assert second != first
    path.write_text("changed")
    assert config_fingerprint(path, drop_ins=drop_ins) not in (first, second)


# Files that other readers of YAML and JSON read otherwise

TEXT = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"


def read_text(folder: Path, text: str, drop_in: str | None = None) -> KubeletConfig:
    (folder / "kubelet.yaml").write_text(text)
    if drop_in is None:
        return read_files(folder / "kubelet.yaml")
    (folder / "d").mkdir()
    (folder / "d" / "10.conf").write_text(drop_in)
    return read_files(folder / "kubelet.yaml", folder / "d")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**HEAD, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}, indent="\t"),
        f"{TEXT}cpuManagerPolicy:\tstatic\nreservedSystemCPUs: 0-1\n",
        f"{TEXT}cpuManagerPolicy: static\t# why\nreservedSystemCPUs: 0-1\t\n",
        f"---\n{TEXT}cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n---\n",
        f"{TEXT}cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n---\n{TEXT}reservedSystemCPUs: '7'\n",
    ],
    ids=["JSON with tabs", "a tab after a colon", "a tab before a comment", "dashes at the end", "two documents"],
)
def test_tabs_and_further_documents_are_read_as_the_kubelet_reads_them(tmp_path: Path, text: str) -> None:
    kubelet_config = read_text(tmp_path, text)
    assert (kubelet_config.reason, kubelet_config.settings.cpu_manager_policy) == ("", "static")
    assert kubelet_config.settings.reserved_cpus == 0b11


def test_names_in_drop_ins_match_in_any_case(tmp_path: Path) -> None:
    drop_in = f"{TEXT}reservedSystemCpus: 0-1\ntopologymanagerpolicy: restricted\n"
    settings = read_text(tmp_path, f"{TEXT}cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n", drop_in).settings
    assert (settings.reserved_cpus, settings.topology_manager_policy) == (0b11, "restricted")


HEAD = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}


@pytest.mark.parametrize(("version", "starts"), [("v1.31.13", False), ("v1.32.6", True)])
def test_an_empty_policy_of_a_drop_in_is_the_default_since_1_32(tmp_path: Path, version: str, starts: bool) -> None:
    (tmp_path / "kubelet.json").write_text(json.dumps({**HEAD, "topologyManagerPolicy": "restricted"}))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "10.conf").write_text(json.dumps({**HEAD, "topologyManagerPolicy": ""}))
    read = read_files(tmp_path / "kubelet.json", tmp_path / "d", version=version)
    assert (read.reason == "") == starts
    if starts:
        assert read.settings.topology_manager_policy == "none"
    else:
        assert 'topologyManagerPolicy (--topology-manager-policy) "" must be one of' in read.problems[0]


def test_a_zero_of_a_flag_is_no_default(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.json"
    path.write_text(json.dumps({**HEAD, "syncFrequency": "0s"}))
    assert read_files(path).reason == ""
    assert "invalid sync frequency 0" in read_files(path, flags={"sync-frequency": ["0"]}).problems[0]


@pytest.mark.parametrize("text", ["a: [!, b]", "a: 1\n\ufeffb: 2"])
def test_a_file_that_the_kubelet_may_read_otherwise_is_refused_in_these_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubelet.yaml"
    path.write_text(text)
    assert f"{path}: topomend cannot tell how the kubelet reads this: line " in read_files(path).problems[0]


@pytest.mark.parametrize("cpus", ["0, 1", "0,1 ", "0,1,", ",0,1", "0,,1", "0\n", "0-1\t", "1-0", "0-1-2"])
def test_a_list_of_cpus_that_the_kubelet_cannot_parse_is_refused(tmp_path: Path, cpus: str) -> None:
    kubelet_config = read(tmp_path, cpuManagerPolicy="static", reservedSystemCPUs=cpus)
    assert kubelet_config.reason == "Invalid"
    assert "a kubelet with this configuration does not start: " in kubelet_config.problems[0]
    assert "unable to parse reservedSystemCPUs (--reserved-cpus)" in kubelet_config.problems[0]


def test_a_boolean_among_options_is_refused_and_nothing_else_is_lost(tmp_path: Path) -> None:
    kubelet_config = read(
        tmp_path,
        cpuManagerPolicy="static",
        reservedSystemCPUs="0,4",
        cpuManagerPolicyOptions={"full-pcpus-only": "true", "align-by-socket": True},
    )
    assert "cpuManagerPolicyOptions['align-by-socket']: true where a string belongs" in kubelet_config.problems[0]
    assert kubelet_config.settings.reserved_cpus == 0b10001


@pytest.mark.parametrize("fields", [{"maxPods": "many"}, {"syncFrequency": 5}, {"authentication": {"x509": "a"}}])
def test_a_wrong_type_in_any_field_keeps_a_kubelet_from_starting(tmp_path: Path, fields: dict[str, Any]) -> None:
    (problem,) = read(tmp_path, **fields).problems
    assert next(iter(fields)) in problem
    assert "the kubelet does not start with this" in problem


def test_a_field_that_no_kubelet_knows_is_named_with_the_nearest(tmp_path: Path) -> None:
    kubelet_config = read(tmp_path, reservedCpus="0", reservedSystemCpus="1", authentication={"webhok": {}})
    assert (kubelet_config.reason, kubelet_config.settings.reserved_cpus) == ("", None)
    remarks = " ".join(kubelet_config.remarks)
    assert "knows reservedSystemCpus, which is passed over: did you mean reservedSystemCPUs?" in remarks
    assert "knows authentication.webhok, which is passed over: did you mean webhook?" in remarks
    assert "reservedCpus" in remarks


def test_a_name_that_stands_twice_is_remarked_in_the_file_and_refused_in_a_drop_in(tmp_path: Path) -> None:
    twice = f"{TEXT}topologyManagerPolicy: none\ntopologyManagerPolicy: restricted\n"
    kubelet_config = read_text(tmp_path, twice)
    assert kubelet_config.settings.topology_manager_policy == "restricted"
    assert kubelet_config.remarks == ("topologyManagerPolicy stands twice: the last one counts",)
    refused = read_text(tmp_path, TEXT, twice)
    assert (refused.reason, "topologyManagerPolicy" in refused.problems[0]) == ("Unreadable", True)


def test_what_a_drop_in_means_depends_on_the_release(tmp_path: Path) -> None:
    other = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\ntopologyManagerPolicy: restricted\n"
    assert read_text(tmp_path, TEXT, other).reason == "Unreadable"
    older = read_files(tmp_path / "kubelet.yaml", tmp_path / "d", version="v1.30.14")
    assert (older.reason, older.settings.topology_manager_policy) == ("", "restricted")
    assert older.settings.version == "v1.30.14"


def test_a_folder_of_drop_ins_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "10.conf").write_text(f"{TEXT}topologyManagerPolicy: restricted\n")
    (tmp_path / "d").symlink_to("real")
    kubelet_config = read_files(config(tmp_path), tmp_path / "d")
    assert kubelet_config.settings.topology_manager_policy == "none"
    assert "is a link, which the kubelet does not follow" in kubelet_config.remarks[0]
    (tmp_path / "real" / "20.conf").symlink_to(tmp_path / "real")
    assert read_files(config(tmp_path), tmp_path / "real").reason == "Unreadable"
