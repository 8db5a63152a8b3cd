"""A clock for code that is given one."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds that stand still until a test changes ``now``."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time now."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
