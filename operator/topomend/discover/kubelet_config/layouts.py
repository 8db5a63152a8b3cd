"""The component of ``deploy/`` that lets an agent read the configuration of a kubelet that does not answer.

Recognizes distributions by their Nodes. Owns this choice; what a component mounts is in ``deploy/components``, and the
table of all layouts in docs/run/layouts.md.
"""

from collections.abc import Collection

DOCUMENTATION = "docs/run/layouts.md"

UNKNOWN = (
    f"apply the component of its layout, deploy/components/kubeadm on kubeadm, kind and minikube ({DOCUMENTATION})"
)
_NONE = f"see {DOCUMENTATION}: no component mounts its folder, which has secrets"
_NO_FILE = f"see {DOCUMENTATION}: K3s and RKE2 have none before 1.32, and their settings are flags"

_BY_MARK = {
    "kubernetes.azure.com/cluster": "aks",
    "microk8s.io/cluster": "microk8s",
    "kubeadm.alpha.kubernetes.io/cri-socket": "kubeadm",
}
"""Labels and annotations that AKS, MicroK8s and kubeadm (cmd/kubeadm/app/constants) give to each Node."""

_BY_VERSION = {"+k3s": "k3s", "+rke2": "rke2", "-gke.": ""}
_BY_OS_IMAGE = {
    "Bottlerocket": "bottlerocket",
    "Amazon Linux 2023": "eks-al2023",
    "Amazon Linux 2": "eks-al2",
    "Red Hat Enterprise Linux CoreOS": "",
    "Talos": "",
}
"""A part of the kubelet's version, and the beginning of the Node's ``osImage``; the first match counts. Empty where no
component may read the file."""


def cure(kubelet_version: str = "", os_image: str = "", marks: Collection[str] = ()) -> str:
    """What to do on a Node whose kubelet does not tell its configuration, in addition to naming its file.

    Part of a sentence: "name its file, or ...". ``marks`` are the keys of the Node's labels and annotations.
    """
    matches = [
        *(component for mark, component in _BY_MARK.items() if mark in marks),
        *(component for part, component in _BY_VERSION.items() if part in kubelet_version),
        *(component for start, component in _BY_OS_IMAGE.items() if os_image.startswith(start)),
    ]
    if not matches:
        return UNKNOWN
    if matches[0] in ("k3s", "rke2") and kubelet_version.startswith(("v1.30.", "v1.31.")):
        return _NO_FILE
    return f"apply deploy/components/{matches[0]} ({DOCUMENTATION})" if matches[0] else _NONE
