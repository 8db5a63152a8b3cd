"""``python -m verify.upstream [FROM [TO]]``: which of Kubernetes' files that topomend names have changed.

Every rule names its source in a docstring. A changed source is a rule to read again, and a new file beside one may have
a rule that nobody knows yet. TO is by default the newest that the module proxy lists, pre-releases included.
"""

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.go_programs import downloaded, go
from verify.upstream.sources import Change, changes, named_files

from topomend.cli.output.table import echo_table
from topomend.model.nodes.kubelet import DEFAULT_VERSION

ROOT = Path(__file__).parents[2]
NEWER_GO = {"GOTOOLCHAIN": "auto", "GOFLAGS": "-mod=mod"}
"""A pre-release may ask for a Go that nobody has installed. Nothing is built with it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.upstream", description=__doc__)
    parser.add_argument("before", nargs="?", default=DEFAULT_VERSION, metavar="FROM")
    parser.add_argument("after", nargs="?", default="", metavar="TO")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        module = Path(folder)
        (module / "go.mod").write_text("module topomend.io/upstream\n")
        after = asked.after or newest(module)
        before, later = (
            downloaded(module, NEWER_GO, f"k8s.io/kubernetes@{version}") for version in (asked.before, after)
        )
    named = named_files(ROOT / "operator" / "topomend")
    print(f"what changed from {asked.before} to {after} in files that {len(named)} names stand for")
    rows = list(changes(before, later, named))
    echo_table([("FILE", "CHANGED", "NAMED IN"), *map(_row, rows)])
    return 0


def newest(module: Path) -> str:
    """The newest version of Kubernetes that the module proxy lists."""
    listed = go(module, NEWER_GO, "list", "-m", "-versions", "k8s.io/kubernetes").split()[1:]
    return max(listed, key=_order)


def _order(version: str) -> tuple[tuple[int, ...], bool, str]:
    numbers, _, stage = version.removeprefix("v").partition("-")
    return tuple(map(int, numbers.split("."))), not stage, stage


def _row(change: Change) -> tuple[str, str, str]:
    rooms = sorted({re.sub(r"/[^/]*$", "", name) for name in change.named_in})
    return change.file, change.text, ", ".join(rooms)


if __name__ == "__main__":
    sys.exit(main())
