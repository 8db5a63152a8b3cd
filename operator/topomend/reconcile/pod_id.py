"""What is reconciled."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodID:
    """A refused or waiting pod by its uid, whatever has its name by now."""

    namespace: str
    name: str
    uid: str
