"""A configuration of k3s or RKE2 is judged as the kubelet that they start with it."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from topomend.cli.input.k3s_config import _merged, of_k3s_config
from topomend.cli.main import main

MACHINE = "numa:2 cores:4 threads:2 memory:16Gi"
STATIC = [
    "topology-manager-policy=single-numa-node",
    "cpu-manager-policy=static",
    "reserved-cpus=0,8",
    "memory-manager-policy=Static",
    "kube-reserved=memory=1Gi",
]


def lint(*arguments: str, version: str = "1.37.2") -> Result:
    return lint_of({"write-kubeconfig-mode": "0644", "kubelet-arg": list(arguments)}, version)


def lint_of(content: dict[str, Any], version: str = "1.37.2") -> Result:
    command = ["lint", "-", "--machine", MACHINE, "--kubelet-version", version]
    return CliRunner().invoke(main, command, input=yaml.safe_dump(content))


@pytest.mark.parametrize("version", ["1.31.13", "1.32.6", "1.37.2"])
def test_what_k3s_sets_about_evictions_leaves_memory_without_a_threshold(version: str) -> None:
    assert lint(*STATIC, "reserved-memory=0:memory=1Gi", version=version).output.startswith(
        f"A kubelet v{version} starts with stdin"
    )
    assert "does not start" in lint(*STATIC, "reserved-memory=0:memory=1124Mi", version=version).output


def test_one_argument_may_stand_alone_and_more_may_be_added() -> None:
    refused = lint_of({"kubelet-arg": "cpu-manager-policy=static", "kubelet-arg+": ["v=2"]})
    assert "unable to determine reserved CPU" in refused.output
    added = lint_of({"kubelet-arg": ["v=2"], "kubelet-arg+": ["cpu-manager-policy=static"]})
    assert "unable to determine reserved CPU" in added.output


def test_dashes_before_an_argument_count_for_nothing() -> None:
    dashed = lint("--cpu-manager-policy=static", "--memory-manager-policy=Static")
    assert dashed.exit_code == 1
    assert dashed.output == lint("cpu-manager-policy=static", "memory-manager-policy=Static").output


def test_an_argument_without_a_value_is_true() -> None:
    assert lint("protect-kernel-defaults").output == lint("--protect-kernel-defaults=true").output


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["name=1", "--name=2"], ["1", "2"]),
        (["name+=1", "name+=2"], ["own", "1", "2"]),
        (["name-=1", "--name-=2"], ["2", "1", "own"]),
        (["name=1", "name+=2", "name-=0"], ["0", "1", "2"]),
        (["name+=1", "name=2"], ["own", "1", "2"]),
    ],
)
def test_a_sign_after_the_name_says_where_a_value_stands(arguments: list[str], values: list[str]) -> None:
    assert _merged({"name": "own", "z": "0"}, arguments) == [*(f"--name={value}" for value in values), "--z=0"]


def test_an_added_threshold_joins_those_of_k3s() -> None:
    """Of one that replaces them, memory.available is left, too: what was reserved before is no longer enough."""
    arguments = [*STATIC, "reserved-memory=0:memory=1124Mi", "eviction-hard+=memory.available<100Mi"]
    assert "starts with stdin" in lint(*arguments, version="1.31.13").output


@pytest.mark.parametrize("flag", ["config=/etc/rancher/k3s/kubelet.yaml", "config-dir=/etc/rancher/k3s/kubelet.d"])
def test_an_argument_that_names_another_file_is_refused(flag: str) -> None:
    result = lint(flag)
    assert result.exit_code == 2
    assert f"{flag} has the kubelet read another file" in result.output


def test_an_argument_that_no_kubelet_knows_keeps_it_from_starting() -> None:
    result = lint("cpu-manager-polcy=static", "node-ip=10.0.0.1", "root-dir=/data/kubelet")
    assert result.exit_code == 1
    assert "does not start" in result.output
    assert "unknown flag: --cpu-manager-polcy: did you mean --cpu-manager-policy?" in result.output
    assert result.output.count("unknown flag") == 1


def test_of_hundreds_of_unknown_arguments_the_first_are_told() -> None:
    output = lint(*(f"no-such-{number}{'g' * 100}" for number in range(500))).output
    assert output.count("unknown flag") == 4
    assert len(output) < 3000


def test_a_flag_that_is_gone_keeps_a_kubelet_from_starting() -> None:
    assert lint("pod-infra-container-image=pause", version="1.34.4").exit_code == 0
    assert "unknown flag: --pod-infra-container-image" in lint("pod-infra-container-image=pause").output


@pytest.mark.parametrize("arguments", [[1], {"a": "b"}, 3])
def test_arguments_of_another_type_are_told_in_one_line(arguments: object) -> None:
    result = lint_of({"kubelet-arg": arguments})
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "kubelet-arg" in result.output


def test_drop_ins_of_its_folder_are_merged_in_their_order(tmp_path: Any) -> None:
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (tmp_path / "10-policy.conf").write_text(head + "cpuManagerPolicy: static\n")
    command = ["lint", "-", "--machine", MACHINE, "--kubelet-config-dir", str(tmp_path)]
    text = yaml.safe_dump({"kubelet-arg": ["v=2"]})
    assert "unable to determine reserved CPU" in CliRunner().invoke(main, command, input=text).output


def test_other_files_are_none() -> None:
    for content in (b"server: https://a\n", b"kind: Pod\nkubelet-arg: [a]\n", b"a: [", b"[1]", b""):
        assert of_k3s_config("file", content, 37) is None
