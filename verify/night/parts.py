"""The parts of the night: which program, how much of it. What a change has time for is in ``tests/verify``."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

RELEASES = ("v1.30.14", "v1.31.13", "v1.32.6", "v1.33.5", "v1.34.4", "v1.35.5", "v1.36.3", "v1.37.2")

OLDEST, OLDER, NEWEST = RELEASES[0], RELEASES[4], RELEASES[-1]


@dataclass(frozen=True)
class Part:
    """A Python module of this repository with its arguments, and what is added to its environment."""

    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", self.module, *self.arguments]

    def __str__(self) -> str:
        settings = (f"{name}={value}" for name, value in self.environment.items())
        return " ".join((*settings, "python -m", self.module, *self.arguments))


def _by_release(name: str, module: str, cases: int, *flags: str) -> dict[str, Part]:
    return {
        f"{name}-{release}": Part(module, (*flags, f"--cases={cases}", f"--version={release}"))
        for release in (NEWEST, OLDER, OLDEST)
    }


PARTS: Mapping[str, Part] = {
    "tests": Part("pytest", ("-q", "tests"), {"TOPOMEND_NIGHT": "1"}),
    **{f"kubelet-tests-{release}": Part("verify.kubelet_tests", (f"--version={release}",)) for release in RELEASES},
    "walks": Part("tests.relaunch.walks", environment={"FURTHER": "1"}),
    "oracle-rules": Part("pytest", ("-q", "tests/verify/oracle/test_agreement.py"), {"CASES": "30000"}),
    **_by_release("oracle", "verify.oracle", 30_000),
    **_by_release("fit-oracle", "verify.oracle", 30_000, "--fit"),
    **_by_release("restore-oracle", "verify.oracle.restoring", 10_000),
    **_by_release("config-oracle", "verify.config_oracle", 30_000),
    **_by_release("config-oracle-start", "verify.config_oracle.start", 10_000),
    "upstream": Part("verify.upstream"),
    "nearest": Part("verify.nearest", ("--cases=100000",)),
    "mutants": Part("verify.mutants", ("--minutes=240",)),
    "packages": Part("verify.packages", ("--all",)),
    "release": Part("verify.release"),
    "vm": Part("pytest", ("-s", "--timeout=7200", "verify/vm/containers_on_qemu.py", "verify/vm/on_qemu.py")),
    "soak": Part("verify.soak", ("--kills=2000",)),
    "differential": Part("verify.differential", ("--cases=5000",)),
    "preemption-differential": Part("verify.preemption", ("--clusters=1000",)),
    "contended": Part("verify.contended"),
    "check-cost": Part("verify.bench.check_cost"),
    "make-room-cost": Part("verify.bench.make_room_cost"),
    "defragment-cost": Part("verify.bench.defragment_cost"),
    "campaign-cost": Part("verify.bench.campaign_cost"),
    "make-room": Part("verify.room"),
    "what-if": Part("verify.what_if"),
    "dra": Part("verify.dra"),
    "fragmentation": Part("verify.fragmentation"),
    "full-nodes": Part("verify.bench.full_nodes"),
    "versions": Part("verify.versions", RELEASES),
}
"""By name, the ones first that find a fault of the rules."""
