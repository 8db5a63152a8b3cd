"""The key of the work queue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodID:
    """A refused or gated pod. The uid distinguishes it from a later pod of the same name."""

    namespace: str
    name: str
    uid: str
