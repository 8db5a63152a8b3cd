"""The kinds that topomend asks the API server for, by their place in its paths."""

from typing import NamedTuple
from urllib.parse import quote, unquote

from topomend.wire.group import API_VERSION


class Resource(NamedTuple):
    """A kind as it appears in the API's paths. ``plural`` is lower case, such as ``nodetopologies``."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, of all objects in one namespace, or of all objects."""
        group = f"/{'apis' if '/' in self.api_version else 'api'}/{quote(self.api_version)}"
        within = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [*within, self.plural, name, subresource]
        return "/".join([group, *(quote(part, safe="") for part in parts if part)])

    def is_created_by(self, method: str, path: str) -> bool:
        """Whether a request creates objects of this kind in a namespace, and does nothing else."""
        namespace = unquote(path.removesuffix(f"/{self.plural}").rpartition("/")[2])
        return method == "POST" and bool(namespace) and path == self.path(namespace)


PODS = Resource("v1", "pods")
UNENDED = "status.phase!=Failed,status.phase!=Succeeded"
"""The field selector of pods that have not ended."""
NODES = Resource("v1", "nodes", namespaced=False)
NAMESPACES = Resource("v1", "namespaces", namespaced=False)
EVENTS = Resource("events.k8s.io/v1", "events")
LEASES = Resource("coordination.k8s.io/v1", "leases")
DEPLOYMENTS = Resource("apps/v1", "deployments")
REPLICA_SETS = Resource("apps/v1", "replicasets")
STATEFUL_SETS = Resource("apps/v1", "statefulsets")
DAEMON_SETS = Resource("apps/v1", "daemonsets")
JOBS = Resource("batch/v1", "jobs")
CRON_JOBS = Resource("batch/v1", "cronjobs")
REPLICATION_CONTROLLERS = Resource("v1", "replicationcontrollers")
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
CLAIMS = Resource("v1", "persistentvolumeclaims")
VOLUMES = Resource("v1", "persistentvolumes", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io/v1", "deviceclasses", namespaced=False)
DEVICE_TAINT_RULES = Resource("resource.k8s.io/v1", "devicetaintrules", namespaced=False)
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io/v1", "resourceclaimtemplates")
RESOURCE_CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims")
RESOURCE_SLICES = Resource("resource.k8s.io/v1", "resourceslices", namespaced=False)
NODE_TOPOLOGIES = Resource(API_VERSION, "nodetopologies", namespaced=False)
RELAUNCHES = Resource(API_VERSION, "relaunches")
BRAKES = Resource(API_VERSION, "brakes")
STEERINGS = Resource(API_VERSION, "steerings")
SECRETS = Resource("v1", "secrets")
MUTATING_WEBHOOKS = Resource("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False)
MUTATING_ADMISSION_POLICIES = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", namespaced=False)
MUTATING_ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False
)
VALIDATING_ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
)
VALIDATING_ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False)
