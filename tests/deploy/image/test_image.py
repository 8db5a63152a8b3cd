"""The image's recipe. No container engine is asked for: its steps are checked one by one, its wheel is built."""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from deploy.manifests import ROOT, objects

import topomend

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
LOCKS = ROOT / "requirements"
SANDBOX = "operator/topomend/sandbox"


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def copied() -> list[str]:
    """What is copied out of the working tree; the last word of a COPY is where to."""
    copies = [words.split() for words in instructions("COPY") if not words.startswith("--from")]
    return [source for *sources, _ in copies for source in sources]


def pinned(lock: str) -> set[str]:
    """Each pin with its hashes, without the marker that says for which Pythons it is: locks need them differently."""
    pins = re.findall(r"^\S.*(?:\n    .*)*", (LOCKS / lock).read_text(), re.MULTILINE)
    return {re.sub(r" ; [^\\]+", " ", pin) for pin in pins}


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    assert IGNORED[0] == "*"
    exceptions = [line.removeprefix("!") for line in IGNORED if line.startswith("!")]
    for source in copied():
        assert (ROOT / source).exists(), source
        places = [source, *(str(parent) for parent in Path(source).parents)]
        assert any(fnmatch(place, exception) for exception in exceptions for place in places), source


def test_what_only_the_sandbox_needs_stays_out_of_the_build() -> None:
    """The last line that matches counts, so these stand below the one that lets operator/ in."""
    assert IGNORED.index(SANDBOX) > IGNORED.index("!operator")
    assert (ROOT / SANDBOX).is_dir()


def test_everything_that_the_wheel_is_built_from_is_copied() -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE", "deploy/install.yaml", "operator"):
        assert name in copied()


def test_the_build_installs_only_what_is_pinned_with_hashes() -> None:
    installs = [
        step for run in instructions("RUN") for step in run.split("&&") if "pip" in step and " install " in step
    ]
    assert len(installs) == 3
    assert all("--require-hashes" in step or "--no-index" in step for step in installs)


def test_a_foreign_processors_programs_do_nothing_that_takes_time() -> None:
    """QEMU runs them, thirty times as slowly."""
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    foreign = [stage for stage in stages if not stage.startswith(("--platform=${BUILDPLATFORM} ", "builder "))]
    steps = [step.split(" ", 1)[0] for stage in foreign for step in re.findall(r"^RUN (.+)$", stage, re.MULTILINE)]
    assert steps == ["rm", "python"]


def test_the_build_tools_are_those_of_development() -> None:
    """Regenerate requirements/build.lock from requirements/dev.lock when this fails."""
    pins = pinned("build.lock")
    for tool in ("hatchling", "cyclonedx-bom", "debsbom"):
        assert any(pin.startswith(f"{tool}==") for pin in pins), tool
    assert pins - pinned("dev.lock") == set()


def test_what_is_installed_in_the_image_is_pinned_as_in_development_and_lacks_the_extra() -> None:
    """Regenerate requirements/runtime.lock from requirements/dev.lock when this fails."""
    pins = pinned("runtime.lock")
    assert pins - pinned("dev.lock") == set()
    assert not [pin for pin in pins if pin.startswith(("grpcio==", "rich=="))]


def test_the_image_says_which_version_it_is() -> None:
    assert f"VERSION=v{topomend.__version__}" in instructions("ARG")


def test_nothing_of_the_image_is_compared_with_its_source_when_it_is_imported() -> None:
    """Layers round files' times, so half of all byte code looked stale, and was compiled anew at each start."""
    compiled = [step for run in instructions("RUN") for step in run.split("&&") if "compileall" in step]
    assert len(compiled) == 3
    assert all("--invalidation-mode unchecked-hash" in step for step in compiled)
    assert "PYTHONHASHSEED=0" in " ".join(instructions("ENV"))


def test_the_image_runs_topomend_as_the_operators_user() -> None:
    (deployment,) = [item for item in objects() if item["kind"] == "Deployment"]
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert instructions("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert instructions("ENTRYPOINT") == ['["topomend"]']


def test_the_image_has_the_names_of_pci_devices_where_libudev_looks_for_them() -> None:
    """Where it looks: systemd src/libsystemd/sd-hwdb/hwdb-internal.h. That names are then found, make vm-test shows."""
    assert "--from=names /names/etc/udev/hwdb.bin /etc/udev/hwdb.bin" in instructions("COPY")
    (compiled,) = [run for run in instructions("RUN") if "systemd-hwdb" in run]
    assert "install --yes --no-install-recommends udev " in compiled
    assert "--root=/names --strict update" in compiled


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of what the build of the image sees and installed into a folder of its own.

    Its dependencies are this environment's, those of the extra included.
    """
    folder = tmp_path_factory.mktemp("image")
    context = folder / "context"
    for source in copied():
        target = context / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=_ignored)
        else:
            shutil.copyfile(ROOT / source, target)
    build = ["hatchling", "build", "--target", "wheel", "--directory", str(folder / "wheel")]
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", f"--find-links={folder / 'wheel'}"]
    for module in (build, [*install, "--disable-pip-version-check", f"--target={folder / 'site'}", "topomend"]):
        command = [sys.executable, "-m", *module]
        done = subprocess.run(command, cwd=context, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "site"


def _ignored(at: str, names: list[str]) -> set[str]:
    folder = Path(at).relative_to(ROOT)
    return {name for name in names if name == "__pycache__" or str(folder / name) in IGNORED}


def run(installed: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as the wheel's alone: this environment's own topomend is not seen."""
    return subprocess.run(
        [sys.executable, str(installed / "bin" / program), *arguments],
        cwd=installed,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["agent", "--help"], ["operator", "--help"]])
def test_topomend_runs_from_the_wheel(installed: Path, arguments: list[str]) -> None:
    done = run(installed, "topomend", *arguments)
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


@pytest.mark.parametrize("arguments", [["demo"], ["sandbox", "up"], ["sandbox", "--help"]])
def test_the_image_says_what_to_install_for_the_sandbox(installed: Path, arguments: list[str]) -> None:
    done = run(installed, "topomend", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'topomend[sandbox]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["explain", "--help"], ["fit", "--help"]])
def test_the_kubectl_plugin_runs_without_the_sandbox(installed: Path, arguments: list[str]) -> None:
    done = run(installed, "kubectl-numa", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
