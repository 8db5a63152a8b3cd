"""The kubelet's pod-resources socket: gRPC over a Unix socket, its answers and the claims among them."""
