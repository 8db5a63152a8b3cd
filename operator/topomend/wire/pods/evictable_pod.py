"""Read a core/v1 Pod as one that may be evicted for a better place."""

from typing import Any

from topomend.model.pods.evictable_pod import EvictablePod
from topomend.wire.document import Document
from topomend.wire.pods.eviction_hints import forbidding_annotation, local_storage
from topomend.wire.pods.running_pod import workload_of
from topomend.wire.pods.scheduling import read_watched_pod

_DEFAULT_GRACE = 30
"""Source: pkg/apis/core/v1/defaults.go:SetDefaults_PodSpec."""


def read_evictable_pod(content: dict[str, Any]) -> EvictablePod:
    """The EvictablePod of a Pod object. Raises MalformedObject."""
    document = Document(content)
    metadata = document["metadata"]
    owner = workload_of(metadata)
    return EvictablePod(
        read_watched_pod(content),
        f"{owner.kind}/{owner.name}" if owner else "",
        forbidding_annotation(content),
        local_storage(content),
        document["spec"]["terminationGracePeriodSeconds"].integer(_DEFAULT_GRACE),
        {key: value.text("") for key, value in metadata["labels"].fields()},
    )
