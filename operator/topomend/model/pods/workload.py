"""The controller of pods, as far as it tells whether an evicted pod comes again, and the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topomend.model.pods.pod import Resources


@dataclass(frozen=True, slots=True)
class Workload:
    """A ReplicaSet or a StatefulSet. ``containers`` of its template by name.

    ``replicas`` are wanted, ``existing`` are there, and ``ready`` are of use. ``ending``: it is being deleted.
    ``rolling``: its next pods are of another template than those that run.
    """

    replicas: int
    existing: int
    ready: int
    ending: bool = False
    rolling: bool = False
    containers: Mapping[str, Resources] = field(default_factory=dict)
