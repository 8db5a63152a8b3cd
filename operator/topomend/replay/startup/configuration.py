"""One kubelet's decoded configuration with its defaults, read by Go type.

A field of another type than Go's counts as unset: the loader refuses it before any rule is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from topomend.replay.startup.feature_gates import FeatureGates


@dataclass(frozen=True, slots=True)
class Host:
    """The machine, as far as checks of a configuration look at it: its ``memory`` in bytes if known, its cgroups."""

    memory: int | None = None
    cgroup_v1: bool = False


UNKNOWN_HOST = Host()
"""A machine of which nothing is known; it has cgroup v2, as nearly all do."""


@dataclass(frozen=True)
class Configuration:
    """The ``content`` of a configuration or of a struct in it, of a kubelet of 1.``minor`` with these feature gates.

    Field names are those of kubelet.config.k8s.io/v1beta1.
    """

    content: Mapping[str, Any]
    minor: int
    gates: FeatureGates
    host: Host = UNKNOWN_HOST

    def enabled(self, gate: str) -> bool:
        """Whether the feature gate is on."""
        return self.gates.enabled(gate)

    def has(self, name: str) -> bool:
        """Whether the field is set."""
        return self.content.get(name) is not None

    def text(self, name: str) -> str:
        """A string; empty if unset."""
        value = self.content.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """An integer, or a duration in nanoseconds; 0 if unset."""
        return self.given_number(name) or 0

    def given_number(self, name: str) -> int | None:
        """An integer, or None if unset."""
        value = self.content.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def given_float(self, name: str) -> float | None:
        """A float64, or None if unset."""
        value = self.content.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def flag(self, name: str) -> bool:
        """A boolean; false if unset."""
        return self.content.get(name) is True

    def items(self, name: str) -> list[Any]:
        """A list; empty if unset."""
        value = self.content.get(name)
        return value if isinstance(value, list) else []

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        return [value for value in self.items(name) if isinstance(value, str)]

    def pairs(self, name: str) -> dict[str, str]:
        """A map of strings, in the order of its keys: Go's is random."""
        value = self.content.get(name)
        pairs = value.items() if isinstance(value, Mapping) else ()
        return dict(sorted((key, text) for key, text in pairs if isinstance(key, str) and isinstance(text, str)))

    def struct(self, name: str) -> "Configuration":
        """A struct; one without fields if unset."""
        return self.of(self.content.get(name))

    def structs(self, name: str) -> list["Configuration"]:
        """A list of structs."""
        return [self.of(value) for value in self.items(name)]

    def of(self, value: object) -> "Configuration":
        """``value`` as a struct of this configuration."""
        return replace(self, content=value if isinstance(value, Mapping) else {})
