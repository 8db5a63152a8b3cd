"""The Topology Manager: hints, how they merge, the policies and the scopes (pkg/kubelet/cm/topologymanager)."""
