"""A mutant: one rule of the replay, broken on purpose."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

REPLAY = Path("operator", "topomend", "replay")


class OutOfStep(ValueError):
    """The text that a mutant changes does not stand in its file exactly once: the list needs a look."""


@dataclass(frozen=True)
class Mutant:
    """``breaks`` says in a sentence what replay then gets wrong; ``file`` is below ``REPLAY``."""

    breaks: str
    file: str
    old: str
    new: str

    def applied_to(self, source: str) -> str:
        """The source with the rule broken. Raises OutOfStep."""
        count = source.count(self.old)
        if count != 1:
            raise OutOfStep(f"{self.file} holds {self.old!r} {count} times instead of once (mutant: {self.breaks})")
        return source.replace(self.old, self.new)
