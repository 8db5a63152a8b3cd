"""``python -m verify.config_oracle.known_gates``: writes the table of feature gates that replay reads.

A newer release of a minor version may know other gates than the one that is named here: name it here and run again.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verify.config_oracle.build import CONFIGURATIONS
from verify.oracle.build import Program, oracle_binary

RELEASES = ("v1.30.14", "v1.31.14", "v1.32.9", "v1.33.5", "v1.34.4", "v1.35.0", "v1.36.0", "v1.37.2")

_FOLDER = Path(__file__).parent
GATES = Program("gates", _FOLDER / "gates", CONFIGURATIONS.modules, (35,))
TABLE = _FOLDER.parents[1] / "operator" / "topomend" / "replay" / "startup" / "known_gates.py"

_STAGES = {"ALPHA": "a", "BETA": "b", "": "s", "DEPRECATED": "d"}

_MODULE = '''"""The feature gates of every release's kubelet. Written by ``python -m verify.config_oracle.known_gates``.

Source: the gates that {releases}
register themselves. Replay's tests compare the newest, the oldest and 1.34 with whole kubelets.
"""

from enum import Enum


class Stage(Enum):
    """How far a feature is."""

    ALPHA = "a"
    BETA = "b"
    STABLE = "s"
    DEPRECATED = "d"


GATES = """\\
{gates}
"""
"""Each gate with its minor releases: stage, on (+) or off (-) by default, locked (!)."""

DEPENDENCIES = """\\
{dependencies}
"""
"""Minor releases, a gate, and the gates without which it may not be on."""
'''


def main() -> int:
    """Write the table."""
    found = {int(release.split(".")[1]): _gates_of(release) for release in RELEASES}
    TABLE.write_text(table(found))
    return 0


def _gates_of(release: str) -> dict[str, Any]:
    sys.stderr.write(f"{release}\n")
    answer = subprocess.run([oracle_binary(release, GATES)], capture_output=True, check=True, timeout=60)
    gates: dict[str, Any] = json.loads(answer.stdout)
    return gates


def table(found: Mapping[int, Mapping[str, Any]]) -> str:
    """The module's text, from each minor release's gates and dependencies."""
    return _MODULE.format(
        releases=", ".join(RELEASES),
        gates="\n".join(_lines(found)),
        dependencies="\n".join(_dependency_lines(found)),
    )


def _lines(found: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    for name in sorted({name for of_release in found.values() for name in of_release["gates"]}):
        states = {minor: _state(known["gates"][name]) for minor, known in found.items() if name in known["gates"]}
        yield " ".join([name, *(f"{releases}:{state}" for releases, state in _spans(states))])


def _state(gate: tuple[str, bool, bool]) -> str:
    stage, default, locked = gate
    return _STAGES[stage] + ("+" if default else "-") + ("!" if locked else "")


def _dependency_lines(found: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    for name in sorted({name for known in found.values() for name in known["dependencies"] or ()}):
        needed = {
            minor: " ".join(sorted(known["dependencies"][name]))
            for minor, known in found.items()
            if name in (known["dependencies"] or ())
        }
        for releases, names in _spans(needed):
            yield f"{releases} {name} {names}"


def _spans(states: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Consecutive releases of one state, as ``30-32``."""
    first = None
    for minor, state in sorted(states.items()):
        first = minor if first is None else first
        if states.get(minor + 1) != state:
            yield (f"{first}-{minor}" if first != minor else f"{minor}"), state
            first = None


if __name__ == "__main__":
    sys.exit(main())
