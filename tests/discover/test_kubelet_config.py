from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from topomend.discover.kubelet_config import (
    KubeletConfig,
    config_fingerprint,
    read_kubelet_config,
    with_version,
)
from topomend.model.bitmask import mask_of
from topomend.model.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.replay.gates import NEWEST_MINOR, OLDEST_MINOR, read_gates

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**HEAD, **fields}))
    return path


def read(folder: Path, **fields: Any) -> KubeletConfig:
    return read_kubelet_config(config(folder, **fields))


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
        featureGates={"CPUManagerPolicyAlphaOptions": True, "SomethingElse": True},
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


def test_a_list_of_reserved_cpus_overrides_the_amounts(tmp_path: Path) -> None:
    kubelet_config = read(tmp_path, reservedSystemCPUs="0-1,8", kubeReserved={"cpu": "7"})
    assert kubelet_config.settings.reserved_cpus == mask_of([0, 1, 8])
    assert kubelet_config.settings.reserved_cpu_millis == 3000


def test_all_alpha_sets_the_gates_that_are_not_named(tmp_path: Path) -> None:
    gates = read(tmp_path, featureGates={"AllAlpha": True, "PodLevelResourceManagers": False}).settings.feature_gates
    assert gates["CPUManagerPolicyAlphaOptions"] is True
    assert gates["PodLevelResourceManagers"] is False
    assert "CPUManagerPolicyBetaOptions" not in gates


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
        ({"topologyManagerPolicy": "closest"}, "topologyManagerPolicy: 'closest' where one of none, best-effort"),
        ({"topologyManagerScope": "node"}, "topologyManagerScope: 'node' where one of container, pod"),
        ({"cpuManagerPolicy": "dynamic"}, "cpuManagerPolicy: 'dynamic' where one of none, static"),
        ({"memoryManagerPolicy": "static"}, "memoryManagerPolicy: 'static' where one of None, Static"),
        ({"cpuManagerPolicy": True}, "cpuManagerPolicy: True where a string"),
        ({"reservedSystemCPUs": 0}, "reservedSystemCPUs: 0 where a string"),
        ({"reservedSystemCPUs": "0-"}, "reservedSystemCPUs: '0-' is not an id"),
        ({"kubeReserved": {"cpu": 1}}, "kubeReserved.cpu: 1 where a string"),
        ({"kubeReserved": {"cpu": "lots"}}, "kubeReserved.cpu: 'lots' is not a quantity"),
        ({"systemReserved": ["cpu"]}, "systemReserved: ['cpu'] where an object"),
        ({"reservedMemory": {"numaNode": 0}}, "reservedMemory: {'numaNode': 0} where a list"),
        ({"reservedMemory": [{"numaNode": -1, "limits": {}}]}, None),
        ({"reservedMemory": [{"numaNode": -1, "limits": {"memory": "1Gi"}}]}, "reservedMemory[0].numaNode: -1 where"),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": True}}, "cpuManagerPolicyOptions['full-pcpus-only']: True"),
        ({"featureGates": {"AllBeta": "no"}}, "featureGates['AllBeta']: 'no' where true or false"),
        ({"evictionHard": {"memory.available": "some"}}, "evictionHard.memory.available: 'some' is not a quantity"),
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
    assert "reservedMemory adds up to 1Gi" in kubelet_config.problems[0]
    assert "to 1.1Gi" in kubelet_config.problems[0]


def test_drop_ins_are_merged_in_their_order_and_only_conf_files_count(tmp_path: Path) -> None:
    base = config(tmp_path, topologyManagerPolicy="restricted", kubeReserved={"cpu": "1", "memory": "1Gi"})
    drop_ins = tmp_path / "kubelet.conf.d"
    (drop_ins / "deeper").mkdir(parents=True)
    (drop_ins / "20-b.conf").write_text(yaml.safe_dump({**HEAD, "topologyManagerPolicy": "best-effort"}))
    (drop_ins / "10-a.conf").write_text(
        yaml.safe_dump({**HEAD, "topologyManagerPolicy": "single-numa-node", "kubeReserved": {"cpu": "2"}})
    )
    (drop_ins / "30-c.yaml").write_text(yaml.safe_dump({**HEAD, "topologyManagerPolicy": "none"}))
    settings = read_kubelet_config(base, drop_ins).settings
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
    (problem,) = read_kubelet_config(base, tmp_path / "conf.d").problems
    assert f"eviction threshold to {reserved}:" in problem


def test_a_drop_in_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "10.conf").write_text("kind: Pod\napiVersion: v1\n")
    kubelet_config = read_kubelet_config(config(tmp_path), tmp_path)
    assert kubelet_config.reason == "Unreadable"
    assert "10.conf is not a KubeletConfiguration" in kubelet_config.problems[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a KubeletConfiguration"),
        (b"[1, 2]", "is not a KubeletConfiguration"),
        (b"a: b: c", "is not YAML"),
        (b"\x00\xff\xfe", "is not YAML"),
        (b"[" * 50_000, "is not YAML"),
        (b"x: " + b"y" * (1 << 20), "is longer than"),
        (b"!!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    kubelet_config = read_kubelet_config(path)
    assert kubelet_config.reason == "Unreadable"
    assert words in kubelet_config.problems[0]
    assert str(path) in kubelet_config.problems[0]
    assert len(kubelet_config.problems[0]) < 500


def test_a_missing_file_and_a_missing_argument_are_two_things(tmp_path: Path) -> None:
    assert read_kubelet_config(None).reason == "NotGiven"
    assert read_kubelet_config(tmp_path / "no.yaml").reason == "Unreadable"
    assert "no.yaml is not there" in read_kubelet_config(tmp_path / "no.yaml").problems[0]
    assert "kubelet.d has no file" in read_kubelet_config(None, tmp_path / "kubelet.d").problems[0]
    (tmp_path / "kubelet.d").mkdir()
    assert "kubelet.d has no file" in read_kubelet_config(None, tmp_path / "kubelet.d").problems[0]


def test_a_drop_in_folder_that_is_not_there_is_remarked_and_the_file_followed(tmp_path: Path) -> None:
    path, drop_ins = config(tmp_path, cpuManagerPolicy="static"), tmp_path / "kubelet.d"
    kubelet_config = read_kubelet_config(path, drop_ins)
    assert (kubelet_config.reason, kubelet_config.settings.cpu_manager_policy) == ("", "static")
    assert kubelet_config.remarks == (f"folder {drop_ins} is not there: nothing is dropped in",)
    before = config_fingerprint(path, drop_ins=drop_ins)
    config(tmp_path, cpuManagerPolicy="none", maxPods=7)
    assert config_fingerprint(path, drop_ins=drop_ins) != before


def test_an_unknown_version_is_assumed_and_said_so() -> None:
    versioned = with_version(KubeletConfig(KubeletSettings()), "v1.34.1")
    assert (versioned.settings.version, versioned.remarks) == ("v1.34.1", ())
    assumed = with_version(KubeletConfig(KubeletSettings()), None)
    assert assumed.settings.version == DEFAULT_VERSION
    assert "is not known" in assumed.remarks[0]


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
    kubelet_config = KubeletConfig(KubeletSettings(feature_gates=gates))
    assert with_version(kubelet_config, version).lists_ended_pods is lists


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
