"""The kinds of Kueue around an admission check, and the name under which its status is written."""

from topomend.kube.resources import Resource
from topomend.wire.queued_workload import API_VERSION

ADMISSION_CHECKS = Resource(API_VERSION, "admissionchecks", namespaced=False)
CLUSTER_QUEUES = Resource(API_VERSION, "clusterqueues", namespaced=False)
RESOURCE_FLAVORS = Resource(API_VERSION, "resourceflavors", namespaced=False)
WORKLOADS = Resource(API_VERSION, "workloads")

FIELD_MANAGER = "topomend-numa-fit"
"""The name under which an answer's fields are ours. Kueue wants each controller of a check to have one of its own."""
