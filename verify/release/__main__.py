"""``python -m verify.release``: make a release twice, and use what is in it as strangers would.

Exits with 1 if a trial fails, with 2 if this machine cannot make a release or, unless ``--architecture amd64`` leaves
arm64 out, cannot run arm64's programs. The key that signs is made for this run alone.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.image.build import Commit, Inputs
from deploy.release.__main__ import Order, make
from deploy.release.images import ARCHITECTURES, Recipe
from deploy.release.programs import PROGRAMS
from tools.commands import Unavailable, run
from verify.e2e import images
from verify.release import foreign, trials

from topomend import __version__
from topomend.cli.output.table import echo_table
from topomend.sandbox.layout import cache_folder

SOURCE = "https://topomend.invalid/topomend/topomend"
"""The release is published nowhere."""

Trial = tuple[str, Callable[[], str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.release", description=__doc__)
    parser.add_argument("--architecture", choices=ARCHITECTURES, action="append", help="of the images; default: both")
    architectures = tuple(parser.parse_args().architecture or ARCHITECTURES)
    try:
        with tempfile.TemporaryDirectory(prefix="topomend-release-") as place:
            return tried(Path(place), architectures)
    except Unavailable as error:
        print(f"make release-test: {error}", file=sys.stderr)
        return 2


def tried(place: Path, architectures: tuple[str, ...]) -> int:
    with foreign.programs_run(architectures):
        first, second = place / "first", place / "second"
        for folder, built in ((first, architectures), (second, ())):
            folder.mkdir()
            make(Order(SOURCE, key(place), recipe(built), built), folder)
        rows = [row(name, trial) for name, trial in all_trials(first, second, architectures)]
    echo_table([("TRIAL", "RESULT", "SECONDS"), *rows])
    return 1 if any(result.startswith("FAILED") for _, result, _ in rows) else 0


def all_trials(first: Path, second: Path, architectures: tuple[str, ...]) -> Iterator[Trial]:
    yield "two runs make the same files", lambda: trials.same(first, second)
    yield "sums and signature", lambda: trials.signed(first)
    yield "krew installs the plugin, which runs where no Python is", lambda: trials.krew_installs(first)
    yield "programs of each platform's archive", lambda: trials.plugin_platforms(first)
    yield "licences of all parts of the plugin", lambda: trials.licences_are_there(first)
    yield "helm 3 and 4 read the chart's package", lambda: trials.chart_is_read(first)
    if "arm64" in architectures:
        yield "the arm64 plugin runs in QEMU", lambda: trials.foreign_plugin(first, storage())
        if set(architectures) == set(ARCHITECTURES):
            yield "both images find the same machine", lambda: trials.images_agree(first, storage())
        yield "the arm64 image runs in QEMU", lambda: trials.foreign_image(first, storage())


def row(name: str, trial: Callable[[], str]) -> tuple[str, str, str]:
    begun = time.monotonic()
    try:
        result = trial()
    except (AssertionError, Unavailable) as failure:
        result = f"FAILED: {str(failure).splitlines()[-1] if str(failure) else 'an assertion'}"
    print(f"{name}: {result}", flush=True)
    return name, result, f"{time.monotonic() - begun:.0f}"


def key(place: Path) -> Path:
    """A private key of cosign's, made once."""
    path = place / "cosign.key"
    os.environ.setdefault("COSIGN_PASSWORD", "of this run")
    if not path.exists():
        run(str(PROGRAMS.program("cosign")), "generate-key-pair", folder=place)
    return path


def storage() -> images.Storage:
    """Buildah's storage of releases."""
    return images.Storage.at(cache_folder() / "release" / "storage")


def recipe(architectures: tuple[str, ...]) -> Recipe:
    """How this machine builds the images: by buildah, on bases that it has or makes itself. Raises Unavailable."""
    if images.find_engine().name != "buildah":
        return Recipe(images.find_engine(), Inputs(Commit.checked_out(), f"v{__version__}", SOURCE))
    kept = storage()
    base, flags = kept.base_of_all(print, architectures), ("--quiet", *kept.build_flags())
    return Recipe(kept.engine, Inputs(Commit.checked_out(), f"v{__version__}", SOURCE, base, flags))


if __name__ == "__main__":
    sys.exit(main())
