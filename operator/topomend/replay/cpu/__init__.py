"""The CPU Manager's static policy (pkg/kubelet/cm/cpumanager)."""
