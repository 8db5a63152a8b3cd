"""Where the API server has the objects that say how many pods a group needs."""

from collections.abc import Mapping, Sequence

from topomend.kube.resources import Resource
from topomend.wire.pods.pod_group import JOBSET, KUBERNETES, SCHEDULER_PLUGINS, VOLCANO

GROUP_RESOURCES: Mapping[str, Sequence[Resource]] = {
    KUBERNETES: [Resource(f"{KUBERNETES}/{version}", "podgroups") for version in ("v1", "v1beta1", "v1alpha2")],
    SCHEDULER_PLUGINS: [Resource(f"{SCHEDULER_PLUGINS}/v1alpha1", "podgroups")],
    VOLCANO: [Resource(f"{VOLCANO}/v1beta1", "podgroups")],
    JOBSET: [Resource(f"{JOBSET}/v1alpha2", "jobsets")],
}
"""By API group, the objects that say how many pods a group needs; Kueue's pods say it themselves."""
