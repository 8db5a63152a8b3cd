"""The trials of a release. Each returns what it saw, or raises AssertionError or Unavailable with what went wrong."""

import json
import os
import re
import struct
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.helm.chart import CHART
from deploy.manifests import ROOT
from deploy.release import signature
from deploy.release.documents.statement import digest
from deploy.release.images import ARCHITECTURES
from deploy.release.kubectl_plugin import licences, plugin
from deploy.release.kubectl_plugin.standalone import PLATFORMS, Platform
from deploy.release.programs import PROGRAMS
from packaging.utils import canonicalize_name
from tools.chart import programs as chart
from tools.commands import Unavailable, run, succeeds
from verify.e2e.images import Storage

from topomend import __version__
from topomend.model.nodes.kubelet import DEFAULT_VERSION

POD = ROOT / "examples" / "pod.yaml"

SIMULATION = (
    "--node=numa:2 cores:8 memory:4Gi",
    "--cpu-manager-policy=static",
    "--topology-manager-policy=single-numa-node",
    "--reserved-cpus=0",
)
"""A machine that admits POD."""

SIGNATURE_FILES = {signature.BUNDLE, signature.PUBLIC_KEY, "SHA256SUMS", "provenance.json"}
"""What differs between two runs: a signature is random, and both the sums and the provenance name all files."""

SHELL_TOOLS = ("sh", "readlink")
"""What the plugin's launcher needs of a machine."""

PROGRAMS_OF_IMAGE = ("agent", "operator")

PURE_TESTS = ("base", "model", "wire", "replay", "alignment", "explain", "decide")
DISCOVERY_TESTS = (
    "discover/test_assemble.py",
    "discover/test_recorded_machines.py",
    # The fifth, test_udev.py, writes to /sys, which no container may.
    *(f"discover/machine/test_{name}.py" for name in ("hardware", "pci", "pci_distance", "sysfs")),
)

PYTEST_OPTIONS = (
    "-q", "-n0", "-p", "no:cacheprovider", "-m", "not cluster and not night",
    # topomend is the image's own, not that of the sources.
    "-o", "pythonpath=.",
    # hypothesis has no patience with an emulated processor.
    "--hypothesis-profile=ci",
    # It counts seconds of a processor, and an emulated one needs 20 times as many.
    "--deselect", "tests/replay/test_effort.py::test_what_would_get_a_pod_admitted_has_a_share_too",
)  # fmt: skip

IMPORT_ALL = """
import importlib, pkgutil, platform
import topomend
names = [found.name for found in pkgutil.walk_packages(topomend.__path__, "topomend.")]
names = [name for name in names if not name.endswith("__main__") and not name.startswith("topomend.cli.sandbox")]
for name in names:
    importlib.import_module(name)
print(platform.machine(), len(names))
"""
"""The commands sandbox and demo need what no image has."""

SANDBOX = ("operator/topomend/sandbox", "/opt/topomend/lib/python3.13/site-packages/topomend/sandbox")
"""Where the sources have what tests use of the sandbox, and where the image's topomend would have it."""

ELF_MACHINES = {62: "amd64", 183: "arm64"}
MACH_O_PROCESSORS = {0x01000007: "amd64", 0x0100000C: "arm64"}
"""elf.h EM_X86_64, EM_AARCH64; mach/machine.h CPU_TYPE_X86_64, CPU_TYPE_ARM64."""

MACH_O_SIGNATURE = 0x1D
"""mach-o/loader.h LC_CODE_SIGNATURE: macOS starts no program on arm64 without one."""


def same(first: Path, second: Path) -> str:
    """What the second run made is what the first had made, but for the signature."""
    compared = [path for path in sorted(second.iterdir()) if path.name not in SIGNATURE_FILES]
    assert len(compared) >= 9
    differing = [path.name for path in compared if digest(path) != digest(first / path.name)]
    assert not differing, f"differ: {', '.join(differing)}"
    return f"{len(compared)} files"


def signed(folder: Path) -> str:
    """Sums name every file and are right; the signature is theirs, and no other text's."""
    sums = folder / "SHA256SUMS"
    run("sha256sum", "--check", "--strict", sums.name, folder=folder)
    named = {line.split()[1] for line in sums.read_text().splitlines()}
    assert named == {path.name for path in folder.iterdir()} - {sums.name, signature.BUNDLE, signature.PUBLIC_KEY}
    private = [path.name for path in folder.iterdir() if path.stat().st_mode & 0o444 != 0o444]
    assert private == [], f"only their owner may read {private}"
    signature.verify(sums, folder / signature.BUNDLE, folder / signature.PUBLIC_KEY)
    with tempfile.TemporaryDirectory() as place:
        changed = Path(place) / "SHA256SUMS"
        changed.write_text(sums.read_text().replace("0", "1", 1))
        try:
            signature.verify(changed, folder / signature.BUNDLE, folder / signature.PUBLIC_KEY)
        except Unavailable:
            return f"{len(named)} files; cosign refuses changed sums"
    raise AssertionError("cosign takes changed sums")


def krew_installs(folder: Path) -> str:
    """krew itself installs this machine's archive where PATH has no Python, and the plugin answers there."""
    archive = folder / plugin.archive_name(__version__, _own_platform())
    with tempfile.TemporaryDirectory() as place:
        tools = Path(place) / "tools"
        tools.mkdir()
        for name in SHELL_TOOLS:
            (tools / name).symlink_to(run("which", name).strip())
        krew = str(PROGRAMS.program("krew"))
        alone = ("env", "-i", f"HOME={place}", f"PATH={tools}")
        run(*alone, krew, "install", f"--manifest={folder / 'numa.yaml'}", f"--archive={archive}")
        program = str(Path(place) / ".krew" / "bin" / "kubectl-numa")
        answers = _plugin_answers(*alone, program)
        (unpacked,) = (Path(place) / ".krew" / "store" / "numa").iterdir()
        assert (unpacked / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
        assert "Python" in (unpacked / licences.FILE).read_text()
        return answers


def plugin_platforms(folder: Path) -> str:
    """Every program and library in an archive is of the archive's platform; macOS' on arm64 are signed."""
    counted = {}
    for platform in PLATFORMS:
        of_platform: Counter[str] = Counter()
        with tarfile.open(folder / plugin.archive_name(__version__, platform)) as archive:
            for member in archive:
                assert member.isfile() or member.isdir(), f"{member.name} is a link, which krew does not unpack"
                head = archive.extractfile(member).read() if member.isfile() else b""  # type: ignore[union-attr]
                if kind := kind_of(head):
                    of_platform[kind] += 1
        assert set(of_platform) == {_expected(platform)}, f"{platform}: {dict(of_platform)}"
        counted[str(platform)] = of_platform.total()
    return ", ".join(f"{name} {count}" for name, count in counted.items())


def licences_are_there(folder: Path) -> str:
    """Each part of the bill of materials has its licence's text in every archive, or a reason why not."""
    bom = json.loads((folder / f"kubectl-numa-v{__version__}.cdx.json").read_text())
    parts = {canonicalize_name(component["name"]) for component in bom["components"]}
    with_text: Counter[str] = Counter()
    for platform in PLATFORMS:
        with tarfile.open(folder / plugin.archive_name(__version__, platform)) as archive:
            files = {member.name: member.size for member in archive if member.isfile()}
            listed = archive.extractfile(licences.FILE).read().decode()  # type: ignore[union-attr]
        rows = [line.strip("| ").split(" | ") for line in listed.splitlines() if line.startswith("| ")][1:]
        assert {canonicalize_name(part.split()[0]) for part, _, _ in rows} - {"topomend"} == parts, f"{platform}"
        for part, _, told in rows:
            texts = re.findall(r"`([^`]+)`", told)
            assert texts or told.startswith("none: "), f"{platform}: {part} has no licence's text: {told}"
            assert all(files.get(text) for text in texts), f"{platform}: {part}: {told}"
            with_text[str(platform)] += bool(texts)
    return ", ".join(f"{name} {count} of {len(parts) + 1}" for name, count in with_text.items())


def kind_of(content: bytes) -> str:
    """``OS-ARCH`` of a program or library, with ``-unsigned`` where macOS' has no signature; empty of anything else."""
    if content[:4] == b"\x7fELF":
        (machine,) = struct.unpack_from("<H", content, 18)
        return f"linux-{ELF_MACHINES.get(machine, machine)}"
    if content[:4] != struct.pack("<I", 0xFEEDFACF):
        return ""
    _, processor, _, _, commands, _, _, _ = struct.unpack_from("<8I", content)
    offset, signed_ = 32, False
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", content, offset)
        signed_ = signed_ or command == MACH_O_SIGNATURE
        offset += size
    arch = MACH_O_PROCESSORS.get(processor, processor)
    return f"darwin-{arch}" + ("" if signed_ or arch == "amd64" else "-unsigned")


def chart_is_read(folder: Path) -> str:
    """Both helms find the chart in its package, lint it and render it as they do the folder."""
    package = str(folder / f"topomend-{__version__}.tgz")
    for helm in ("helm3", "helm4"):
        release = f"--kube-version={DEFAULT_VERSION}"
        rendered = [chart.run(helm, "template", "topomend", each, release) for each in (package, str(CHART))]
        assert rendered[0].returncode == 0, rendered[0].stderr
        assert rendered[0].stdout == rendered[1].stdout
        assert chart.run(helm, "lint", package).returncode == 0
    return "rendered as the folder is"


def foreign_plugin(folder: Path, storage: Storage) -> str:
    """The archive for arm64 in a root that has that processor's C library."""
    archive = folder / plugin.archive_name(__version__, Platform("linux", "arm64", ""))
    with tempfile.TemporaryDirectory() as place, _container(storage, storage.base(print, "arm64"), "arm64") as name:
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
        volume = f"--volume={place}:/plugin:ro"
        return _plugin_answers(
            *_in_container(storage, volume, f"--volume={POD}:{POD}:ro", name=name), "/plugin/kubectl-numa"
        )


def foreign_image(folder: Path, storage: Storage) -> str:
    """The arm64 image starts, imports all it has, and passes the tests of the pure rooms and of discovery."""
    image = _image(folder, storage, "arm64")
    with tempfile.TemporaryDirectory() as packages, _container(storage, image, "arm64") as name:
        volumes = (f"--volume={ROOT}:/src:ro", f"--volume={packages}:/packages:ro")
        inside = _in_container(storage, *volumes, name=name)
        version = run(*inside, "topomend", "--version").strip()
        assert __version__ in version
        for program in PROGRAMS_OF_IMAGE:
            assert "Usage: topomend" in run(*inside, "topomend", program, "--help")
        imported = run(*inside, "python", "-c", IMPORT_ALL, seconds=1800.0).split()
        assert imported[0] == "aarch64"
        _install_test_packages(Path(packages))
        tests = [f"tests/{each}" for each in (*PURE_TESTS, *DISCOVERY_TESTS)]
        inside = _in_container(storage, f"--volume={ROOT / SANDBOX[0]}:{SANDBOX[1]}:ro", *volumes, name=name)
        environment = ("env", "-C", "/src", "PYTHONPATH=/packages:/src", "PYTHONDONTWRITEBYTECODE=1")
        command = (*inside, *environment, "python", "-m", "pytest", *PYTEST_OPTIONS, *tests)
        passed = run(*command, seconds=7200.0).splitlines()[-1]
    return f"{version}; {imported[1]} modules imported; {passed}"


def images_agree(folder: Path, storage: Storage) -> str:
    """This machine, recorded, is the same NodeTopology for the image of each processor."""
    found = []
    with tempfile.TemporaryDirectory() as place:
        recorded = Path(place) / "host"
        run(str(Path(sys.executable).with_name("topomend")), "capture", f"{recorded}.tar.gz")
        with tarfile.open(f"{recorded}.tar.gz") as archive:
            archive.extractall(place, filter="data")
        for architecture in ARCHITECTURES:
            with _container(storage, _image(folder, storage, architecture), architecture) as name:
                inside = _in_container(storage, f"--volume={recorded}:/host:ro", name=name)
                found.append(run(*inside, "topomend", "discover", "--root=/host", "--output=yaml"))
    assert "kind: NodeTopology" in found[0]
    assert found[0] == found[1], "they find different machines"
    return f"{len(found[0].splitlines())} lines of YAML are equal"


def _image(folder: Path, storage: Storage, architecture: str) -> str:
    """The name of the release's image in ``storage``."""
    layout = folder / f"topomend-v{__version__}-linux-{architecture}.oci.tar"
    pulled = f"localhost/topomend-release:{digest(layout)[:16]}"
    options, flags = storage.engine.options, storage.engine.flags
    image = run("buildah", *options, "pull", *flags, "--quiet", f"oci-archive:{layout}").strip()
    run("buildah", *options, "tag", image, pulled)
    return pulled


def _install_test_packages(folder: Path) -> None:
    options = ("--target", str(folder), "--python-platform", "aarch64-unknown-linux-gnu", "--python-version", "3.13")
    lock = ("--require-hashes", "--requirement", str(ROOT / "requirements" / "dev.lock"))
    python = str(ROOT / ".venv" / "bin" / "python")
    run(python, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", *options, *lock)


def _plugin_answers(*command: str) -> str:
    version = run(*command, "--version").strip()
    assert __version__ in version
    for verb in ("show", "explain", "aligned", "fit", "relaunches", "export", "drain", "check"):
        assert verb in run(*command, verb, "--help", seconds=300.0)
    answer = run(*command, "simulate", *SIMULATION, f"--pods={POD}", seconds=300.0)
    assert "yes" in answer.split(), answer
    return f"{version}; simulate admits {POD.name}"


@contextmanager
def _container(storage: Storage, image: str, architecture: str) -> Iterator[str]:
    of_machine = f"--arch={architecture}"
    name = run("buildah", *storage.engine.options, "from", *storage.engine.flags, of_machine, image).strip()
    try:
        yield name
    finally:
        succeeds("buildah", *storage.engine.options, "rm", name)


def _in_container(storage: Storage, *options: str, name: str) -> tuple[str, ...]:
    return ("buildah", *storage.engine.options, "run", "--isolation=chroot", "--user=0", *options, name, "--")


def _expected(platform: Platform) -> str:
    return f"{platform.os}-{platform.arch}"


def _own_platform() -> Platform:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    return next(platform for platform in PLATFORMS if (platform.os, platform.arch) == ("linux", arch))
