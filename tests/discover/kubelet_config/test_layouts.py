import re
from pathlib import Path

import pytest

from topomend.discover.kubelet_config.layouts import UNKNOWN, cure

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("version", "os_image", "mark", "component"),
    [
        ("v1.32.6+k3s1", "K3s v1.32.6+k3s1", "", "k3s"),
        ("v1.32.4+rke2r1", "Ubuntu 22.04.5 LTS", "", "rke2"),
        ("v1.30.8-eks-aeac579", "Amazon Linux 2023.6.20250123", "", "eks-al2023"),
        ("v1.30.8-eks-aeac579", "Amazon Linux 2", "", "eks-al2"),
        ("v1.30.4-eks-16b398d", "Bottlerocket OS 1.26.1 (aws-k8s-1.30)", "", "bottlerocket"),
        ("v1.30.3", "Ubuntu 22.04.4 LTS", "kubernetes.azure.com/cluster", "aks"),
        ("v1.30.9", "Ubuntu 24.04 LTS", "microk8s.io/cluster", "microk8s"),
        ("v1.30.9", "Amazon Linux 2023.6.20250123", "kubeadm.alpha.kubernetes.io/cri-socket", "kubeadm"),
    ],
)
def test_the_component_of_a_distribution_is_named(version: str, os_image: str, mark: str, component: str) -> None:
    assert cure(version, os_image, {"kubernetes.io/os", mark}) == (
        f"apply deploy/components/{component} (docs/run/layouts.md)"
    )
    assert (ROOT / "deploy" / "components" / component / "kustomization.yaml").exists()
    assert re.search(rf"^\|.*`{component}`", (ROOT / "docs" / "run" / "layouts.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("version", "os_image"),
    [
        ("v1.30.9-gke.1127000", "Container-Optimized OS from Google"),
        ("v1.30.7", "Red Hat Enterprise Linux CoreOS 417.94.202412"),
        ("v1.30.1", "Talos (v1.7.4)"),
    ],
)
def test_where_the_folder_has_secrets_no_component_is_named(version: str, os_image: str) -> None:
    assert cure(version, os_image) == "see docs/run/layouts.md: no component mounts its folder, which has secrets"


@pytest.mark.parametrize("version", ["v1.30.8+k3s1", "v1.31.4+rke2r1"])
def test_of_a_distribution_that_has_no_file_yet_no_component_is_named(version: str) -> None:
    assert "components" not in cure(version)
    assert cure(version).startswith("see docs/run/layouts.md: K3s and RKE2 have none before 1.32")


def test_of_an_unknown_node_the_usual_component_and_the_table_of_all_are_named() -> None:
    assert cure("v1.30.14", "Debian GNU/Linux 12 (bookworm)", {"kubernetes.io/os"}) == UNKNOWN
    assert "deploy/components/kubeadm" in UNKNOWN
    assert "docs/run/layouts.md" in UNKNOWN
