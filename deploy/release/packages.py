"""The wheels, the sdist and the chart's package, the same from the same commit."""

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from deploy.helm.chart import CHART
from deploy.image import sbom
from deploy.manifests import ROOT
from deploy.release.archive import NotPacked, pack
from deploy.release.kubectl_plugin import licences
from packageurl import PackageURL
from tools.chart import programs as chart


def python_packages(folder: Path, epoch: int) -> list[Path]:
    """Write the sdist and the wheel, and the wheel of ``topomend-sandbox``, to ``folder``. Raises NotPacked.

    hatchling gives their files the time ``epoch``.
    """
    before = set(folder.iterdir())
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    for project, options in ((ROOT, ()), (ROOT / "sandbox", ("--target", "wheel"))):
        done = subprocess.run(
            [*command, *options], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotPacked(f"hatchling cannot build the packages: {(done.stderr or done.stdout).strip()[-1500:]}")
    return sorted(set(folder.iterdir()) - before)


def chart_package(folder: Path, epoch: int) -> Path:
    """Write the chart, as ``helm package`` packs it, to ``folder``. Raises NotPacked, NotBuilt."""
    with tempfile.TemporaryDirectory(prefix="topomend-chart-") as place:
        done = chart.run("helm4", "package", str(CHART), f"--destination={place}")
        if done.returncode:
            raise NotPacked(f"helm cannot package the chart: {done.stderr.strip()}")
        (packed,) = Path(place).glob("*.tgz")
        # helm gives the files the time of the packing.
        with tarfile.open(packed) as archive:
            archive.extractall(Path(place, "files"), filter="data")
        pack(Path(place, "files"), folder / packed.name, epoch)
        return folder / packed.name


def plugin_bom(output: Path, python_version: str, epoch: int) -> Path:
    """Write the bill of materials of the plugin's archives: Python, its libraries, packages. Raises NotPacked."""
    lock = ROOT / "requirements" / "plugin.lock"
    options = ("--pyproject", str(ROOT / "pyproject.toml"), "--sv", "1.6", "--output-reproducible")
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", *options, "--output-file", str(output), str(lock)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPacked(f"cyclonedx-py cannot list the plugin's packages: {done.stderr.strip()[-1500:]}")
    bom = sbom.read_bom(output)
    bom.components.update(_python(python_version))
    if bom.metadata.component is not None:
        bom.register_dependency(bom.metadata.component, bom.components)
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    names = "\n".join(sorted(str(component.bom_ref) for component in bom.components))
    bom.serial_number = uuid5(NAMESPACE_URL, f"kubectl-numa {bom.metadata.timestamp}\n{names}")
    output.write_text(sbom.serialized(bom))
    return output


def _python(version: str) -> Iterator[Component]:
    """Python and what is linked into it, whose versions it does not tell."""
    purl = PackageURL("generic", name="python", version=version)
    licence = DisjunctiveLicense(id="PSF-2.0")
    yield Component(
        type=ComponentType.PLATFORM, name="python", bom_ref="python", version=version, purl=purl, licenses=[licence]
    )
    for library in licences.LIBRARIES:
        reference = f"python/{library.name}"
        yield Component(name=library.name, bom_ref=reference, licenses=[DisjunctiveLicense(id=library.licence)])
