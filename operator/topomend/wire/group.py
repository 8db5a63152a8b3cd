"""The API group that topomend owns, and the names in it that more than one room spells."""

GROUP = "topomend.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

NODE_TOPOLOGY = "NodeTopology"
RELAUNCH = "Relaunch"
BRAKE = "Brake"
STEERING = "Steering"

BRAKE_NAME = "topomend-brake"
STEERING_NAME = "topomend-steer"
"""The names of the two policies that gate, of their bindings, and of the one object that each has for a parameter."""

CREATOR_NAME = "topomend-creator"
"""The name of the policy that stamps new pods with who creates them, and of its binding."""

UNGATED_NAMESPACES = ("kube-system", "topomend-agent", "topomend-system")
"""Namespaces whose pods no policy of ours gates: what lets gated pods go, and what that needs to run."""

STEER_LABEL = f"{GROUP}/steer"
"""Namespace label: ``enabled`` has every new pod that a kubelet would align fitted before it is scheduled."""

RELAUNCH_ANNOTATION = f"{GROUP}/relaunch"
"""Pod or namespace annotation: ``"false"`` leaves refused pods alone."""

MAX_ATTEMPTS_ANNOTATION = f"{GROUP}/max-attempts"
"""Pod or namespace annotation: how often a pod may be relaunched."""

RELAUNCH_GATE = f"{GROUP}/relaunch"
"""Scheduling gate of a replacement until its record owns it."""

FIT_GATE = f"{GROUP}/fit"
"""Scheduling gate of a pod that was gated at birth until a node that admits it is known."""

RELAUNCH_FINALIZER = f"{GROUP}/relaunch"
"""Finalizer on a refused pod while its record is being written, and on a record while it may be the pod's only copy."""

RECORD_ANNOTATION = f"{GROUP}/record"
"""Pod annotation: the name of the Relaunch that claims (old pod) or made (new pod) it."""

REPLACES_ANNOTATION = f"{GROUP}/replaces"
"""Pod annotation of a replacement: the uid of the pod it stands in for."""

NAME_POLICY_ANNOTATION = f"{GROUP}/name-policy"
"""Pod or namespace annotation: ``Suffix`` has a replacement be named after its pod and created before its end, where
it otherwise has the same name and is created after it."""

CREATOR_ANNOTATION = f"{GROUP}/creator"
"""Pod annotation: who created it, stamped at its creation: the user's name, then the groups, a line each."""

RELEASED_ANNOTATION = f"{GROUP}/released"
"""Pod annotation: ``"true"`` where the operator narrowed the pod and let it go, which is one change of its spec."""

ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
"""Pod annotation of a replacement: which attempt it is, counted from 1."""
