"""The image's recipe. No container engine is asked for: its steps are checked one by one, its wheel is built."""

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.deploy.manifests import ROOT, objects

import topomend

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
LOCKS = ROOT / "requirements"


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def copied() -> list[str]:
    """What is copied out of the working tree; the last word of a COPY is where to."""
    copies = [words.split() for words in instructions("COPY") if not words.startswith("--from")]
    return [source for *sources, _ in copies for source in sources]


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith(("#", "**"))]
    ignored, *exceptions = lines
    assert ignored == "*"
    for source in copied():
        assert (ROOT / source).exists(), source
        places = [source, *(str(parent) for parent in Path(source).parents)]
        assert any(fnmatch(place, each.removeprefix("!")) for each in exceptions for place in places), source


def test_everything_that_the_wheel_is_built_from_is_copied() -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE", "deploy/install.yaml", "operator"):
        assert name in copied()


def test_the_build_installs_only_what_is_pinned_with_hashes() -> None:
    installs = [
        step for run in instructions("RUN") for step in run.split("&&") if "pip" in step and " install " in step
    ]
    assert len(installs) == 3
    assert all("--require-hashes" in step or "--no-index" in step for step in installs)


def test_the_build_tools_are_those_of_development() -> None:
    """Regenerate requirements/build.lock from requirements/dev.lock when this fails."""
    developed = (LOCKS / "dev.lock").read_text()
    pins = re.findall(r"^\S.*(?:\n    .*)*", (LOCKS / "build.lock").read_text(), re.MULTILINE)
    assert any(pin.startswith("hatchling==") for pin in pins)
    assert [pin for pin in pins if f"{pin}\n" not in developed] == []


def test_the_image_runs_topomend_as_the_operators_user() -> None:
    (deployment,) = [item for item in objects() if item["kind"] == "Deployment"]
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert instructions("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert instructions("ENTRYPOINT") == ['["topomend"]']


def test_the_image_has_the_names_of_pci_devices_where_libudev_looks_for_them() -> None:
    """Where it looks: systemd src/libsystemd/sd-hwdb/hwdb-internal.h. That names are then found, make vm-test shows."""
    (copied_names,) = [words.split()[1:] for words in instructions("COPY") if words.startswith("--from=names")]
    assert copied_names == ["/names/etc/udev/hwdb.bin", "/etc/udev/hwdb.bin"]
    (compiled,) = [run for run in instructions("RUN") if "systemd-hwdb" in run]
    assert "install --yes --no-install-recommends udev " in compiled
    assert "--root=/names --strict update" in compiled


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed into a folder of its own; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("image")
    build = ["hatchling", "build", "--target", "wheel", "--directory", str(folder / "wheel")]
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", f"--find-links={folder / 'wheel'}"]
    for module in (build, [*install, "--disable-pip-version-check", f"--target={folder / 'site'}", "topomend"]):
        command = [sys.executable, "-m", *module]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["agent", "--help"], ["operator", "--help"]])
def test_topomend_runs_from_the_wheel(installed: Path, arguments: list[str]) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, str(installed / "bin" / "topomend"), *arguments],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (topomend.__version__ if arguments == ["--version"] else "Usage: topomend") in done.stdout


def test_the_wheel_holds_the_manifests_and_nothing_but_the_package(installed: Path) -> None:
    manifests = installed / "topomend" / "deploy" / "install.yaml"
    assert manifests.read_text() == (ROOT / "deploy" / "install.yaml").read_text()
    assert {path.name for path in installed.iterdir()} == {
        "bin",
        "topomend",
        f"topomend-{topomend.__version__}.dist-info",
    }
