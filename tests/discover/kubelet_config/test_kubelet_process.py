"""Flags of kubelets in folders that look like /proc; a real kubelet's is read beside the sandbox, in tests/agent."""

import os
from pathlib import Path

import pytest

from topomend.discover.kubelet_config.kubelet_process import kubelet_of, kubelets, read_flags


def process(proc: Path, pid: int, *arguments: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(argument.encode() + b"\0" for argument in arguments))
    (folder / "root").symlink_to(proc.parent / "host")
    (folder / "cwd").symlink_to(proc.parent / "host" / "work")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "host" / "etc" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_both_ways_to_write_a_flag_are_read_and_each_repetition_kept() -> None:
    first = ["--cpu-manager-policy=static", "--v", "2", "--reserved_cpus", "0-1", "--kube-reserved=cpu=1,memory=1Gi"]
    second = ["--feature-gates=A=true", "--feature-gates", "B=false", "--", "--reserved-cpus=7"]
    assert read_flags([*first, *second]) == {
        "cpu-manager-policy": ["static"],
        "v": ["2"],
        "reserved-cpus": ["0-1"],
        "kube-reserved": ["cpu=1,memory=1Gi"],
        "feature-gates": ["A=true", "B=false"],
    }


def test_the_kubelet_that_was_started_with_the_file_is_found_by_the_file(tmp_path: Path, config: Path) -> None:
    proc = tmp_path / "proc"
    (config.parent / "other.yaml").touch()
    process(proc, 1, "/sbin/init")
    process(proc, 20, "/usr/bin/kubelet", "--config=/etc/other.yaml", "--cpu-manager-policy=none")
    process(proc, 30, "/opt/hyperkube", "kubelet", "--config=/etc/config.yaml", "--cpu-manager-policy=static")
    process(proc, 40, "vim", "kubelet.go", "--config=/etc/config.yaml")
    kubelet = kubelet_of(config, proc)
    assert kubelet is not None
    assert kubelet.flags["cpu-manager-policy"] == ["static"]
    assert len(list(kubelets(proc))) == 2


def test_a_relative_path_is_one_from_the_kubelets_working_folder(tmp_path: Path, config: Path) -> None:
    (tmp_path / "host" / "work").mkdir()
    process(tmp_path / "proc", 7, "kubelet", "--config", "../etc/config.yaml", "--config-dir=/etc/conf.d")
    kubelet = kubelet_of(config, tmp_path / "proc")
    assert kubelet is not None
    assert kubelet.config_dir is not None
    assert os.path.realpath(kubelet.config_dir) == str(config.parent / "conf.d")


def test_of_two_kubelets_with_one_file_neither_is_taken(tmp_path: Path, config: Path) -> None:
    for pid in (7, 8):
        process(tmp_path / "proc", pid, "kubelet", "--config=/etc/config.yaml")
    assert kubelet_of(config, tmp_path / "proc") is None


def test_processes_that_cannot_be_read_and_kubelets_without_a_file_are_passed_over(
    tmp_path: Path, config: Path
) -> None:
    proc = tmp_path / "proc"
    process(proc, 7, "kubelet")
    process(proc, 8)
    (proc / "9").mkdir()
    (proc / "10").write_text("no folder")
    (proc / "11").mkdir()
    os.mkfifo(proc / "11" / "cmdline")
    (proc / "12").mkdir()
    (proc / "12" / "cmdline").write_bytes(b"kubelet\0--config=/etc/\xff\xfe\n\0" + b"x" * (1 << 18))
    assert kubelet_of(config, proc) is None
    assert kubelet_of(config, tmp_path / "none") is None
    assert kubelet_of(tmp_path / "none", proc) is None
