"""The names in topomend's API group that more than one room uses: kinds, labels, annotations, gates, finalizers."""

GROUP = "topomend.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

NODE_TOPOLOGY = "NodeTopology"
RELAUNCH = "Relaunch"
BRAKE = "Brake"
STEERING = "Steering"

BRAKE_NAME = "topomend-brake"
STEERING_NAME = "topomend-steer"
"""The names of the parameter objects of the two policies that gate pods."""

UNGATED_NAMESPACES = ("kube-system", "topomend-agent", "topomend-system")
"""Namespaces in which no policy of ours gates pods: what topomend needs to ungate pods, and topomend's own. The
policies know those by label and by the parameter objects, so that they may have other names."""

STEER_LABEL = f"{GROUP}/steer"
"""Namespace label: with ``enabled``, every new pod that a kubelet would align is gated until a node is known."""

RELAUNCH_ANNOTATION = f"{GROUP}/relaunch"
"""Pod or namespace annotation: with ``"false"``, pods are neither gated nor relaunched nor evicted for others."""

SELFTEST_LABEL = f"{GROUP}/selftest"
"""Label of the namespaces and pods that ``kubectl numa selftest`` creates; ``--clean`` deletes such namespaces."""

RELAUNCH_STARTED_ANNOTATION = f"{GROUP}/relaunch-started"
"""Pod annotation: with ``"true"``, a pod of restartPolicy Never is relaunched although a container of it has run."""

RELAUNCH_PINNED_ANNOTATION = f"{GROUP}/relaunch-pinned"
"""Pod annotation: with ``"true"``, a pod is relaunched although its creator wrote ``nodeName`` into it."""

MAX_ATTEMPTS_ANNOTATION = f"{GROUP}/max-attempts"
"""Pod or namespace annotation: how often a pod may be relaunched, a decimal number."""

RELAUNCH_GATE = f"{GROUP}/relaunch"
"""Scheduling gate of a replacement until its record names it and a node admits it."""

FIT_GATE = f"{GROUP}/fit"
"""Scheduling gate of a pod from its creation until a node that admits it is known."""

PLACEHOLDER_GATE = f"{GROUP}/placeholder"
"""Scheduling gate of a placeholder, which never loses it: no container of it ever runs."""

PLACEHOLDER_FOR_ANNOTATION = f"{GROUP}/placeholder-for"
"""Pod annotation of a placeholder: namespace, name and uid of the pod that it stands for, separated by slashes."""

RELAUNCH_FINALIZER = f"{GROUP}/relaunch"
"""Finalizer of a refused pod while its record is written, and of a record while it may be the pod's only copy."""

RECORD_ANNOTATION = f"{GROUP}/record"
"""Pod annotation: the name of the Relaunch that claims the refused pod, or that created the replacement."""

REPLACES_ANNOTATION = f"{GROUP}/replaces"
"""Pod annotation of a replacement: the uid of the refused pod."""

NAME_POLICY_ANNOTATION = f"{GROUP}/name-policy"
"""Pod or namespace annotation: with ``Suffix``, the replacement gets a name of its own and is created before the
refused pod is deleted. Otherwise it gets the same name and is created after that."""

CREATOR_MAY_NOT = "CreatorMayNot"
"""Reason in a Relaunch's condition whose message begins with the name of the pod's creator."""

CREATOR_ANNOTATION = f"{GROUP}/creator"
"""Pod annotation: the pod's creator, stamped at creation: the user's name, then one group a line, without the groups
that follow from the name, and without the group of all users; or UNREVIEWABLE."""

UNREVIEWABLE = f"{GROUP}:unreviewable"
"""The stamp of a pod whose creator's rights do not follow from name and groups alone, such as a scoped token's."""

CHANGED_ANNOTATION = f"{GROUP}/changed"
"""Pod annotation beside a stamp: the keys of annotations and labels that were written after the pod's creation,
separated by blanks. A label's key has LABEL_PREFIX."""

LABEL_PREFIX = "label:"

STARTUP_TAINTS = (
    f"{GROUP}/topology-not-known",
    "startup-taint.cluster-autoscaler.kubernetes.io/topomend-topology-not-known",
)
"""Keys of the taint of a new node whose topology is not known yet. Cluster Autoscaler knows the second by its prefix,
which is the only way on platforms that do not let one set its flags."""

ALIGNMENT_ANNOTATION = f"{GROUP}/alignment"
"""Pod annotation: with ``single-numa-node``, the operator chooses only nodes that place the pod on one NUMA node,
whatever their kubelets' policy. Written at the pod's creation alone."""

CREATORS_ANNOTATIONS = (ALIGNMENT_ANNOTATION,)
"""The pod annotations of topomend that a pod's creator writes, and nobody later."""

USERS_ANNOTATIONS = (
    RELAUNCH_ANNOTATION,
    RELAUNCH_STARTED_ANNOTATION,
    RELAUNCH_PINNED_ANNOTATION,
    MAX_ATTEMPTS_ANNOTATION,
    NAME_POLICY_ANNOTATION,
)
"""The pod annotations of topomend that users write at any time. All others but CREATORS_ANNOTATIONS are the operator's
alone."""

ASKS_FOR_NODE = "topomend keeps the pod gated:"
"""How the message of a condition PodScheduled begins that the operator wrote. The operator's policy knows it too."""

RELEASED_ANNOTATION = f"{GROUP}/released"
"""Pod annotation: the operator ungated the pod, which is one change of its spec; see its two values."""

NARROWED, NOT_NARROWED = "true", "not-narrowed"
"""Whether the operator added a node affinity when it ungated the pod."""

ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
"""Pod annotation of a replacement: the number of the attempt, counted from 1."""
