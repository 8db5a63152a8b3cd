"""The kubelet's feature gates: which a release knows, which it locks, which are on.

Source: component-base featuregate/feature_gate.go:SetFromMap. ``known_gates`` has the gates of every release.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from topomend.replay.startup.known_gates import DEPENDENCIES, GATES, Stage

ALL = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
"""The gates that turn on or off every gate of a stage that is not set itself."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate in one release: its stage, its default and whether nobody may change it."""

    stage: Stage
    default: bool
    locked: bool


@dataclass(frozen=True)
class FeatureGates:
    """The gates of the minor release ``minor``, and which of them are ``given``."""

    minor: int
    given: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        """Whether the gate is on. A gate that the release does not know is off."""
        gate = known_in(self.minor).get(name)
        if gate is None:
            return False
        chosen = self.chosen(name)
        return gate.default if chosen is None else chosen

    def chosen(self, name: str) -> bool | None:
        """What the gate is set to, by its own name or with every gate of its stage; None if it is not set."""
        if name in self.given:
            return self.given[name]
        gate = known_in(self.minor).get(name)
        return next((self.given.get(every) for every, stage in ALL.items() if gate and gate.stage is stage), None)


@lru_cache(2)
def known_in(minor: int) -> Mapping[str, Gate]:
    """The gates that a kubelet of 1.``minor`` knows."""
    known = {}
    for line in GATES.splitlines():
        name, *spans = line.split()
        for span in spans:
            first, last, stage, default, locked = _read_span(span)
            if first <= minor <= last:
                known[name] = Gate(stage, default, locked)
    return known


def _read_span(span: str) -> tuple[int, int, Stage, bool, bool]:
    """``30-32:b+`` is beta and on from 1.30 to 1.32; ``33:s+!`` is stable, on and locked in 1.33."""
    releases, _, state = span.partition(":")
    first, _, last = releases.partition("-")
    return int(first), int(last or first), Stage(state[0]), state[1] == "+", state.endswith("!")


@lru_cache(2)
def _dependencies(minor: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for line in DEPENDENCIES.splitlines():
        releases, name, *needed = line.split()
        first, _, last = releases.partition("-")
        if int(first) <= minor <= int(last or first):
            found.append((name, tuple(needed)))
    return tuple(found)


def refusals(gates: FeatureGates) -> Iterator[str]:
    """The kubelet's sentences about gates that may not be set so.

    The kubelet looks at the gates in the random order of a Go map and stops at the first one that it does not know. So
    of several it may name one; all of them are named here.
    """
    unsettable = [*_unsettable(gates)]
    yield from unsettable or _without_dependencies(gates)


def _unsettable(gates: FeatureGates) -> Iterator[str]:
    known = known_in(gates.minor)
    for name, wanted in sorted(gates.given.items()):
        gate = known.get(name)
        if gate is None:
            yield f"unrecognized feature gate: {name}"
        elif gate.locked and wanted != gate.default:
            yield (
                f"cannot set feature gate {name} to {_go_bool(wanted)}, feature is locked to {_go_bool(gate.default)}"
            )


def _without_dependencies(gates: FeatureGates) -> Iterator[str]:
    for name, needed in _dependencies(gates.minor):
        missing = [other for other in needed if not gates.enabled(other)]
        if missing and gates.enabled(name):
            yield f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"


def _go_bool(value: bool) -> str:
    return "true" if value else "false"
