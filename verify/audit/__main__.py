"""``python -m verify.audit``: the locked Python packages that have a known vulnerability, by the OSV database.

The database of Python packages is one file (https://google.github.io/osv.dev/data). ``--database`` names a copy of it,
for a machine without the network; otherwise the program downloads it.

Exit codes: 0 no locked package has one; 1 some have; 3 unknown, because the database is missing or cannot be read.
"""

import argparse
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from verify.audit.osv import Hole, Unreadable, holes, pinned

LOCKS = Path(__file__).parents[2] / "requirements"
DATABASE = "https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"
SECONDS = 60.0
MOST_BYTES = 512 << 20

FOUND, UNKNOWN = 1, 3


class Missing(Exception):
    """The database cannot be had here; the text says why, and what to do."""


def fetch(address: str, target: Path) -> None:
    """Download the database. Raises Missing."""
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as response, target.open("wb") as file:  # noqa: S310
            while block := response.read(1 << 20):
                file.write(block)
                if file.tell() > MOST_BYTES:
                    raise Missing(f"{address} has more than {MOST_BYTES >> 20} MiB, which the database does not have")
    except (urllib.error.URLError, OSError) as error:
        raise Missing(
            f"{address} cannot be downloaded: {error}; download it elsewhere and name the copy with --database"
        ) from error


def audit(locks: list[Path], database: Path | None, address: str = DATABASE) -> list[Hole]:
    """The vulnerabilities of every package that a lock pins. Raises Missing, Unreadable."""
    packages = {pin for lock in locks for pin in pinned(lock.read_text())}
    if database is not None:
        if not database.is_file():
            raise Missing(f"{database} does not exist; download {address} there")
        return holes(packages, database)
    with tempfile.TemporaryDirectory(prefix="topomend-audit-") as folder:
        fetch(address, Path(folder) / "all.zip")
        return holes(packages, Path(folder) / "all.zip")


def main(arguments: list[str] | None = None) -> int:
    """Print what was found. Returns the exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--database", type=Path, help="a copy of the database")
    parser.add_argument("--address", default=DATABASE, help="where to download it from")
    options = parser.parse_args(arguments)
    locks = sorted(LOCKS.glob("*.lock"))
    try:
        known = audit(locks, options.database, options.address)
    except (Missing, Unreadable) as error:
        sys.stderr.write(f"NOT CHECKED: {error}\n")
        return UNKNOWN
    for hole in known:
        sys.stdout.write(f"{hole.package} {hole.version}: {hole.identifier} {hole.summary}\n")
    names = ", ".join(lock.name for lock in locks)
    sys.stdout.write(f"{len(known)} known vulnerabilities in the packages of {names}\n")
    sys.stdout.write(
        "NOT CHECKED: Go modules (govulncheck) and the Debian packages of the image's base (its SBOM lists them)\n"
    )
    return FOUND if known else 0


if __name__ == "__main__":
    sys.exit(main())
